#!/bin/sh
# Hydra 1.3.8 executes each plugin's module before it enters the module in `sys.modules`. `dataclass`
# looks there for the names of annotations that are strings. So a plugin whose module begins with
# `from __future__ import annotations` and defines a dataclass ends every program that uses Hydra,
# with an AttributeError from the standard library that names neither the plugin nor the cause.
# Without that line the same module loads.
#
# Seen with Python 3.11: AttributeError: 'NoneType' object has no attribute '__dict__'
set -eu
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" &&
    "$folder/venv/bin/python" -m pip install --quiet hydra-core==1.3.8 || exit 77
plugin=$folder/hydra_plugins/example_launcher
mkdir -p "$plugin"
: >"$plugin/__init__.py"

# load FIRST_LINE: say how Hydra takes a plugin that begins with this line.
load() {
    printf '%s\nfrom dataclasses import dataclass\n\n@dataclass\nclass Conf:\n    size: int = 1\n' \
        "$1" >"$plugin/conf.py"
    PYTHONPATH=$folder "$folder/venv/bin/python" -c '
from hydra.core.plugins import Plugins
try:
    Plugins.instance()
except AttributeError as error:
    print("AttributeError:", error)
else:
    print("loaded")
'
}

plain=$(load '')
strings=$(load 'from __future__ import annotations')
echo "annotations evaluated: $plain"
echo "annotations as strings: $strings"
[ "$plain" = loaded ] || exit 1
case $strings in AttributeError:*__dict__*) ;; *) exit 1 ;; esac
