"""Find this user's dispatchers on this machine, connect to them, and ask them."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.dispatcher.run_directory import WATCHER
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, DispatcherState
from gridengine.dispatcher.watch_messages import FOLLOW, STATUS, WatchAnswer, WatchRequest
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError
from gridengine.serialize.payload import Buffer
from gridengine.settings.values import settings
from gridengine.status.rows import FileFault
from gridengine.system import peer_user
from gridengine.threads import Closing
from gridengine.wire.connection_file import (
    SOCKET,
    blocked_runtime_folder,
    is_private,
    runtime_folders,
)
from gridengine.wire.messages.common import VERSION

ANSWER_SECONDS = 5.0
"""How long a dispatcher has for an answer. A suspended one never answers."""
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


class DispatcherEnded(ClusterError):
    """A dispatcher that was watched has ended."""


def process_of(path: Path) -> int:
    """Return the process id in a socket's name."""
    return int(path.name.partition("-")[0])


class Watched(Closing):
    """A connection to one dispatcher. Use it in a `with`, or close it.

    Raises:
        OSError: no dispatcher, or another user's, is there.
        ClusterError: the dispatcher does not answer, or gives no proper answer.
    """

    run = ""
    """The named run or client by which the user named the dispatcher; else empty."""

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
    ) -> WatchAnswer:
        """Return the dispatcher's answer. A request to cancel concerns only the calls of `run`, if
        there is one.

        Raises:
            ClusterError: the dispatcher does not answer, has ended, or refuses.
        """
        self._send(WatchRequest(ask, most, words, first, run=self.run))
        return self.next_answer()

    def follow(self, *, most: int = 100, words: Sequence[str] = (), interval: float = 1.0) -> None:
        """Let the dispatcher send its status, at once and then each `interval` seconds, with the
        events since. `next_answer` returns them. This replaces an earlier `follow`.

        Raises:
            ClusterError: the dispatcher does not answer, or has ended.
        """
        self._sock.settimeout(self._seconds + interval)
        self._send(WatchRequest(FOLLOW, most, words, interval=interval))

    def next_answer(self) -> WatchAnswer:
        """Wait for the next answer, and return it.

        Raises:
            ClusterError: no answer comes in time, or the dispatcher has ended, or refuses.
        """
        with self._faults():
            line = self._lines.readline(MOST_ANSWER)
        if not line.endswith(b"\n"):
            raise self._ended()
        return self._read(line)

    def _send(self, request: WatchRequest) -> None:
        with self._faults():
            self._sock.sendall(msgspec.json.encode(request) + b"\n")

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._ended() from error
        except (OSError, GridEngineError) as error:
            raise self._fault("it does not answer", error) from error

    def _read(self, line: Buffer) -> WatchAnswer:
        try:
            answer = msgspec.json.decode(line, type=WatchAnswer)
        except msgspec.DecodeError as error:
            words = _other_version(line) or "its answer is not understood"
            raise self._fault(words, error) from error
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

    def _ended(self) -> DispatcherEnded:
        return DispatcherEnded(f"{self._title} has ended")

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._lines.close()
        self._sock.close()


def _other_version(line: Buffer) -> str:
    """Return which version gave an answer, if it speaks another protocol; else an empty text."""
    try:
        told = msgspec.json.decode(line)["identity"]
        version, protocol = told["version"], told["protocol"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
    ours = f"this gridengine, {__version__}, speaks {VERSION}"
    return "" if protocol == VERSION else f"gridengine {version} speaks {protocol}, and {ours}"


def sockets() -> list[Path]:
    """Return the sockets of this user's dispatchers on this machine, killed ones included."""
    return runtime_files(SOCKET)


def runtime_files(end: str) -> list[Path]:
    """Return the files of this user's dispatchers on this machine whose names have this suffix."""
    found = []
    for folder in runtime_folders(os.environ, settings().watch_directory):
        if is_private(folder):
            with contextlib.suppress(OSError):  # the folder has just been removed
                found += [one for one in folder.iterdir() if one.name.endswith(end)]
    return found


def why_blocked() -> str:
    """Return what keeps dispatchers here from making their sockets' folder; empty if nothing."""
    return blocked_runtime_folder(os.environ, settings().watch_directory)


def ask_all(
    ask: Callable[[Watched], WatchAnswer] = lambda one: one.ask(most=0),
    *,
    seconds: float = ANSWER_SECONDS,
) -> tuple[list[tuple[Path, WatchAnswer]], list[tuple[Path, ClusterError]]]:
    """Return the socket and the answer of each running dispatcher, and the socket and the error of
    each that does not answer within these seconds. Remove the sockets of killed ones.
    """
    found: list[tuple[Path, WatchAnswer]] = []
    silent: list[tuple[Path, ClusterError]] = []
    for path in sockets():
        try:
            with Watched(path, seconds=seconds) as one:
                found.append((path, ask(one)))
        except ClusterError as error:
            silent.append((path, error))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:  # the dispatcher has just ended
            continue
    return found, silent


def answers(seconds: float = ANSWER_SECONDS) -> tuple[list[WatchAnswer], list[str]]:
    """Return the answers of all running dispatchers, beginning with the latest dispatcher; and the
    errors of those that do not answer.
    """
    found, silent = ask_all(seconds=seconds)
    answers = sorted((answer for _, answer in found), key=lambda one: -one.identity.since)
    return answers, [error.message for _, error in silent]


def standalone_folders() -> list[DispatcherFolder]:
    """Return the folders of all stand-alone dispatchers, on any machine."""
    try:
        return DispatcherFolder.all()
    except (OSError, ConfigurationError):  # there is no run directory
        return []


def is_watched_elsewhere(folder: DispatcherFolder) -> bool:
    """Return whether a stand-alone dispatcher runs and has its key for watchers."""
    return (folder.path / WATCHER).exists() and folder.state() is DispatcherState.RUNNING
