#!/bin/sh
# cloudpickle 3.1.2 and dill 0.4.0, seen with CPython 3.14.8: that Python evaluates annotations when
# somebody looks at them, and both picklers look. A function of a script whose annotation names what
# only type checkers import runs, and cannot be pickled:
#
#     it runs: 3
#     cloudpickle: NameError: name 'NDArray' is not defined
#     dill: NameError: name 'NDArray' is not defined
set -u
python=$(command -v python3.14) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 77
"$python" -m venv env >/dev/null 2>&1 || exit 77
env/bin/python -m pip install --quiet --disable-pip-version-check \
    cloudpickle==3.1.2 dill==0.4.0 || exit 77

cat >script.py <<'PY'
import cloudpickle
import dill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray


def total(values: NDArray) -> float:
    return sum(values)


print("it runs:", total([1, 2]))
for pickler in (cloudpickle, dill):
    try:
        outcome = f"{len(pickler.dumps(total))} bytes"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    print(f"{pickler.__name__}: {outcome}")
PY
env/bin/python script.py >said
cat said
cat >expected <<'TEXT'
it runs: 3
cloudpickle: NameError: name 'NDArray' is not defined
dill: NameError: name 'NDArray' is not defined
TEXT
cmp -s said expected || exit 1
