"""What this machine is: which schedulers answer, what they have, and whether a trivial job comes
home. Nothing here waits for ever.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.schedulers.detect import library_paths, without_slurm
from gridengine.schedulers.grid_engine.diagnostics import Words
from gridengine.schedulers.grid_engine.drmaa import Unavailable, named_system
from gridengine.schedulers.grid_engine.drmaa_systems import GRID_ENGINE, GRID_ENGINE_UNNAMED, SLURM
from gridengine.schedulers.grid_engine.options import PER_SLOT
from gridengine.schedulers.launcher import TryAgain
from gridengine.schedulers.local import worker_environment
from gridengine.schedulers.slurm.commands import Missing, Refused, Slurm, Trouble
from gridengine.schedulers.worker_command import python_path
from gridengine.settings.values import settings, told

COMMAND_SECONDS = 10.0
WAIT_SECONDS = 60.0
"""How long a trivial job may take to come home."""
LEAVE_SECONDS = 10.0
LEAST_ENCRYPTED = 120e6
"""Bytes for each second of processor time, both ends together: a libsodium built for this processor
does 300e6 and more, others 30e6.
"""
KINDS = {
    "processes": "ProcessScheduler",
    "grid_engine": "GridEngineScheduler",
    "slurm": "SlurmScheduler",
}


class State(enum.Enum):
    """What a look at one thing found."""

    OK = "ok"
    ABSENT = "absent"
    BROKEN = "broken"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Finding:
    """One look: of which scheduler ("here" is this machine), at what, what was found, and what to
    do about it.
    """

    of: str
    check: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said; `failure` is empty when it did what it was asked."""

    output: str
    failure: str = ""


def examine(
    names: Iterable[str], environment: Mapping[str, str], *, wait: float = WAIT_SECONDS
) -> Iterator[Finding]:
    """Yield what is found, as it is found; `wait` is how many seconds each trivial job may take."""
    yield from _here()
    for name in names:
        broken = False
        for finding in _LOOKS[name](environment):
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


def _processes(environment: Mapping[str, str]) -> Iterator[Finding]:
    usable = len(os.sched_getaffinity(0))
    yield Finding("processes", "processors", State.OK, f"{usable} of {os.cpu_count()} may be used")


def _grid_engine(environment: Mapping[str, str]) -> Iterator[Finding]:
    root, libraries, command = (
        environment.get("SGE_ROOT"),
        library_paths(environment),
        Words(environment).find("qconf"),
    )
    if not root and not libraries:
        words = (
            "SGE_ROOT is not set"
            if command
            else "SGE_ROOT is not set, and there is neither qconf nor a DRMAA library"
        )
        remedy = "source your site's settings.sh, or export SGE_ROOT, where there is a Grid Engine"
        yield Finding("grid_engine", "environment", State.ABSENT, words, remedy)
        return
    absent = _absent_library(environment, libraries)
    if absent is not None:
        yield absent
        return
    try:
        system = named_system(libraries[0], environment)
    except Unavailable as error:
        system = GRID_ENGINE_UNNAMED
        remedy = (
            "is it a DRMAA library, for this machine's architecture? A Grid Engine's wants "
            "SGE_ROOT and SGE_CELL to be right"
        )
        yield Finding("grid_engine", "library", State.BROKEN, str(error), remedy)
    else:
        yield Finding(
            "grid_engine", "library", State.OK, f"{libraries[0]}, which speaks to {system}"
        )
    if system.kind != GRID_ENGINE:
        better = (
            ": SlurmScheduler needs no DRMAA library"
            if system.kind == SLURM and not without_slurm(environment)
            else ""
        )
        yield Finding(
            "grid_engine", "system", State.OK, f"{system.name}, and no Grid Engine{better}"
        )
    elif root:
        yield from _master(environment, root, command)


def _absent_library(environment: Mapping[str, str], libraries: list[str]) -> Finding | None:
    remedy = (
        "install Grid Engine's DRMAA library (Debian: gridengine-drmaa1.0), or set "
        "DRMAA_LIBRARY_PATH to where libdrmaa.so is"
    )
    if not libraries:
        return Finding("grid_engine", "library", State.BROKEN, "there is no DRMAA library", remedy)
    if "/" in libraries[0] and not Path(libraries[0]).is_file():
        said = (
            "DRMAA_LIBRARY_PATH says"
            if environment.get("DRMAA_LIBRARY_PATH") == libraries[0]
            else "it should be"
        )
        return Finding(
            "grid_engine",
            "library",
            State.BROKEN,
            f"there is no DRMAA library where {said}: {libraries[0]}",
            remedy,
        )
    return None


def _master(environment: Mapping[str, str], root: str, command: str) -> Iterator[Finding]:
    if not command:
        words = f"qconf is neither in PATH nor below {root}/bin"
        yield Finding(
            "grid_engine",
            "commands",
            State.BROKEN,
            words,
            "correct SGE_ROOT, or add the folder of Grid Engine's commands to PATH",
        )
        return
    answer = run([command, "-sql"], environment)
    if answer.failure:
        remedy = (
            "is sge_qmaster running? It is looked for where "
            f"{root}/{environment.get('SGE_CELL', 'default')}/common/act_qmaster says"
        )
        yield Finding("grid_engine", "master", State.BROKEN, answer.failure, remedy)
        return
    yield Finding("grid_engine", "master", State.OK, f"answers ({command})")
    yield Finding("grid_engine", "queues", State.OK, _listed(answer.output.split()))
    try:
        rules = Words(environment).parallel_environments()
    except TryAgain as error:
        yield Finding(
            "grid_engine",
            "parallel environments",
            State.BROKEN,
            str(error),
            "is sge_qmaster being restarted? Try again in a minute",
        )
        return
    fit = settings_name("grid_engine.parallel_environment") or next(
        (name for name, rule in rules.items() if rule == PER_SLOT), ""
    )
    use = (
        f"; Cores(n) uses {fit}"
        if fit
        else f"; none has the allocation_rule {PER_SLOT}, which Cores(n) wants for n > 1"
    )
    listed = _listed(f"{name} ({rule})" for name, rule in rules.items())
    yield Finding("grid_engine", "parallel environments", State.OK, listed + use)


def settings_name(name: str) -> str:
    """Return a setting by its full name; empty when the settings cannot be read, which is told
    elsewhere.
    """
    try:
        return str(told()[name].value)
    except ConfigurationError:
        return ""


def _slurm(environment: Mapping[str, str]) -> Iterator[Finding]:
    path = environment.get("PATH")
    commands = {
        name: shutil.which(name, path=path)
        for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
    }
    missing = [name for name, found in commands.items() if not found]
    if len(missing) == len(commands):
        yield Finding(
            "slurm",
            "commands",
            State.ABSENT,
            "there is no sbatch in PATH",
            "load your site's module, where there is a Slurm",
        )
        return
    if missing:
        remedy = "install Slurm's commands (Debian: slurm-client), all of them"
        yield Finding(
            "slurm", "commands", State.BROKEN, f"not in PATH: {', '.join(missing)}", remedy
        )
        return
    version = _said(environment, "sbatch", "--version")
    yield Finding(
        "slurm",
        "commands",
        State.OK,
        ", ".join(filter(None, [commands["sbatch"], version.output.strip()])),
    )
    ping = _said(environment, "scontrol", "ping")
    words = "; ".join(filter(None, [*ping.output.splitlines(), ping.failure]))
    if ping.failure or " is UP" not in ping.output:
        remedy = (
            "is slurmctld running, and munged here? `scontrol ping` must say UP; slurm.conf "
            "must be where SLURM_CONF, or the site, says"
        )
        yield Finding("slurm", "controller", State.BROKEN, words, remedy)
        return
    yield Finding("slurm", "controller", State.OK, words)
    yield _partitions(_said(environment, "sinfo", "-h", "-o", "%P|%a|%D"))


def _said(environment: Mapping[str, str], *command: str) -> Answer:
    try:
        return Answer(Slurm(environment).run(*command, seconds=COMMAND_SECONDS))
    except (Missing, Trouble, Refused) as error:
        return Answer("", str(error))


def _partitions(answer: Answer) -> Finding:
    if answer.failure:
        return Finding(
            "slurm", "partitions", State.BROKEN, answer.failure, "look at what `sinfo` says"
        )
    found = parse_partitions(answer.output)
    words = _listed(
        f"{name} ({state}, {nodes} {'node' if nodes == '1' else 'nodes'})"
        for name, state, nodes in found
    )
    if any(state == "up" for _, state, _ in found):
        return Finding("slurm", "partitions", State.OK, words)
    return Finding(
        "slurm", "partitions", State.BROKEN, f"none is up: {words}", "ask whoever runs this Slurm"
    )


def parse_partitions(text: str) -> list[tuple[str, str, str]]:
    """Return name, state and number of nodes of each partition, from `sinfo -h -o '%P|%a|%D'`; the
    default one has a star.
    """
    return [
        (parts[0], parts[1], parts[2])
        for line in text.splitlines()
        if len(parts := line.strip().split("|")) == 3
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


_LOOKS: Mapping[str, Callable[[Mapping[str, str]], Iterator[Finding]]] = {
    "processes": _processes,
    "grid_engine": _grid_engine,
    "slurm": _slurm,
}


def run(
    command: list[str], environment: Mapping[str, str], seconds: float = COMMAND_SECONDS
) -> Answer:
    """Return what a command says within this time."""
    try:
        done = subprocess.run(
            command,
            env={**environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Answer("", f"{command[0]} gives no answer within {seconds:g} s")
    except OSError as error:
        return Answer("", f"{command[0]}: {error.strerror}")
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return Answer(output)
    words = " ".join((done.stderr.decode(errors="replace").strip() or output.strip()).split())
    return Answer(
        output if done.stderr else "", words or f"{command[0]} ended with status {done.returncode}"
    )


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

    from gridengine import schedulers
    from gridengine.api.map import starmap

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    began = time.monotonic()
    try:
        with getattr(schedulers, KINDS[name])(max_workers=1) as scheduler:
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
