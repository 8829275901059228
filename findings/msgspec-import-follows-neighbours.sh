#!/bin/sh
# msgspec 0.22.0 needs no other package. Yet what `import msgspec` loads depends on whether
# typing_extensions happens to be installed beside it: then msgspec imports that too, on Pythons
# whose own `typing` has all that msgspec uses, and with it `inspect`, `ast` and `dis`. A tool that
# waits for this import at each start becomes slower when some other package is installed.
#
# Seen with Python 3.11 (each in a fresh environment, of the loaded modules):
#
#     alone: inspect is not loaded
#     with typing_extensions 4.16.0: inspect is loaded
set -u
python=$(command -v python3) || exit 77
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv" || exit 77
python=$folder/venv/bin/python

# told WHEN: print whether `import msgspec` loads `inspect`.
told() {
    "$python" -c "
import sys
before = set(sys.modules)
import msgspec
found = 'inspect' in set(sys.modules) - before
print('$1:', 'inspect is loaded' if found else 'inspect is not loaded')"
}

"$python" -m pip install --quiet msgspec==0.22.0 || exit 77
alone=$(told alone)
"$python" -m pip install --quiet typing_extensions==4.16.0 || exit 77
both=$(told 'with typing_extensions 4.16.0')
echo "$alone"
echo "$both"
[ "$alone" = 'alone: inspect is not loaded' ] || exit 1
[ "$both" = 'with typing_extensions 4.16.0: inspect is loaded' ] || exit 1
