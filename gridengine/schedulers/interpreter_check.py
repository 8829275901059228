"""Runs the nodes' Python once on this machine, for `gridengine doctor`: the interpreter that the
arguments `python=`, `container=` and `prologue=` of a scheduler give a worker.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from gridengine._version import __version__
from gridengine.schedulers.checks import CheckState, Finding, line_of
from gridengine.schedulers.command import run_command
from gridengine.schedulers.worker_command import (
    command_words,
    container_words,
    in_container,
    launch_script,
    python_path,
    shell_lines,
)

PROBE = (
    "import os, sys; print('\\npython', *sys.version_info[:2], os.fstat(1).st_ino, flush=True); "
    "import gridengine; print('\\ngridengine', gridengine.__version__, gridengine.__file__, "
    "flush=True); import gridengine.worker.main; print('\\nwhole')"
)
LOGGED = 'cd "$1" && exec "$0" >log 2>&1'
"""Runs a script in a folder that has no packages, with its output in a file."""
CONDA = (
    "with conda say `conda run --no-capture-output`; a worker is known by its standard output, "
    "which must be its log"
)
_broken = partial(Finding, "here", "python of workers", CheckState.BROKEN)


def check_interpreter(
    folder: Path,
    environment: Mapping[str, str],
    wait: float,
    *,
    python: str | Sequence[str] | None = None,
    container: str | Sequence[str] | None = None,
    prologue: Sequence[str] = (),
) -> Finding:
    """Run the interpreter that workers get by these arguments, as a worker's script does, for
    `wait` seconds at most. `folder` is where run directories are.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value.
    """
    words = () if container is None else container_words("container", container)
    there = next(one for one in (folder, *folder.parents) if one.exists())
    own = ("python" if words else sys.executable) if python is None else python
    command = [*(in_container(words, there) if words else ()), *command_words("python", own)]
    script = launch_script(
        [*command, "-P", "-c", PROBE],
        prologue=shell_lines("prologue", prologue),
        path=python_path(environment.get("PYTHONPATH", "")),
        caller=environment,
    )
    with tempfile.TemporaryDirectory() as empty:
        path, log = Path(empty, "worker.sh"), Path(empty, "log")
        path.write_text(script)
        path.chmod(0o700)
        try:
            run_command(["/bin/sh", "-c", LOGGED, str(path), empty], environment, wait)
        except subprocess.TimeoutExpired:
            return judge(command, None, 0)
        return judge(command, log.read_text(errors="replace"), log.stat().st_ino)


def judge(command: Sequence[str], output: str | None, log: int) -> Finding:
    """Return the finding for the output of `PROBE`, None if it did not end. `log` is the inode of
    the file that the output went to.
    """
    line, broken = shlex.join(command), _broken
    by_hand = f"run it by hand: {line} -c 'import gridengine'"
    if output is None:
        return broken(f"{line} did not end in time", f"{by_hand}; --wait SECONDS waits longer")
    if failed := re.search(r"^gridengine: (the prologue failed.*);", output, re.MULTILINE):
        return broken(failed[1], "run the lines of prologue= by hand, in a login shell")
    said = re.search(r"^python (\d+) (\d+) (\d+)$", output, re.MULTILINE)
    if said is None:
        return _not_run(command, output, by_hand)
    version, ours = f"{said[1]}.{said[2]}", f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != ours:
        return broken(
            f"{line} is Python {version}, and this is {ours}",
            f"name a Python {ours} by python=, or run your script with Python {version}",
        )
    install = f"{line} -m pip install gridengine=={__version__}"
    package = re.search(r"^gridengine (\S+) (.*)$", output, re.MULTILINE)
    if package is None or not re.search("^whole$", output, re.MULTILINE):
        lacks = re.search(r"No module named '([\w.]+)'", output)
        what = f"{line} (Python {version})"
        if lacks is None:
            return broken(f"{what}: {line_of(output, -1)}", by_hand)
        return broken(f"{what} has no {lacks[1].partition('.')[0]}", f"install it: {install}")
    if package[1] != __version__:
        words = f"{line} has gridengine {package[1]}, and this is {__version__}"
        return broken(words, f"install the same: {install}")
    if int(said[3]) != log:
        return broken(f"{line} does not leave its Python the standard output", CONDA)
    words = f"{line}: Python {version}, gridengine {package[1]} in {Path(package[2]).parent}"
    return Finding("here", "python of workers", CheckState.OK, words)


def _not_run(command: Sequence[str], output: str, by_hand: str) -> Finding:
    """Return the finding for a command that ended before it ran Python."""
    missing = re.search(
        rf"{re.escape(command[0])}: (?:command )?not found|{re.escape(command[0])}: No such file",
        output,
    )
    if missing:
        return _broken(
            f"there is no command {command[0]} here",
            "give its whole path, or load its module by a line of prologue=",
        )
    line = line_of(output.partition("gridengine: the worker could not be started")[0], -1)
    return _broken(
        f"{shlex.join(command)} does not run Python: {line or 'it says nothing'}", by_hand
    )
