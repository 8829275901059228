"""The DRMAA process: one session; requests and answers over a stream socket at descriptor 0.

A DRMAA library allows one session in a process, is not thread-safe, must be loaded when the process
starts, and can crash or block its host. So it has a process of its own. This one outlives the
user's process only to clean up: when the socket closes or the parent is gone, it deletes its
remaining cluster tasks, except those to keep, and the files to remove. The package `drmaa` loads
the library when it is imported, which only functions of this process do.

A message is four bytes of length (big endian) and JSON. A request is `[number, operation,
arguments]`, with a method of `DrmaaServer` as the operation. An answer is `[number, result,
failure, remaining]`: a failure is null or `{"kind", "words"}`, the kind being the name of the
exception in the `drmaa` package; `remaining` is how many cluster tasks are still to be deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeAlias

from gridengine.schedulers.cleanup_process import CLEAN_SECONDS, PARENT_SECONDS, RETRY_SECONDS

HEADER_BYTES = 4


def write_message(channel: socket.socket, message: Any) -> None:
    """Write a message; raise an OSError if the other end is gone or does not read in time."""
    content = json.dumps(message).encode()
    channel.sendall(len(content).to_bytes(HEADER_BYTES, "big") + content)


def read_size(channel: socket.socket, until: float = math.inf) -> int:
    """Return the size of the next message; raise an OSError if none comes before this monotonic
    time.
    """
    return int.from_bytes(_read(channel, HEADER_BYTES, until), "big")


def read_content(channel: socket.socket, size: int, until: float = math.inf) -> Any:
    """Return the next message of this size; raise an OSError or ValueError if it is broken."""
    return json.loads(_read(channel, size, until))


def _read(channel: socket.socket, size: int, until: float) -> bytes:
    block = bytearray()
    while len(block) < size:
        if until < math.inf:
            channel.settimeout(max(0.01, until - time.monotonic()))
        piece = channel.recv(size - len(block))
        if not piece:
            raise ConnectionResetError
        block += piece
    return bytes(block)


NO_RUSAGE = 24
"""The library's number for "there is no record of usage"."""


def library_names(session: Any) -> dict[str, str]:
    """Return the library's names for the batch system and itself, without a session (GFD.22)."""
    return {"system": str(session.drmsInfo), "implementation": str(session.drmaaImplementation)}


def exit_information(job: str) -> dict[str, Any] | None:
    """Return how a job ended, None if that is not known yet. The answer is given once: the session
    then forgets the job.

    The library itself is called: the package's own `wait` fails without a record of usage. Its `c`
    calls a function of the library, and raises the package's errors.
    """
    from drmaa import errors, wrappers
    from drmaa.helpers import adapt_rusage, c

    status = ctypes.c_int()
    usage = ctypes.pointer(ctypes.POINTER(wrappers.drmaa_attr_values_t)())
    name = ctypes.create_string_buffer(1024)
    try:
        where = name, ctypes.sizeof(name), ctypes.byref(status)
        c(wrappers.drmaa_wait, job.encode(), *where, 0, usage)
    except errors.ExitTimeoutException:
        return None
    except errors.InvalidJobException as error:
        return {"words": str(error)}
    except Exception as error:
        if not str(error).startswith(f"code {NO_RUSAGE}:"):
            raise
        return {"aborted": True, "usage": {}}
    return {**_decoded(status), "usage": adapt_rusage(usage.contents)}


def run_bulk(job: Any, count: int) -> list[str]:
    """Submit an array job of `count` tasks; return their ids, in order.

    The package's own function, if refused, frees a list of ids that it never got.
    """
    from drmaa import wrappers
    from drmaa.helpers import c

    ids = ctypes.pointer(ctypes.POINTER(wrappers.drmaa_job_ids_t)())
    c(wrappers.drmaa_run_bulk_jobs, ids, job, 1, count, 1)
    name = ctypes.create_string_buffer(1024)
    found = []
    # At the list's end, the package raises StopIteration.
    with contextlib.suppress(StopIteration):
        for _ in range(count):
            wrappers.drmaa_get_next_job_id(ids.contents, name, ctypes.sizeof(name))
            found.append(name.value.decode())
    wrappers.drmaa_release_job_ids(ids.contents)
    return found


def _decoded(status: ctypes.c_int) -> dict[str, Any]:
    from drmaa import wrappers
    from drmaa.helpers import c

    def flag(function: Any) -> int:
        answer = ctypes.c_int()
        c(function, ctypes.byref(answer), status)
        return answer.value

    if flag(wrappers.drmaa_wifaborted):
        return {"aborted": True}
    if flag(wrappers.drmaa_wifexited):
        return {"status": flag(wrappers.drmaa_wexitstatus)}
    if flag(wrappers.drmaa_wifsignaled):
        name = ctypes.create_string_buffer(64)
        c(wrappers.drmaa_wtermsig, name, ctypes.sizeof(name), status)
        return {"signal": name.value.decode()}
    return {}


Json: TypeAlias = Any

ENDED = ("done", "failed")
"""DRMAA's states of jobs that have ended (GFD.22)."""


class Leave(Exception):
    """The parent is gone, or this process must end."""


class DrmaaServer:
    """The session, and its cluster tasks that have not ended."""

    def __init__(self, drmaa: Any, contact: str) -> None:
        self._drmaa = drmaa
        self._session = drmaa.Session
        self._session.initialize(contact or None)
        self._unanswered = (
            drmaa.errors.DrmCommunicationException,
            drmaa.errors.TryLaterException,
            drmaa.errors.NoActiveSessionException,
        )
        """Errors that mean that the batch system does not answer."""
        self._submitted: set[str] = set()
        self._to_delete: dict[str, float] = {}
        """The cluster tasks to delete, and when to try next; the earliest come first."""
        self._paused_until = 0.0
        self._files: list[str] = []
        self._kept: set[str] = set()

    def hello(self) -> Json:
        """Return the name of this DRMAA session, and the DRMAA library's own name and system."""
        return {"contact": str(self._session.contact), **library_names(self._session)}

    def adopt(
        self, jobs: list[str], unwanted: list[str], files: list[str], kept: Sequence[str] = ()
    ) -> None:
        """Take over the state of an earlier DRMAA process: its cluster tasks, those to delete, the
        files to remove at the end, and the tasks to keep then.
        """
        self.keep(kept)
        self._submitted.update(jobs)
        self.terminate(unwanted)
        self.guard(files)

    def keep(self, jobs: Sequence[str]) -> None:
        """Let exactly these cluster tasks stay when the parent is gone: another process adopts
        them.
        """
        self._kept = set(jobs)

    def guard(self, files: list[str]) -> None:
        """Remember that exactly these files are to be removed at the end."""
        self._files = files

    def submit(self, template: dict[str, Any], count: int) -> list[str]:
        """Submit an array job of `count` tasks; return their ids, in order."""
        with self._session.createJobTemplate() as job:
            for name, value in template.items():
                setattr(job, name, value)
            ids = run_bulk(job, count)
        self._submitted.update(ids)
        return ids

    def probe(self) -> None:
        """Submit a job on hold, and delete it: nothing else tells whether this user may submit."""
        ids = self.submit(
            {
                "remoteCommand": "/bin/true",
                "jobSubmissionState": self._drmaa.JobSubmissionState.HOLD_STATE,
            },
            1,
        )
        self.terminate(ids)

    def status(self, jobs: list[str], seconds: float) -> Json:
        """Return `{id: [state, how it ended]}` of the jobs that can be asked about in this time."""
        until = time.monotonic() + seconds
        states: dict[str, Json] = {}
        for job in jobs:
            if states and time.monotonic() > until:
                break
            try:
                states[job] = self._state(job)
            except self._unanswered:
                if not states:
                    raise
                break
            except self._drmaa.errors.DrmaaException as error:
                print(f"cannot learn how cluster task {job} is: {error}", file=sys.stderr)
                states[job] = ["undetermined", None]  # the others can be asked all the same
        return states

    def _state(self, job: str) -> Json:
        try:
            state = self._session.jobStatus(job)
        except self._drmaa.errors.InvalidJobException as error:
            self._submitted.discard(job)
            return ["unknown", {"words": str(error)}]
        if state not in ENDED:
            return [state, None]
        end = exit_information(job)
        if end is not None:
            self._submitted.discard(job)
        return [state, end]

    def terminate(self, jobs: list[str]) -> None:
        """Delete these cluster tasks: all at once if the session has no others, else one by one
        while idle.

        One by one, a thousand take Grid Engine some seconds. Other libraries stop at the first task
        that has ended; then the rest is deleted one by one too.
        """
        self._to_delete.update(dict.fromkeys((job for job in jobs if job in self._submitted), 0.0))
        if self._to_delete and not self._kept and self._to_delete.keys() >= self._submitted:
            try:
                self._control(self._session.JOB_IDS_SESSION_ALL)
            except self._unanswered as error:
                self._pause(error)
            except self._drmaa.errors.DrmaaException as error:
                print(f"cannot delete all cluster tasks at once: {error}", file=sys.stderr)
            else:
                self._submitted.clear()
                self._to_delete.clear()

    @property
    def remaining(self) -> int:
        """How many cluster tasks are still to be deleted."""
        return len(self._to_delete)

    def sweep(self) -> bool:
        """Try to delete one cluster task; return whether one was due and the system answers."""
        now = time.monotonic()
        job, due = next(iter(self._to_delete.items()), ("", math.inf))
        if now < max(due, self._paused_until):
            return False
        del self._to_delete[job]
        try:
            problem = self._deleted(job)
        except self._unanswered as error:
            self._to_delete[job] = 0.0
            self._pause(error)
            return False
        if problem:
            print(f"cannot delete cluster task {job}: {problem}", file=sys.stderr)
            self._to_delete[job] = now + RETRY_SECONDS
        else:
            self._submitted.discard(job)
        return True

    def _deleted(self, job: str) -> str:
        """Delete a cluster task; return why it is still there, or nothing. Not all libraries
        report a task that has ended as such.

        Raises:
            DrmaaException: the batch system does not answer.
        """
        errors = self._drmaa.errors
        try:
            self._control(job)
        except self._unanswered:
            raise
        except errors.DrmaaException as error:
            try:
                return "" if self._session.jobStatus(job) in ENDED else str(error)
            except errors.InvalidJobException:
                return ""
            except self._unanswered:
                raise
            except errors.DrmaaException:
                return str(error)
        return ""

    def _pause(self, error: Exception) -> None:
        print(f"cannot delete cluster tasks: {error}", file=sys.stderr)
        self._paused_until = time.monotonic() + RETRY_SECONDS

    def _control(self, job: str) -> None:
        with contextlib.suppress(self._drmaa.errors.InvalidJobException):
            self._session.control(job, self._drmaa.JobControlAction.TERMINATE)

    def clean(self) -> None:
        """Remove the files, and delete the remaining cluster tasks, for at most a minute."""
        for file in self._files:
            with contextlib.suppress(OSError):
                Path(file).unlink()
        until = time.monotonic() + CLEAN_SECONDS
        while (left := self._submitted - self._kept) and time.monotonic() < until:
            self.terminate(list(left))
            while self.sweep():
                continue
            if self._submitted - self._kept:
                time.sleep(RETRY_SECONDS)

    def exit(self) -> None:
        with contextlib.suppress(self._drmaa.errors.DrmaaException):
            self._session.exit()


def _tell_names() -> int:
    """Write the library's names to standard output as JSON, or the reason why there are none."""
    try:
        import drmaa

        names = library_names(drmaa.Session)
    except Exception as error:
        names = failure(error)
    print(json.dumps(names), flush=True)
    return 0


def serve(server: DrmaaServer, channel: socket.socket, parent: int) -> None:
    """Answer requests until Leave or an OSError says that the parent has gone."""
    while True:
        _wait(server, channel, parent)
        number, operation, arguments = read_content(channel, read_size(channel))
        try:
            result, problem = getattr(server, operation)(**arguments), None
        except Leave:
            raise
        except Exception as error:
            result, problem = None, failure(error)
        write_message(channel, [number, result, problem, server.remaining])


def _wait(server: DrmaaServer, channel: socket.socket, parent: int) -> None:
    """Wait for a request; meanwhile delete cluster tasks."""
    while not select.select([channel], [], [], 0 if server.sweep() else PARENT_SECONDS)[0]:
        if os.getppid() != parent:
            raise Leave


def failure(error: BaseException) -> Json:
    """Return an exception as a failure, without the number that the package puts first."""
    words = str(error).strip()
    if words.startswith("code "):
        words = words.partition(": ")[2]
    return {"kind": type(error).__name__, "words": words or repr(error)}


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise Leave


def main(arguments: Sequence[str]) -> int:
    """Open the session, tell the parent, serve, clean up; or only write the library's names."""
    if arguments[0] == "names":
        return _tell_names()
    parent, contact = int(arguments[0]), arguments[1]
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGTERM, _leave)
    # Grid Engine (qsub -notify) sends it to all processes of a job; the parent decides what ends.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the caller may have blocked it
    try:
        import drmaa

        server = DrmaaServer(drmaa, contact)
    except Exception as error:
        with contextlib.suppress(OSError):
            write_message(channel, [0, None, failure(error), 0])
        return 1
    try:
        write_message(channel, [0, server.hello(), None, 0])
        serve(server, channel, parent)
    except (Leave, OSError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.clean()
    server.exit()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
