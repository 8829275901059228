"""The user's side of the DRMAA process (`drmaa_process`): starts the process, sends requests to it,
and starts it again if it dies.

DRMAA allows one session in a process. All schedulers of a process that use the same library
therefore share a `DrmaaSession`. It remembers the cluster tasks of the session, those to delete,
those to keep and the files to remove, so that a new DRMAA process can adopt them all.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gridengine.schedulers.command import run_command
from gridengine.schedulers.detect import library_paths, why_no_grid_engine
from gridengine.schedulers.grid_engine.drmaa_process import read_content, read_size, write_message
from gridengine.schedulers.launcher import BatchSystemRefusal, Unavailable, Unreachable
from gridengine.schedulers.worker_command import hiding_flags, python_command, python_path
from gridengine.wire.channel import socket_pair

logger = logging.getLogger("gridengine")

START_SECONDS = 30.0
REQUEST_SECONDS = 20.0
UNGUARD_SECONDS = 1.0
CLOSE_SECONDS = 5.0
STATIC_TLS = "glibc.rtld.optional_static_tls"
"""Without it Grid Engine's library does not load: "cannot allocate memory in static TLS block"."""

UNREACHABLE = frozenset({"DrmCommunicationException", "NoActiveSessionException"})
FOR_NOW = frozenset({"TryLaterException", "OutOfMemoryException"})
"""Exceptions that blame no request; Grid Engine has the second for limits on numbers of jobs."""
LIMITS = re.compile(
    r"\b(per user|per cluster|too many jobs|jobs? limit|try (again|later)|temporar\w+)\b",
    re.IGNORECASE,
)
"""How batch systems that only say "denied" name a limit that others' jobs, or ours, use up."""
GRID_ENGINE, SLURM = "gridengine", "slurm"
GRID_ENGINES = re.compile(r"grid ?engine|\b(s|so|u|o|a)?ge\b|\b[og]cs\b", re.IGNORECASE)
"""The names that Grid Engines give themselves: "SGE 8.1.9", "UGE 8.6.7", "OGS/GE 2011.11"."""


@dataclass(frozen=True, slots=True)
class System:
    """A batch system and its DRMAA library, by the names that the library gives. `kind` says in
    whose words requests are written: "gridengine", "slurm", or the first word of another name.
    """

    name: str
    implementation: str
    kind: str

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.implementation})"
            if self.implementation not in ("", self.name)
            else self.name
        )


GRID_ENGINE_UNNAMED = System("Grid Engine", "", GRID_ENGINE)
"""The system while no library has given a name."""


def system_of(name: str, implementation: str) -> System:
    """Return the batch system with these names of the library's (`drmaa_get_DRM_system`, ...)."""
    if "slurm" in f"{name} {implementation}".lower():
        return System(name, implementation, SLURM)
    if GRID_ENGINES.search(name or implementation):
        return System(name, implementation, GRID_ENGINE)
    first = re.match(r"\w+", name)
    return System(
        name or "a system without a name", implementation, first[0].lower() if first else ""
    )


class DrmaaRefused(BatchSystemRefusal):
    """The batch system refuses; the text has its own words, `kind` is the name of DRMAA's error."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind

    @property
    def for_now(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in FOR_NOW or (
            self.kind == "DeniedByDrmException" and LIMITS.search(str(self)) is not None
        )


def drmaa_environment(environment: Mapping[str, str], library: str) -> dict[str, str]:
    """Return the environment in which the library loads."""
    tunables = environment.get("GLIBC_TUNABLES", "")
    if STATIC_TLS not in tunables:
        tunables = ":".join(filter(None, [tunables, f"{STATIC_TLS}=8192"]))
    path = python_path(environment.get("PYTHONPATH", ""))
    return {
        **environment,
        "DRMAA_LIBRARY_PATH": library,
        "GLIBC_TUNABLES": tunables,
        "PYTHONPATH": path,
    }


def _command(*arguments: str) -> list[str]:
    module = "gridengine.schedulers.grid_engine.drmaa_process"
    return python_command(sys.executable, hiding_flags(), module, *arguments)


def named_system(library: str, environment: Mapping[str, str]) -> System:
    """Return the batch system that a library speaks to. No session is opened, and the system need
    not answer.

    Raises:
        Unavailable: the library does not load, or gives no name.
    """
    try:
        done = run_command(
            _command("names"), drmaa_environment(environment, library), START_SECONDS
        )
        names = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"{library} does not say within {START_SECONDS:g} s which batch system it speaks to"
        ) from error
    except (IndexError, ValueError) as error:
        raise Unavailable(
            f"{library}: "
            f"{done.stderr[-2000:].decode(errors='replace').strip() or 'it ended its process'}"
        ) from error
    if "words" in names:
        raise Unavailable(f"{library}: {names['words']}")
    return system_of(names["system"], names["implementation"])


class DrmaaProcess:
    """One DRMAA process."""

    def __init__(self, library: str = "", contact: str = "") -> None:
        libraries = library_paths(os.environ, library)
        if not libraries:
            raise Unavailable(why_no_grid_engine(os.environ))
        ours, theirs = socket_pair()
        self._socket = ours
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            self._process = subprocess.Popen(
                _command(str(os.getpid()), contact),
                stdin=theirs.fileno(),
                stdout=self._errors,
                stderr=self._errors,
                env=drmaa_environment(os.environ, libraries[0]),
                start_new_session=True,
            )
        self._number = 0
        self.late_jobs: list[str] = []
        """Cluster tasks of submissions whose answer came too late."""
        self.remaining = 0
        """How many cluster tasks are still to be deleted."""
        try:
            hello = self._receive(0, time.monotonic() + START_SECONDS)
        except (Unreachable, DrmaaRefused, RuntimeError) as error:
            self.close()
            raise Unavailable(f"no session was opened ({libraries[0]}): {error}") from error
        self.contact: str = hello["contact"]
        self.system = system_of(hello["system"], hello["implementation"])
        logger.info("the DRMAA library %s speaks to %s", libraries[0], self.system)

    def ask(self, operation: str, seconds: float, arguments: Mapping[str, Any]) -> Any:
        """Return the answer to a request.

        Raises:
            Unreachable: no answer came in this time, or the batch system does not answer.
            DrmaaRefused: the answer is no.
        """
        self._number += 1
        self._socket.settimeout(seconds)
        try:
            write_message(self._socket, [self._number, operation, arguments])
        except OSError as error:
            raise Unreachable(self._silence(error)) from error
        return self._receive(self._number, time.monotonic() + seconds)

    def _receive(self, number: int, until: float) -> Any:
        while True:
            answered, result, failure, self.remaining = self._answer(until)
            if answered == number:
                break
            if isinstance(result, list):
                self.late_jobs += result
        if failure is None:
            return result
        if failure["kind"] in UNREACHABLE:
            raise Unreachable(failure["words"])
        if not failure["kind"].endswith("Exception"):
            raise RuntimeError(
                f"the process that speaks DRMAA failed: {failure['kind']}: {failure['words']}"
            )
        raise DrmaaRefused(failure["kind"], failure["words"])

    def _answer(self, until: float) -> Any:
        try:
            size = read_size(self._socket, until)
        except OSError as error:
            raise Unreachable(self._silence(error)) from error
        try:
            return read_content(self._socket, size, time.monotonic() + REQUEST_SECONDS)
        except (OSError, ValueError) as error:
            # After half an answer no further answer could be read.
            self._process.kill()
            raise Unreachable("the process that speaks DRMAA broke off in an answer") from error

    def _silence(self, error: OSError) -> str:
        """Return why no answer comes: the last output of the process, if it has ended."""
        if isinstance(error, TimeoutError):
            return "the batch system does not answer"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors.seek(0)
        said = self._errors.read()[-2000:].decode(errors="replace").strip()
        return said or f"the process that speaks DRMAA ended with status {self._process.poll()}"

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Let the process delete its remaining cluster tasks, and end."""
        self._socket.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            # Not killed: it retries to delete cluster tasks that nobody else knows.
            logger.warning(
                "process %d still tries to delete this session's cluster tasks", self._process.pid
            )
        self._errors.close()


class DrmaaSession:
    """One DRMAA session, in a process that starts at the first request, and again if it died.

    Args:
        library: the path of the DRMAA library (default: the one that is found).
    """

    def __init__(self, library: str = "") -> None:
        self._library = library
        self._lock = threading.Lock()
        self._users = 0
        self._running: DrmaaProcess | None = None
        self.contact = ""
        """The name by which a later process opens the session again; empty while there is none."""
        self._jobs: set[str] = set()
        self._files: set[str] = set()
        self._to_delete: set[str] = set()
        self._kept: set[str] = set()

    def take_over(self, contact: str, jobs: Iterable[str]) -> None:
        """Take over the session of this name, with the tasks of an earlier process. Must be called
        first of all.
        """
        with self._lock:
            self.contact = contact
            self._jobs.update(jobs)

    def keep(self, jobs: Collection[str], others: Collection[str]) -> None:
        """Let these cluster tasks, and no others, stay when this process is gone."""
        with self._lock:
            self._kept.difference_update(others)
            self._kept.update(jobs)
            self._ask("keep", jobs=sorted(self._kept))

    def __enter__(self) -> DrmaaSession:
        with self._lock:
            self._users += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._running is not None:
                self._running.close()
                self._running, self.contact = None, ""

    def start(self) -> System:
        """Start the DRMAA process if it does not run; return the batch system.

        Raises:
            Unavailable: there is no DRMAA here, or it opens no session.
        """
        with self._lock:
            return self._started().system

    def submit(self, template: Mapping[str, Any], count: int) -> list[str]:
        """Submit an array job; return the ids of its tasks, in order."""
        with self._lock:
            ids: list[str] = self._ask("submit", template=template, count=count)
            self._jobs.update(ids)
        return ids

    def probe(self) -> None:
        """Raise the error that a submission by this user would get, if any."""
        with self._lock:
            self._ask("probe")

    def status(
        self, jobs: Sequence[str], seconds: float
    ) -> dict[str, tuple[str, dict[str, Any] | None]]:
        """Return the DRMAA states of as many tasks as can be asked for in this time, and how each
        ended, once known.
        """
        with self._lock:
            found = self._ask("status", jobs=list(jobs), seconds=seconds)
            self._jobs.difference_update(job for job, (_, end) in found.items() if end is not None)
        return {job: (state, end) for job, (state, end) in found.items()}

    def terminate(self, jobs: Sequence[str]) -> None:
        """Have these cluster tasks deleted soon, by the next DRMAA process if this one dies."""
        with self._lock:
            self._to_delete.update(jobs)
            self._ask("terminate", jobs=list(jobs))

    def guard(self, files: Sequence[Path]) -> None:
        """Remember files that must be removed when this process is gone."""
        with self._lock:
            self._ask("guard", files=sorted(self._files.union(map(str, files))))
            self._files.update(map(str, files))

    def unguard(self, files: Sequence[Path]) -> None:
        """Forget guarded files: they stay when this process is gone."""
        with self._lock:
            self._files.difference_update(map(str, files))
            self._ask("guard", UNGUARD_SECONDS, files=sorted(self._files))

    def _ask(self, operation: str, within: float = REQUEST_SECONDS, **arguments: Any) -> Any:
        process = self._started()
        answer = process.ask(operation, within, arguments)
        if process.late_jobs:
            late, process.late_jobs = process.late_jobs, []
            self._to_delete.update(late)
            process.ask("terminate", within, {"jobs": late})
        if not process.remaining:
            self._jobs.difference_update(self._to_delete)
            self._to_delete.clear()
        return answer

    def _started(self) -> DrmaaProcess:
        """Return the DRMAA process; if it died, a new one that takes over the session."""
        if self._running is not None and self._running.is_running:
            return self._running
        if self._running is not None:
            logger.warning("the process that speaks DRMAA died; starting another")
            self._running.close()
            self._running = None
        process = self._restarted() if self.contact else DrmaaProcess(self._library)
        self._running, self.contact = process, process.contact
        process.ask(
            "adopt",
            REQUEST_SECONDS,
            {
                "jobs": sorted(self._jobs),
                "unwanted": sorted(self._to_delete),
                "files": sorted(self._files),
                "kept": sorted(self._kept),
            },
        )
        return process

    def _restarted(self) -> DrmaaProcess:
        try:
            return DrmaaProcess(self._library, self.contact)
        except Unavailable as error:
            logger.info("the last session cannot be taken up again: %s", error)
        try:
            return DrmaaProcess(self._library)
        except Unavailable as error:
            raise Unreachable(str(error)) from error


def shared_session(library: str = "") -> DrmaaSession:
    """Return this process's session with a library; a fork must not use its parent's socket."""
    return _session_of(os.getpid(), library)


@functools.cache
def _session_of(pid: int, library: str) -> DrmaaSession:
    return DrmaaSession(library)
