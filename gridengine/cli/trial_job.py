"""A trivial job for `gridengine doctor`, run on one scheduler in a process that can be ended."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from gridengine.errors import GridEngineError
from gridengine.schedulers.checks import Finding, State
from gridengine.schedulers.local import worker_environment
from gridengine.schedulers.registry import entry_of

LEAVE_SECONDS = 10.0
"""How long the process may take to withdraw its job and end."""


def try_job(name: str, environment: Mapping[str, str], wait: float) -> Finding:
    """Return whether a trivial job on this scheduler returns within `wait` seconds."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import probe; probe({name!r})"],
        env=worker_environment(environment),
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
        words = ": ".join(filter(None, [f"did not return within {wait:g} s", _end(process)]))
        return Finding(
            name, "job", State.BROKEN, words, "look at the queue; --wait SECONDS waits longer"
        )
    except BaseException:
        _end(process)
        raise
    return judge(name, output, errors, time.monotonic() - began)


def _end(process: subprocess.Popen[str]) -> str:
    """End the process, and with it its job. Return the last line that it printed."""
    process.terminate()
    try:
        return _last_line(process.communicate(timeout=LEAVE_SECONDS)[1])
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return _last_line(process.communicate()[1])


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def judge(name: str, output: str, errors: str, seconds: float) -> Finding:
    """Return the finding for the output of `probe`; `seconds` is how long its process took."""
    finding = functools.partial(Finding, name, "job")
    try:
        said: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        words = _last_line(errors) or "the process that asked for it died"
        return finding(State.BROKEN, words, "report this as a fault of gridengine")
    if "error" in said:
        usual = (
            "see docs/troubleshooting.md"
            if os.getuid()
            else "batch systems take no jobs of root, as a rule: do this as a plain user"
        )
        return finding(State.BROKEN, said["error"], said["hint"] or usual)
    words = f"returned from {said['host']} in {said['seconds']:.1f} s"
    return finding(State.OK, f"{words}; with Python's own start {seconds:.1f} s")


def probe(name: str) -> None:
    """Run a trivial job, and print the result as JSON. Called in a process of its own."""
    from gridengine.api.map import starmap

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    began = time.monotonic()
    said: dict[str, Any]
    try:
        with entry_of(name).make(max_workers=1) as scheduler:
            (host,) = starmap(socket.gethostname, [()], scheduler=scheduler, progress=False)
            said = {"host": host, "seconds": round(time.monotonic() - began, 3)}
    except GridEngineError as error:
        words = [*error.message.split(), *(error.log_tail or "").splitlines()[-1:]]
        said = {"error": " ".join(words), "hint": error.hint}
    print(json.dumps(said), flush=True)
