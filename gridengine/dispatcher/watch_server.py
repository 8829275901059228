"""The Unix socket at which other processes of the same user watch a dispatcher.

A watcher sends one line and receives one line; a watcher that follows receives a status at
intervals, with the events since the last one. The I/O thread serves the socket and never waits for
a watcher.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import struct
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.core.run_log import RunLog
from gridengine.dispatcher.core.status import Status
from gridengine.dispatcher.core.watch_events import EventRecorder, Position
from gridengine.dispatcher.watch_messages import Answer, Request
from gridengine.wire.connection_file import write_private
from gridengine.wire.runtime_folder import RECORD, SOCKET, make_runtime_folder
from gridengine.worker.poller import Poller

log = logging.getLogger("gridengine")

LEAST_INTERVAL = 0.1
MOST_FOLLOWERS = 64
STUCK_SECONDS = 5.0
"""For how long who follows may leave what he is told unread, then he is dropped."""


class Told:
    """What followers are told: as an answer, or as a line of JSON, made for all of them once."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    @cached_property
    def line(self) -> bytes:
        """The answer as JSON, without an end of line."""
        return msgspec.json.encode(self.answer)


class Follower(Protocol):
    """Who is told. Its methods are called in the I/O thread: they return at once."""

    def tell(self, told: Told) -> bool:
        """Take this, and return True; or False while what was told before is not read, or cannot
        be passed on.
        """

    def drop(self) -> None:
        """Be told nothing more: he has not read, or could not be told."""

    def end(self) -> None:
        """Be told nothing more: the dispatcher's process ends."""


class StatusFollower:
    """Has a function of this process called with the status, and with None at the end."""

    def __init__(self, tell: Callable[[Status | None], object]) -> None:
        self._tell = tell

    def tell(self, told: Told) -> bool:
        self._tell(told.answer.status)
        return True

    def drop(self) -> None:
        self._tell(None)

    end = drop


class Stream(Struct):
    """What one follower is told: by which request, when next, and up to where he was told."""

    request: Request
    key: bytes
    due: float
    told: Position
    told_at: float


class WatchStreams:
    """Tells those who follow. All methods are for the I/O thread.

    What is due at a time is made once for all who want the same, and have read what they were told
    before. While nobody follows nothing is taken in of what happens.

    Args:
        log: that of the core, whose `events` are set here.
        status: makes what is told.
    """

    def __init__(self, log: RunLog, status: Callable[[Request, float], Answer]) -> None:
        self._log = log
        self._status = status
        self._streams: dict[Follower, Stream] = {}
        self.deadline = math.inf
        """The monotonic time at which `push` is to be called."""

    def add(self, follower: Follower, request: Request, now: float) -> None:
        """Tell him from now on; of what he has followed before no more.

        Raises:
            ValueError: it is asked for what cannot be, or very many follow.
        """
        if not math.isfinite(request.interval):
            raise ValueError(f"an interval of {request.interval} seconds")
        if len(self._streams) >= MOST_FOLLOWERS and follower not in self._streams:
            raise ValueError("very many follow this dispatcher already")
        if self._log.events is None:
            self._log.events = EventRecorder(now=now, ticked_at=now)
        request = replace(request, interval=max(request.interval, LEAST_INTERVAL))
        before = self._streams.get(follower)
        told = self._log.events.position if before is None else before.told
        key = msgspec.json.encode(request)
        self._streams[follower] = Stream(request, key, _next(request.interval, now), told, now)
        self._schedule()

    def begin(self, follower: Follower, request: Request, now: float) -> None:
        """Tell him at once, and from now on.

        Raises:
            ValueError: see `add`.
        """
        self.add(follower, request, now)
        follower.tell(Told(self._status(request, now)))

    def remove(self, follower: Follower) -> None:
        """Tell him nothing more. May be called twice."""
        if self._streams.pop(follower, None) is not None:
            self._schedule()

    def push(self, now: float) -> None:
        """Tell all for whom it is time, and drop those who have not read for long."""
        self._push([one for one, stream in self._streams.items() if now >= stream.due], now)
        self._schedule()

    def close(self, now: float) -> None:
        """Tell all a last time."""
        followers = list(self._streams)
        self._push(followers, now)
        for follower in followers:
            follower.end()
        self._streams.clear()
        self._schedule()

    def _push(self, followers: list[Follower], now: float) -> None:
        events = self._log.events
        if events is None:
            return
        made, position = dict[tuple[bytes, int], Told](), events.position
        for follower in followers:
            stream = self._streams[follower]
            stream.due = _next(stream.request.interval, now)
            key = stream.key, stream.told.seen
            try:
                if key not in made:
                    made[key] = self._make(events, stream, now)
                taken = follower.tell(made[key])
            except Exception as error:  # no call is to suffer from it
                log.debug("who follows is dropped: %s", error)
                taken, stream.told_at = False, -math.inf
            if taken:
                stream.told, stream.told_at = position, now
            elif now - stream.told_at > STUCK_SECONDS + stream.request.interval:
                self._streams.pop(follower, None)
                follower.drop()

    def _make(self, events: EventRecorder, stream: Stream, now: float) -> Told:
        happened, left_out = events.since(stream.told, now)
        answer = self._status(stream.request, now)
        status = replace(answer.status, events=happened, left_out=left_out)
        return Told(replace(answer, status=status))

    def _schedule(self) -> None:
        self.deadline = min((one.due for one in self._streams.values()), default=math.inf)
        if not self._streams:
            self._log.events = None


def _next(interval: float, now: float) -> float:
    """Return when it is time again: for all of the same interval at once."""
    return (math.floor(now / interval) + 1) * interval


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
        record: what is left in a file beside the socket when this process is killed; empty for no
            file.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(
        self,
        path: Path,
        answer: Callable[[bytes, Watcher], bytes],
        forget: Callable[[Watcher], object],
        record: bytes = b"",
    ) -> None:
        self.path, self._record = path, path.with_suffix(RECORD)
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
            if record:
                write_private(self._record, record)
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
        for path in (self.path, self._record):
            path.unlink(missing_ok=True)

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
    record: bytes = b"",
) -> WatchServer | None:
    """Return a server in this user's own folder, or in the one that is `given`, by the setting
    `watch_directory`; None, which the log tells, when there can be none.
    """
    try:
        folder = make_runtime_folder(os.environ, given)
        path = folder / f"{os.getpid()}-{os.urandom(3).hex()}{SOCKET}"
        return WatchServer(path, answer, forget, record)
    except OSError as error:
        level = logging.DEBUG if given == Path() else logging.WARNING  # somebody asked for that one
        log.log(level, "this run cannot be watched from other processes: %s", error)
        return None
