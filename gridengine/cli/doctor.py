"""`gridengine doctor`: check which schedulers answer here, what they have, and whether a trivial
job returns; and the settings, the run directory, and this user's stand-alone dispatchers.

Every check has a time limit. A trivial job is run by a process of its own, which can be ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gridengine._version import __version__
from gridengine.api.map import starmap
from gridengine.cli.console import (
    begin_logging,
    command,
    console,
    json_option,
    print_json,
    text,
    time_of,
)
from gridengine.cli.scheduler_options import SchedulerChoice, node_options
from gridengine.dispatcher.standalone import dispatcher_folder
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.schedulers.checks import CheckState, Finding, line_of, setting_of
from gridengine.schedulers.default import best_place
from gridengine.schedulers.detect import this_allocation
from gridengine.schedulers.interpreter_check import check_interpreter
from gridengine.schedulers.local import worker_environment
from gridengine.schedulers.registry import BY_NAME, STARTERS, entry_of
from gridengine.settings.values import settings, sources

if TYPE_CHECKING:
    from rich.console import Console

TESTED_PYTHONS = (3, 11), (3, 15)
"""The first and the last version of Python with which gridengine is tested."""
LEAST_ENCRYPTED = 120e6
"""Bytes for each second of processor time, both ends together. A libsodium that was built for this
processor reaches 300e6 and more, others 30e6.
"""
_WRITTEN = 65536
"""How many bytes are written to test whether there is room."""
LEAVE_SECONDS = 10.0
"""How long the process of a trivial job may take to withdraw the job and end."""
_finding = partial(Finding, "here")


def examine(
    asked: str | None, environment: Mapping[str, str], *, wait: float, **nodes: Any
) -> Iterator[Finding]:
    """Yield findings one by one; each trivial job may take `wait` seconds. Only the requested
    scheduler is examined; without a request the one in the settings, else all. If the settings
    cannot be read, none is examined. `nodes` are arguments for the workers' environment, such as
    `python`.
    """
    readable = runs_python = True
    for finding in _check_machine():
        yield finding
        readable = readable and (finding.check, finding.state) != ("settings", CheckState.BROKEN)
    if nodes and readable and settings().shared_files:  # else it is on the nodes alone
        yield (finding := check_interpreter(settings().runs, environment, wait, **nodes))
        runs_python = finding.state is CheckState.OK
    alone = asked or setting_of("scheduler").value
    for name in (alone,) if alone else STARTERS:
        works = readable and (runs_python or not entry_of(name).system)
        for finding in entry_of(name).findings(environment) if readable else ():
            yield finding
            works = works and finding.state is CheckState.OK
        if works:
            yield try_job(name, environment, wait, **(nodes if entry_of(name).system else {}))
        else:
            yield Finding(name, "job", CheckState.ABSENT, "not tried")
    if readable and not alone and this_allocation() is None:
        yield _finding(
            "calls", CheckState.OK, f"where no scheduler is named they run on {best_place()}"
        )


def is_broken(findings: Sequence[Finding]) -> bool:
    """Return whether something that is installed does not work, or the only scheduler that was
    examined is not installed.
    """
    states = {finding.state for finding in findings}
    alone = len({finding.of for finding in findings} - {"here"}) == 1
    return CheckState.BROKEN in states or (alone and CheckState.ABSENT in states)


def _check_machine() -> Iterator[Finding]:
    """Yield the findings that concern no scheduler."""
    yield check_python(
        sys.version_info[:3],
        is_free=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        has_lock=getattr(sys, "_is_gil_enabled", lambda: True)(),  # from Python 3.13 on
    )
    try:
        sources()
        folder = settings().run_directory.expanduser()
    except (ConfigurationError, RuntimeError) as error:
        words = getattr(error, "message", str(error))
        yield _finding(
            "settings", CheckState.BROKEN, words, getattr(error, "hint", None) or "set HOME"
        )
        return
    words = "read; `gridengine settings` shows them"
    one = setting_of("scheduler")
    if one.value:
        words += f"; {one.by} says {one.value}: no other is looked at without --scheduler"
    yield _finding("settings", CheckState.OK, words)
    if (allocation := this_allocation()) is not None:
        words = f"this process has {allocation}"
        words += "" if one.value else ": calls run on these where no scheduler is named"
        yield _finding("batch job", CheckState.OK, words)
    yield _check_run_directory(folder)
    yield check_encryption()
    yield from findings()


def check_python(version: Sequence[int], *, is_free: bool, has_lock: bool) -> Finding:
    """Return the version of this Python, with a remark if gridengine is not tested with it.

    is_free: whether it was built to run without the interpreter's lock.
    """
    first, last = TESTED_PYTHONS
    numbers, oldest, newest = (".".join(map(str, one)) for one in (version, first, last))
    words = f"{numbers}, {sys.executable}, gridengine in {Path(__file__).parents[1]}"
    if not first <= tuple(version[:2]) <= last:
        words += f"; tested are {oldest} to {newest}"
    if is_free:
        words += "; free-threaded"
        words += ", and yet with a lock: a package or PYTHON_GIL wants it" * has_lock
    return _finding("python", CheckState.OK, words)


def _check_run_directory(folder: Path) -> Finding:
    there = folder
    try:
        there = next(one for one in (folder, *folder.parents) if one.exists())
        with tempfile.NamedTemporaryFile(dir=there, prefix=".gridengine-doctor-") as file:
            file.write(bytes(_WRITTEN))
    except OSError as error:
        return _finding(
            "run directory",
            CheckState.BROKEN,
            f"{folder}: nothing can be written to {there}: {error.strerror}",
            "make room, or set GRIDENGINE_RUN_DIRECTORY to a folder that the nodes share",
        )
    free = shutil.disk_usage(there).free / 2**30
    return _finding("run directory", CheckState.OK, f"{folder}, {free:.1f} GB free")


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
            CheckState.BROKEN,
            f"{build}: {error}",
            "workers on other machines need it: install pyzmq's own wheel (`pip install "
            "--force-reinstall pyzmq`)",
        )
    words = f"{rate / 1e6:,.0f} MB for each second of a processor ({build})"
    if rate >= LEAST_ENCRYPTED:
        return _finding("encryption", CheckState.OK, words)
    return _finding(
        "encryption",
        CheckState.SLOW,
        f"{words}, which slows down the traffic with cluster workers",
        "`pip install --force-reinstall 'pyzmq>=27.3'`; a pyzmq that was built here is as "
        "fast as the libsodium that it found",
    )


@command("doctor", short_help="Check which schedulers work here.")
@click.option(
    "--scheduler",
    type=SchedulerChoice(tuple(BY_NAME)),
    help="Check this one alone, and fail when it is not here (default: the setting, else all).",
)
@click.option(
    "--wait",
    type=time_of(least=0.001),
    default=60.0,
    show_default=True,
    help="The time for each trivial job: seconds, or 10 min.",
)
@node_options
@json_option(": ok, and a list of findings with of, check, state, text, remedy")
def doctor_command(scheduler: str | None, wait: float, as_json: bool, **nodes: Any) -> None:
    """Check this machine: which schedulers answer, what they have, whether a trivial job returns,
    and where calls run that name no scheduler. With --python, --container or --prologue, that
    Python is run once here, and the trivial jobs of batch systems use it.

    The exit status is 1 when something that is here is broken, or when the scheduler that
    --scheduler or the setting `scheduler` names is not here.

    Examples:
      gridengine doctor
      gridengine doctor --scheduler grid_engine --wait 600
      gridengine doctor --python "conda run --no-capture-output -n env python"
      gridengine doctor --json
    """
    found: list[Finding] = []
    terminal = console()
    given = {name: value for name, value in nodes.items() if value}
    for finding in examine(scheduler, os.environ, wait=wait, **given):
        found.append(finding)
        if not as_json:
            _show(terminal, finding)
    broken = is_broken(found)
    if as_json:
        print_json({"ok": not broken, "findings": found})
    sys.exit(1 if broken else 0)


def _show(terminal: Console, finding: Finding) -> None:
    style = {"ok": "green", "absent": "dim", "broken": "bold red", "slow": "yellow"}[
        finding.state.value
    ]
    line = text(f"{finding.state.value:7}", style)
    words = f"{finding.of}: {finding.check}: {finding.text}"
    line.append(text(words, "dim" if style == "dim" else ""))
    terminal.print(line, soft_wrap=True)
    if finding.remedy:
        terminal.print(text(f"        try: {finding.remedy}"), soft_wrap=True)


def findings() -> Iterator[Finding]:
    """Yield a finding for each dispatcher that runs, or has a fault."""
    for folder in DispatcherFolder.all():
        found = list(_look_at(folder))
        yield from found
        if not found and folder.state() is dispatcher_folder.DispatcherState.RUNNING:
            yield _finding(f"dispatcher {folder.name}", CheckState.OK, f"runs: {folder.holder()}")


def _look_at(folder: DispatcherFolder) -> Iterator[Finding]:
    """Yield the faults of a dispatcher's files and lock."""
    broken = partial(_finding, f"dispatcher {folder.name}", CheckState.BROKEN)
    start = f"gridengine dispatcher start {folder.name}"
    exposed = [path for path in (folder.path, *folder.path.glob("*.json")) if _is_exposed(path)]
    if exposed:
        yield broken(
            f"{', '.join(map(str, exposed))}: others may look at this, or it belongs to somebody "
            "else: its keys may be known",
            f"gridengine dispatcher stop {folder.name}; remove {folder.path / 'server.json'}; "
            f"chmod -R go= {folder.path}; {start}",
        )
    try:
        folder.options()
    except ConfigurationError as error:
        yield broken(error.message, f"{start} --scheduler ...")
    holder, state = folder.holder(), folder.state()
    if state is dispatcher_folder.DispatcherState.DIED:
        yield broken(f"was killed: {holder}", f"{start}, or remove {folder.path}")
    if state is not dispatcher_folder.DispatcherState.RUNNING:
        return
    if not folder.answers():
        where = ", ".join(folder.addresses()) or "no address that is known"
        yield broken(
            f"{holder}: does not answer at {where}",
            f"see that no firewall is between; or gridengine dispatcher stop --now {folder.name}",
        )
    if holder is not None and holder.version != __version__:
        yield broken(
            f"runs gridengine {holder.version}, and this is {__version__}",
            f"gridengine dispatcher restart {folder.name}",
        )


def _is_exposed(path: Path) -> bool:
    """Return whether others may read or write a file, or it is not this user's."""
    facts = path.lstat()
    return facts.st_uid != os.getuid() or bool(stat.S_IMODE(facts.st_mode) & 0o077)


def try_job(name: str, environment: Mapping[str, str], wait: float, **options: Any) -> Finding:
    """Return whether a trivial job on this scheduler, with these options, returns within `wait`
    seconds.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            f"from {__name__} import probe; probe({name!r}, **{options!r})",
        ],
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
            name, "job", CheckState.BROKEN, words, "look at the queue; --wait SECONDS waits longer"
        )
    except BaseException:
        _end(process)
        raise
    return judge(name, output, errors, time.monotonic() - began)


def _end(process: subprocess.Popen[str]) -> str:
    """End the process, and with it its job. Return the last line that it printed."""
    process.terminate()
    try:
        return line_of(process.communicate(timeout=LEAVE_SECONDS)[1], -1)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return line_of(process.communicate()[1], -1)


def judge(name: str, output: str, errors: str, seconds: float) -> Finding:
    """Return the finding for the output of `probe`; `seconds` is how long its process took."""
    finding = partial(Finding, name, "job")
    try:
        said: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        words = line_of(errors, -1) or "the process that asked for it died"
        return finding(CheckState.BROKEN, words, "report this as a fault of gridengine")
    if "error" in said:
        usual = (
            "see docs/troubleshooting.md"
            if os.getuid()
            else "batch systems take no jobs of root, as a rule: do this as a plain user"
        )
        return finding(CheckState.BROKEN, said["error"], said["hint"] or usual)
    words = f"returned from {said['host']} in {said['seconds']:.1f} s"
    return finding(CheckState.OK, f"{words}; with Python's own start {seconds:.1f} s")


def probe(name: str, **options: Any) -> None:
    """Run a trivial job, and print the result as JSON. Called in a process of its own."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    begin_logging("%(message)s")
    began = time.monotonic()
    said: dict[str, Any]
    try:
        with entry_of(name).make(max_workers=1, **options) as scheduler:
            (host,) = starmap(socket.gethostname, [()], scheduler=scheduler, progress=False)
            said = {"host": host, "seconds": round(time.monotonic() - began, 3)}
    except GridEngineError as error:
        words = [*error.message.split(), *(error.log_tail or "").splitlines()[-1:]]
        said = {"error": " ".join(words), "hint": error.hint}
    print(json.dumps(said), flush=True)
