#!/bin/sh
# CPython (seen with 3.11.7, 3.12.1 and 3.13.0): a script that an unhandled KeyboardInterrupt ends
# dies of SIGINT, so that its shell sees status 130. When an exit handler compiles a text meanwhile,
# as collections.namedtuple does, the script ends with status 1 instead: the interpreter's note of
# the interrupt is taken back. Importing a module of the standard library that defines a named tuple
# is enough. Seen with the standard library alone:
#
#     nothing at exit: 130
#     a named tuple at exit: 1
set -u
python=$(command -v python3) || exit 77
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 77

cat >script.py <<'PY'
import atexit
import collections
import os
import signal
import sys

if sys.argv[1] == "a named tuple":
    atexit.register(collections.namedtuple, "Pair", "left right")
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
PY

failed=0
expect() { # expect STATUS WHAT
    "$python" script.py "$2" 2>/dev/null
    status=$?
    echo "$2 at exit: $status"
    [ "$status" -eq "$1" ] || failed=1
}
expect 130 nothing
expect 1 "a named tuple"
exit "$failed"
