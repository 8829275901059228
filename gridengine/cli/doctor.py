"""Check this machine: which schedulers answer, what they have, and whether a trivial job returns.
Every check has a time limit.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gridengine.cli import dispatcher_checks
from gridengine.cli.trial_job import try_job
from gridengine.errors import ConfigurationError
from gridengine.schedulers.checks import Finding, State, setting_of
from gridengine.schedulers.detect import this_allocation
from gridengine.schedulers.registry import STARTERS, entry_of
from gridengine.settings.values import settings, sources

TESTED_PYTHONS = (3, 11), (3, 15)
"""The first and the last that gridengine is tested with."""
LEAST_ENCRYPTED = 120e6
"""Bytes for each second of processor time, both ends together. A libsodium that was built for this
processor reaches 300e6 and more, others 30e6.
"""
_finding = functools.partial(Finding, "here")


def examine(asked: str | None, environment: Mapping[str, str], *, wait: float) -> Iterator[Finding]:
    """Yield findings one by one; each trivial job may take `wait` seconds. Only the requested
    scheduler is examined; without a request the one in the settings, else all. If the settings
    cannot be read, none is.
    """
    readable = True
    for finding in _check_machine():
        yield finding
        readable = readable and (finding.check, finding.state) != ("settings", State.BROKEN)
    alone = asked or setting_of("scheduler").value
    for name in (alone,) if alone else STARTERS:
        works = readable
        for finding in entry_of(name).findings(environment) if readable else ():
            yield finding
            works = works and finding.state is State.OK
        if works:
            yield try_job(name, environment, wait)
        else:
            yield Finding(name, "job", State.ABSENT, "not tried")


def is_broken(findings: Sequence[Finding]) -> bool:
    """Return whether something that is here does not work, or the only examined scheduler is not
    here.
    """
    states = {finding.state for finding in findings}
    alone = len({finding.of for finding in findings} - {"here"}) == 1
    return State.BROKEN in states or (alone and State.ABSENT in states)


def as_json(findings: Iterable[Finding], broken: bool) -> str:
    """Return the findings as JSON."""
    return json.dumps(
        {"ok": not broken, "findings": [dataclasses.asdict(one) for one in findings]},
        indent=1,
        default=operator.attrgetter("value"),
    )


def _check_machine() -> Iterator[Finding]:
    """Yield the findings that concern no scheduler."""
    yield check_python(
        sys.version_info[:3], has_lock=not sysconfig.get_config_var("Py_GIL_DISABLED")
    )
    try:
        sources()
        folder = settings().run_directory.expanduser()
    except (ConfigurationError, RuntimeError) as error:
        words = getattr(error, "message", str(error))
        yield _finding("settings", State.BROKEN, words, getattr(error, "hint", None) or "set HOME")
        return
    words = "read; `gridengine settings` shows them"
    one = setting_of("scheduler")
    if one.value:
        words += f"; {one.by} says {one.value}: no other is looked at without --scheduler"
    yield _finding("settings", State.OK, words)
    if (allocation := this_allocation()) is not None:
        words = f"this process has {allocation}"
        words += "" if one.value else ": calls run on these where no scheduler is named"
        yield _finding("batch job", State.OK, words)
    yield _check_run_directory(folder)
    yield check_encryption()
    yield from dispatcher_checks.findings()


def check_python(version: Sequence[int], *, has_lock: bool) -> Finding:
    """Tell which Python this is, and when gridengine is not tested with it."""
    first, last = TESTED_PYTHONS
    numbers, oldest, newest = (".".join(map(str, one)) for one in (version, first, last))
    words = f"{numbers}, {sys.executable}, gridengine in {Path(__file__).parents[1]}"
    if not first <= tuple(version[:2]) <= last:
        words += f"; tested are {oldest} to {newest}"
    if not has_lock:
        words += "; a build without the interpreter's lock, with which gridengine is not tested"
    return _finding("python", State.OK, words)


_WRITTEN = 65536
"""How many bytes are written to test whether there is room."""


def _check_run_directory(folder: Path) -> Finding:
    there = folder
    try:
        there = next(one for one in (folder, *folder.parents) if one.exists())
        with tempfile.NamedTemporaryFile(dir=there, prefix=".gridengine-doctor-") as file:
            file.write(bytes(_WRITTEN))
    except OSError as error:
        return _finding(
            "run directory",
            State.BROKEN,
            f"{folder}: nothing can be written to {there}: {error.strerror}",
            "make room, or set GRIDENGINE_RUN_DIRECTORY to a folder that the nodes share",
        )
    free = shutil.disk_usage(there).free / 2**30
    return _finding("run directory", State.OK, f"{folder}, {free:.1f} GB free")


def check_encryption() -> Finding:
    """Measure how fast messages between machines are encrypted."""
    import zmq

    from gridengine.wire.sockets import encrypted_bytes_per_second

    build = f"pyzmq {zmq.pyzmq_version()}, libzmq {zmq.zmq_version()}"
    try:
        rate = encrypted_bytes_per_second()
    except zmq.ZMQError as error:
        return _finding(
            "encryption",
            State.BROKEN,
            f"{build}: {error}",
            "workers on other machines need it: install pyzmq's own wheel (`pip install "
            "--force-reinstall pyzmq`)",
        )
    words = f"{rate / 1e6:,.0f} MB for each second of a processor ({build})"
    if rate >= LEAST_ENCRYPTED:
        return _finding("encryption", State.OK, words)
    return _finding(
        "encryption",
        State.SLOW,
        f"{words}, which slows down the traffic with cluster workers",
        "`pip install --force-reinstall 'pyzmq>=27.3'`; a pyzmq that was built here is as "
        "fast as the libsodium that it found",
    )
