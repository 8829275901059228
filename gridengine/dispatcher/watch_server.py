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
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer, WatchRequest
from gridengine.status.rows import Status
from gridengine.status.run_log import RunLog
from gridengine.status.watch_events import EventRecorder, Position
from gridengine.system import peer_user
from gridengine.system.polling import Poller
from gridengine.wire.connection_file import RECORD, SOCKET, make_runtime_folder, write_private

log = logging.getLogger("gridengine")

LEAST_INTERVAL = 0.1
MOST_FOLLOWERS = 64
STUCK_SECONDS = 5.0
"""A follower that leaves its messages unread for this long, beyond its interval, is dropped."""
MOST_WATCHERS = 32
MOST_REQUEST = 16 * 1024


class FollowerAnswer:
    """An answer for followers. It is encoded as a line of JSON at most once for all of them."""

    def __init__(self, answer: WatchAnswer) -> None:
        self.answer = answer

    @cached_property
    def line(self) -> bytes:
        """The answer as JSON, without a line end."""
        return msgspec.json.encode(self.answer)


class Follower(Protocol):
    """A receiver of answers. The I/O thread calls its methods, which must return at once."""

    def tell(self, told: FollowerAnswer) -> bool:
        """Take an answer and return True; or return False while an earlier answer is unread, or if
        the answer cannot be passed on.
        """

    def drop(self) -> None:
        """End, because the follower has not read its answers, or could not be told."""

    def end(self) -> None:
        """End, because the dispatcher's process ends."""


class StatusFollower:
    """Calls a function of this process with the status, and with None at the end."""

    def __init__(self, tell: Callable[[Status | None], object]) -> None:
        self._tell = tell

    def tell(self, told: FollowerAnswer) -> bool:
        self._tell(told.answer.status)
        return True

    def drop(self) -> None:
        self._tell(None)

    end = drop


class FollowerStream(Struct):
    """The state of one follower: its request, encoded as `key`; when it is `due`; and up to which
    event it was `told`, and when.
    """

    request: WatchRequest
    key: bytes
    due: float
    told: Position
    told_at: float


class WatchStreams:
    """Sends followers the status at intervals. All methods are for the I/O thread.

    An answer is made once for all followers that are due, have the same request, and have been told
    the same events. While nobody follows, events are not recorded.

    Args:
        log: the core's; its `events` are set here.
        status: makes the answers.
    """

    def __init__(self, log: RunLog, status: Callable[[WatchRequest, float], WatchAnswer]) -> None:
        self._log = log
        self._status = status
        self._streams: dict[Follower, FollowerStream] = {}
        self.deadline = math.inf
        """The monotonic time at which `push` must be called."""

    def add(self, follower: Follower, request: WatchRequest, now: float) -> None:
        """Add a follower, or change the request of one.

        Raises:
            ValueError: the interval is not a finite number, or very many follow.
        """
        if not math.isfinite(request.interval):
            raise ValueError(f"an interval of {request.interval} seconds")
        if len(self._streams) >= MOST_FOLLOWERS and follower not in self._streams:
            raise ValueError("too many follow this dispatcher already")
        if self._log.events is None:
            self._log.events = EventRecorder(now=now, ticked_at=now)
        request = replace(request, interval=max(request.interval, LEAST_INTERVAL))
        before = self._streams.get(follower)
        told = self._log.events.position if before is None else before.told
        key = msgspec.json.encode(request)
        self._streams[follower] = FollowerStream(
            request, key, _next(request.interval, now), told, now
        )
        self._schedule()

    def begin(self, follower: Follower, request: WatchRequest, now: float) -> None:
        """Add a follower, and send the first answer at once.

        Raises:
            ValueError: see `add`.
        """
        self.add(follower, request, now)
        follower.tell(FollowerAnswer(self._status(request, now)))

    def remove(self, follower: Follower) -> None:
        """Remove a follower. May be called twice."""
        if self._streams.pop(follower, None) is not None:
            self._schedule()

    def push(self, now: float) -> None:
        """Send answers to all followers that are due; drop those that have not read for long."""
        self._push([one for one, stream in self._streams.items() if now >= stream.due], now)
        self._schedule()

    def close(self, now: float) -> None:
        """Send all followers a last answer."""
        followers = list(self._streams)
        self._push(followers, now)
        for follower in followers:
            follower.end()
        self._streams.clear()
        self._schedule()

    def _push(self, followers: list[Follower], now: float) -> None:
        """Send an answer to each of these followers."""
        events = self._log.events
        if events is None:
            return
        made, position = dict[tuple[bytes, int], FollowerAnswer](), events.position
        for follower in followers:
            stream = self._streams[follower]
            stream.due = _next(stream.request.interval, now)
            # Followers with the same request that were told up to the same event get the same
            # answer.
            key = stream.key, stream.told.seen
            try:
                if key not in made:
                    made[key] = self._make(events, stream, now)
                taken = follower.tell(made[key])
            except Exception as error:  # an exception here would end the I/O thread
                log.debug("a follower is dropped: %s", error)
                taken, stream.told_at = False, -math.inf
            if taken:
                stream.told, stream.told_at = position, now
            elif now - stream.told_at > STUCK_SECONDS + stream.request.interval:
                self._streams.pop(follower, None)
                follower.drop()

    def _make(self, events: EventRecorder, stream: FollowerStream, now: float) -> FollowerAnswer:
        happened, left_out = events.since(stream.told, now)
        answer = self._status(stream.request, now)
        status = replace(answer.status, events=happened, left_out=left_out)
        return FollowerAnswer(replace(answer, status=status))

    def _schedule(self) -> None:
        self.deadline = min((one.due for one in self._streams.values()), default=math.inf)
        if not self._streams:
            self._log.events = None


def _next(interval: float, now: float) -> float:
    """Return when followers with this interval are due next: all of them at the same times."""
    return (math.floor(now / interval) + 1) * interval


class Watcher:
    """One connection, which may follow. Further requests wait while an answer is unread."""

    def __init__(self, sock: socket.socket, server: WatchServer) -> None:
        self.sock = sock
        self.asked = bytearray()
        self.left: memoryview = memoryview(b"")
        self.stuck_at = 0.0
        self._server = server

    def tell(self, told: FollowerAnswer) -> bool:
        if self.left:
            return False
        self._server.send(self, told.line)
        return True

    def drop(self) -> None:
        self._server.drop(self)

    end = drop


class WatchServer:
    """Answers watchers. All methods are for one thread.

    Args:
        answer: returns the answer to a line of a watcher.
        forget: called when a watcher, which may follow, is gone.
        record: the content of a file beside the socket, which stays when this process is killed;
            empty for no file.

    Raises:
        OSError: the socket cannot be made.
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
            # The socket gets its name once it listens: a process that looks for dispatchers would
            # remove one that does not.
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
        """Drop all watchers, and remove the socket."""
        for watcher in list(self._watchers.values()):
            self.drop(watcher)
        self._poller.close()
        self._listener.close()
        for path in (self.path, self._record):
            path.unlink(missing_ok=True)

    def _accept(self) -> None:
        """Accept a watcher of the same user; drop those that have not read their answer in time."""
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the watcher has gone, or too many files are open
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
        except Exception as error:  # an exception here would end the I/O thread
            log.debug("a watcher is dropped: %s", error)
            self.drop(watcher)

    def _read(self, watcher: Watcher) -> bool:
        """Read requests and answer them; return whether more may come."""
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
        """Send a line to a watcher that has read everything before it."""
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
        """Drop a watcher. May be called twice."""
        if self._watchers.pop(watcher.sock.fileno(), None) is not None:
            self._poller.unregister(watcher.sock.fileno())
            watcher.sock.close()
            self._forget(watcher)


def open_watch_server(
    given: Path,
    answer: Callable[[bytes, Watcher], bytes],
    forget: Callable[[Watcher], object],
    record: bytes = b"",
) -> WatchServer | None:
    """Return a server in this user's own folder, or in the folder `given` by the setting
    `watch_directory`. Log the reason and return None if there can be none.
    """
    try:
        folder = make_runtime_folder(os.environ, given)
        path = folder / f"{os.getpid()}-{os.urandom(3).hex()}{SOCKET}"
        return WatchServer(path, answer, forget, record)
    except OSError as error:
        # A warning, if a setting asked for that folder, or something is there in its place.
        told = given != Path() or isinstance(error, FileExistsError)
        level = logging.WARNING if told else logging.DEBUG
        log.log(level, "this run cannot be watched from other processes: %s", error)
        return None
