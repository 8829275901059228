"""What this machine is: which schedulers answer, what they have, and whether a trivial job comes
home. Nothing here waits for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.schedulers import registry
from gridengine.schedulers.checks import Finding, State
from gridengine.schedulers.local_process import worker_environment
from gridengine.schedulers.worker_command import python_path
from gridengine.settings.values import settings, told

WAIT_SECONDS = 60.0
"""How long a trivial job may take to come home."""
LEAVE_SECONDS = 10.0
LEAST_ENCRYPTED = 120e6
"""Bytes for each second of processor time, both ends together: a libsodium built for this processor
does 300e6 and more, others 30e6.
"""


def examine(
    names: Iterable[str], environment: Mapping[str, str], *, wait: float = WAIT_SECONDS
) -> Iterator[Finding]:
    """Yield what is found, as it is found; `wait` is how many seconds each trivial job may take."""
    yield from _here()
    for name in names:
        broken = False
        for finding in registry.BY_NAME[name].findings(environment):
            yield finding
            broken = broken or finding.state is not State.OK
        yield (
            Finding(name, "job", State.ABSENT, "not tried")
            if broken
            else _job(name, environment, wait)
        )


def is_broken(findings: Iterable[Finding], asked: str | None) -> bool:
    """Whether what was asked for does not work, be it that it is not here; without such, whether
    anything that is here does not.
    """
    wrong = (State.BROKEN,) if asked is None else (State.BROKEN, State.ABSENT)
    return any(
        finding.state in (wrong if finding.of == asked else (State.BROKEN,)) for finding in findings
    )


def _here() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        "here",
        "python",
        State.OK,
        f"{version}, {sys.executable}, gridengine in {Path(__file__).parents[1]}",
    )
    try:
        told()
        folder = settings().run_directory.expanduser()
    except (ConfigurationError, RuntimeError) as error:
        yield Finding(
            "here",
            "settings",
            State.BROKEN,
            getattr(error, "message", str(error)),
            getattr(error, "hint", None) or "set HOME",
        )
        return
    yield Finding("here", "settings", State.OK, "read; `gridengine settings` shows them")
    yield _run_directory(folder)
    yield encryption()


def encryption() -> Finding:
    """Look at how fast messages to and from workers elsewhere are encrypted."""
    import zmq

    from gridengine.wire.encryption_speed import encrypted_bytes_per_second

    build = f"pyzmq {zmq.pyzmq_version()}, libzmq {zmq.zmq_version()}"
    try:
        rate = encrypted_bytes_per_second()
    except zmq.ZMQError as error:
        remedy = (
            "workers on other machines need it: install pyzmq's own wheel (`pip install "
            "--force-reinstall pyzmq`)"
        )
        return Finding("here", "encryption", State.BROKEN, f"{build}: {error}", remedy)
    words = f"{rate / 1e6:,.0f} MB for each second of a processor ({build})"
    if rate >= LEAST_ENCRYPTED:
        return Finding("here", "encryption", State.OK, words)
    remedy = (
        "`pip install --force-reinstall 'pyzmq>=27.3'`; a pyzmq that was built here is as "
        "fast as the libsodium that it found"
    )
    return Finding(
        "here",
        "encryption",
        State.SLOW,
        f"{words}, which slows down what goes to cluster workers and comes back",
        remedy,
    )


def _run_directory(folder: Path) -> Finding:
    there = folder
    try:
        there = next(one for one in (folder, *folder.parents) if one.exists())
        with tempfile.NamedTemporaryFile(dir=there, prefix=".gridengine-doctor-"):
            pass
    except OSError as error:
        words = f"{folder}: nothing can be written to {there}: {error.strerror}"
        return Finding(
            "here",
            "run directory",
            State.BROKEN,
            words,
            "set GRIDENGINE_RUN_DIRECTORY to a folder that the nodes share",
        )
    free = shutil.disk_usage(there).free / 2**30
    return Finding("here", "run directory", State.OK, f"{folder}, {free:.1f} GB free")


# -------------------------------------------------------------------- a trivial job, in a process
# that can be ended


def _job(name: str, environment: Mapping[str, str], wait: float) -> Finding:
    code = f"from gridengine.cli.doctor import probe; probe({name!r})"
    path = python_path(environment.get("PYTHONPATH", ""))
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        env={**worker_environment(environment), **({"PYTHONPATH": path} if path else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=wait)
    except subprocess.TimeoutExpired:
        words = f"did not come home within {wait:g} s"
        said = _ended(process)
        return Finding(
            name,
            "job",
            State.BROKEN,
            f"{words}: {said}" if said else words,
            "look at the queue; --wait SECONDS waits longer",
        )
    except BaseException:
        _ended(process)
        raise
    return judged(name, output, errors, time.monotonic() - began)


def _ended(process: subprocess.Popen[str]) -> str:
    """End the process, which takes its job along, and return its last words."""
    process.terminate()
    try:
        return _last(process.communicate(timeout=LEAVE_SECONDS)[1])
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return _last(process.communicate()[1])


def _last(errors: str) -> str:
    return next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")


def judged(name: str, output: str, errors: str, seconds: float) -> Finding:
    """Return what a probe's output means."""
    try:
        said: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return Finding(
            name,
            "job",
            State.BROKEN,
            _last(errors) or "the process that asked for it died",
            "report this as a fault of gridengine",
        )
    if "error" in said:
        usual = (
            "see docs/troubleshooting.md"
            if os.getuid()
            else "batch systems take no jobs of root, as a rule: do this as a plain user"
        )
        return Finding(name, "job", State.BROKEN, said["error"], said["hint"] or usual)
    return Finding(
        name,
        "job",
        State.OK,
        f"came home from {said['host']} in {said['seconds']:.1f} s; with Python's own start "
        f"{seconds:.1f} s",
    )


def probe(name: str) -> None:
    """Run a trivial job, and write what came of it to standard output as JSON. For a process of its
    own.
    """
    import logging

    from gridengine.api.map import starmap

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    began = time.monotonic()
    try:
        with registry.BY_NAME[name].make(max_workers=1) as scheduler:
            (host,) = starmap(socket.gethostname, [()], scheduler=scheduler, progress=False)
            seconds = time.monotonic() - began
    except GridEngineError as error:
        tail = (error.log_tail or "").splitlines()[-1:]
        said: dict[str, Any] = {
            "error": " ".join([" ".join(error.message.split()), *tail]),
            "hint": error.hint,
        }
    else:
        said = {"host": host, "seconds": round(seconds, 3)}
    print(json.dumps(said), flush=True)


def as_json(findings: Iterable[Finding], broken: bool) -> str:
    """Return the findings for scripts."""
    told = [
        {
            "of": one.of,
            "check": one.check,
            "state": one.state.value,
            "text": one.text,
            "remedy": one.remedy,
        }
        for one in findings
    ]
    return json.dumps({"ok": not broken, "findings": told}, indent=1)
