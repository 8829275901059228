#!/bin/sh
# CPython 3.14.8 and 3.15.0: who asks for annotations as text (annotationlib.Format.STRING), so as
# not to need what they name, has them evaluated once all the same, with the function's real
# globals, before the text is returned: by `inspect.signature` and by
# `annotationlib.call_annotate_function` alike. Seen with the standard library alone:
#
#     inspect.signature: evaluated once, the text is 'note()'
#     call_annotate_function: evaluated once, the text is 'note()'
set -u
python=$(command -v python3.15 || command -v python3.14) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 77

cat >script.py <<'PY'
import annotationlib
import inspect

STRING = annotationlib.Format.STRING
seen = []


def note():
    seen.append(True)


def f(x: note()): ...


def ask_signature():
    return inspect.signature(f, annotation_format=STRING).parameters["x"].annotation


def ask_annotate_function():
    return annotationlib.call_annotate_function(f.__annotate__, STRING)["x"]


for title, ask in (
    ("inspect.signature", ask_signature),
    ("call_annotate_function", ask_annotate_function),
):
    seen.clear()
    text = ask()
    how = {0: "not evaluated", 1: "evaluated once"}.get(len(seen), "evaluated often")
    print(f"{title}: {how}, the text is {text!r}")
PY
"$python" script.py >said
cat said
cat >expected <<'TEXT'
inspect.signature: evaluated once, the text is 'note()'
call_annotate_function: evaluated once, the text is 'note()'
TEXT
cmp -s said expected || exit 1
