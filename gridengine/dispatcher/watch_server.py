"""The Unix socket at which others of the same user watch a dispatcher: one line is asked, one is
answered; who asks to follow is sent more. It is served by the I/O thread, which never waits for who
watches.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gridengine.dispatcher.watch_streams import STUCK_SECONDS, Told
from gridengine.wire.runtime_folder import SOCKET, make_runtime_folder
from gridengine.worker.poller import Poller

log = logging.getLogger("gridengine")

MOST_WATCHERS = 32
MOST_REQUEST = 16 * 1024
_CREDENTIALS = struct.Struct("3i")


class Watcher:
    """One connection, which may follow. What was asked while an answer is not read is not looked
    at.
    """

    def __init__(self, sock: socket.socket, server: WatchServer) -> None:
        self.sock = sock
        self.asked = bytearray()
        self.left: memoryview = memoryview(b"")
        self.stuck_at = 0.0
        self._server = server

    def tell(self, told: Told) -> bool:
        if self.left:
            return False
        self._server.send(self, told.line)
        return True

    def drop(self) -> None:
        self._server.drop(self)

    end = drop


class WatchServer:
    """Answers those who watch. All methods are for one thread.

    Args:
        path: where the socket is made.
        answer: returns the answer to a line that this watcher has asked.
        forget: is called when one that may follow is gone.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(
        self,
        path: Path,
        answer: Callable[[bytes, Watcher], bytes],
        forget: Callable[[Watcher], object],
    ) -> None:
        self.path = path
        self._answer, self._forget = answer, forget
        self._watchers: dict[int, Watcher] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        try:
            # Who found one that does not listen yet would take it for left, and remove it.
            hidden = path.with_suffix(".new")
            self._listener.bind(str(hidden))
            hidden.chmod(0o600)
            self._listener.listen(MOST_WATCHERS)
            hidden.rename(path)
        except OSError:
            self._listener.close()
            raise
        self._poller = Poller()
        self._poller.register(self._listener.fileno(), self._accept)
        self.fd = self._poller.fileno()
        """Polls as readable when `serve` has something to do."""
        self.serve = self._poller.poll

    def close(self) -> None:
        """Let all go, and remove the socket."""
        for watcher in list(self._watchers.values()):
            self.drop(watcher)
        self._poller.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # who asked has gone, or too many files are open
            return
        now = time.monotonic()
        for watcher in list(self._watchers.values()):
            if watcher.left and now > watcher.stuck_at:
                self.drop(watcher)
        if len(self._watchers) >= MOST_WATCHERS or peer_user(sock) != os.getuid():
            sock.close()
            return
        sock.setblocking(False)
        watcher = self._watchers[sock.fileno()] = Watcher(sock, self)
        self._poller.register(sock.fileno(), partial(self._ready, watcher))

    def _ready(self, watcher: Watcher) -> None:
        try:
            if watcher.left:
                self._write(watcher)
            elif not self._read(watcher):
                self.drop(watcher)
        except Exception as error:  # no call is to suffer from it
            log.debug("who watches is dropped: %s", error)
            self.drop(watcher)

    def _read(self, watcher: Watcher) -> bool:
        """Read what is asked, and answer; return whether there is more to come."""
        piece = watcher.sock.recv(MOST_REQUEST)
        watcher.asked += piece
        while not watcher.left:
            line, found, rest = watcher.asked.partition(b"\n")
            if not found:
                break
            watcher.asked = rest
            self.send(watcher, self._answer(bytes(line), watcher))
        return bool(piece) and len(watcher.asked) <= MOST_REQUEST

    def send(self, watcher: Watcher, line: bytes) -> None:
        """Send a line to one that has read all before."""
        watcher.left = memoryview(line + b"\n")
        watcher.stuck_at = time.monotonic() + STUCK_SECONDS
        self._write(watcher)

    def _write(self, watcher: Watcher) -> None:
        if time.monotonic() > watcher.stuck_at:
            raise TimeoutError("an answer was not read")
        with contextlib.suppress(BlockingIOError):
            watcher.left = watcher.left[watcher.sock.send(watcher.left) :]
        self._poller.poll_writable(watcher.sock.fileno(), bool(watcher.left))

    def drop(self, watcher: Watcher) -> None:
        """Let one go. May be called twice."""
        if self._watchers.pop(watcher.sock.fileno(), None) is not None:
            self._poller.unregister(watcher.sock.fileno())
            watcher.sock.close()
            self._forget(watcher)


def peer_user(sock: socket.socket) -> int:
    """Return whose process is at the other end of a Unix socket (unix(7), SO_PEERCRED)."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def open_watch_server(
    given: Path,
    answer: Callable[[bytes, Watcher], bytes],
    forget: Callable[[Watcher], object],
) -> WatchServer | None:
    """Return a server in this user's own folder, or in the one that is `given`, by the setting
    `watch_directory`; None, which the log tells, when there can be none.
    """
    try:
        folder = make_runtime_folder(os.environ, given)
        return WatchServer(folder / f"{os.getpid()}-{os.urandom(3).hex()}{SOCKET}", answer, forget)
    except OSError as error:
        level = logging.DEBUG if given == Path() else logging.WARNING  # somebody asked for that one
        log.log(level, "this run cannot be watched from other processes: %s", error)
        return None
