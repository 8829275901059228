"""`Watched`: a connection to one dispatcher of this machine, for asking it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import FOLLOW, STATUS, Answer, Request
from gridengine.dispatcher.watch_server import peer_user
from gridengine.errors import ClusterError, GridEngineError
from gridengine.serialize.payload import Buffer
from gridengine.status.rows import FileFault

ANSWER_SECONDS = 5.0
"""Within which a dispatcher must answer. A suspended one does not."""
MOST_ANSWER = 64 * 1024 * 1024


FULL_BYTES = 1 << 20
"""A file system with less room than this counts as full."""


def full_folder(folder: str) -> Iterator[FileFault]:
    """Yield a fault if the folder of a run's logs is on a full file system. The watcher checks, not
    the dispatcher, which must not wait for a file server that hangs.
    """
    try:
        found = os.statvfs(folder)
    except OSError:  # there is no folder, or it is on another machine
        return
    room = found.f_bavail * found.f_frsize
    no_files = found.f_files and not found.f_favail
    if (found.f_blocks and room < FULL_BYTES) or no_files:
        words = "no more files can be made" if no_files else f"{room:,} bytes are free"
        loss = "workers' logs are lost, and no more workers may start"
        yield FileFault(folder, f"{os.strerror(errno.ENOSPC)}, {words}", loss)


def process_of(path: Path) -> int:
    """Return the process id in a socket's name."""
    return int(path.name.partition("-")[0])


class Watched(contextlib.AbstractContextManager["Watched"]):
    """A connection to one dispatcher. Use it in a `with`, or close it.

    Raises:
        OSError: no dispatcher, or another user's, is there.
        ClusterError: the dispatcher does not answer, or gives no proper answer.
    """

    run = ""
    """The named run, or the client, if the dispatcher was named only by that; else empty."""

    def __init__(self, path: Path, *, seconds: float = ANSWER_SECONDS) -> None:
        self.path = path
        self._title = f"the dispatcher of process {process_of(path)}"
        self._seconds = seconds
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(seconds)
        try:
            self._sock.connect(str(path))
            if peer_user(self._sock) != os.getuid():
                raise PermissionError(f"{path} is another user's")
            self._lines = self._sock.makefile("rb")
        except BaseException:
            self._sock.close()
            raise

    def ask(
        self, ask: str = STATUS, *, most: int = 100, words: Sequence[str] = (), first: int = 0
    ) -> Answer:
        """Return a dispatcher's answer. A cancellation concerns only the run by which the
        dispatcher was named.

        Raises:
            ClusterError: the dispatcher does not answer, has ended, or refuses.
        """
        self._send(Request(ask, most, words, first, run=self.run))
        return self.next_answer()

    def follow(self, *, most: int = 100, words: Sequence[str] = (), interval: float = 1.0) -> None:
        """Let the dispatcher send its status, at once and then each `interval` seconds, with the
        events since. `next_answer` returns them. This replaces an earlier `follow`.

        Raises:
            ClusterError: the dispatcher does not answer, or has ended.
        """
        self._sock.settimeout(self._seconds + interval)
        self._send(Request(FOLLOW, most, words, interval=interval))

    def next_answer(self) -> Answer:
        """Wait for the next answer, and return it.

        Raises:
            ClusterError: no answer comes in time, or the dispatcher has ended, or refuses.
        """
        with self._faults():
            line = self._lines.readline(MOST_ANSWER)
        if not line.endswith(b"\n"):
            raise self._fault("it has ended")
        return self._read(line)

    def _send(self, request: Request) -> None:
        with self._faults():
            self._sock.sendall(msgspec.json.encode(request) + b"\n")

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._fault("it has ended") from error
        except (OSError, GridEngineError) as error:
            raise self._fault("it does not answer", error) from error

    def _read(self, line: Buffer) -> Answer:
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.DecodeError as error:
            raise self._fault("its answer is not understood", error) from error
        if answer.error:
            raise self._fault(f"it refuses: {answer.error}")
        faults = [*answer.status.faults, *full_folder(answer.identity.folder)]
        return replace(answer, status=replace(answer.status, faults=faults)) if faults else answer

    def _fault(self, words: str, cause: Exception | None = None) -> ClusterError:
        reason = f": {cause}" if cause is not None and str(cause) else ""
        return ClusterError(
            f"{self._title} cannot be watched: {words}{reason}",
            hint="is it stopped (Ctrl-Z, or a debugger), busy, or of another version?",
        )

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._sock.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()
