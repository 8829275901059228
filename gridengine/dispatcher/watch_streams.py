"""Those who follow a dispatcher: each is told its status now and then, unasked, with what has
happened since he was told last.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.core.run_log import EventRecorder, Position, RunLog
from gridengine.dispatcher.core.status import Status
from gridengine.dispatcher.watch_messages import Answer, Request

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
