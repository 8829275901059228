"""Questions of a client to a dispatcher in another process, besides calls, and the measure of the
dispatcher's silence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from gridengine.calls.requesting import Question, RequestingDispatcher
from gridengine.errors import ConfigurationError, DispatcherGone, GridEngineError, safe_repr
from gridengine.serialize.payload import Buffer
from gridengine.settings.values import settings
from gridengine.status.rows import Status
from gridengine.threads import result_of
from gridengine.wire.connection_file import ClientConnection
from gridengine.wire.messages import Control, Controlled

log = logging.getLogger("gridengine")

MOST_SILENT_BEATS = 2.5
LOOK_SECONDS = 5.0
"""How often, while the dispatcher's beats are missing, the client checks its process, if that is
visible from here, and reads the connection file again.
"""


Tell: TypeAlias = Callable[[Buffer | None], object]
"""Called with each answer; with None when there will be no more."""


class ControlledDispatcher(RequestingDispatcher):
    """Asks questions, from any thread. The thread that reads passes on the answers to followers."""

    def __init__(self) -> None:
        super().__init__(0)
        self._followed: dict[int, tuple[Control, Tell]] = {}
        """Questions that are answered again and again, by number, each with its follower."""

    def control(
        self,
        action: str,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        *,
        seconds: float | None = None,
    ) -> Any:
        """Ask the dispatcher for an action; return its answer, decoded from JSON.

        Raises:
            TimeoutError: there was no answer within `seconds`.
            ConfigurationError: there is no such action, or it failed; the text says why.
            GridEngineError: nobody answers any more.
        """
        return msgspec.json.decode(self._asked(self._control(action, arguments), seconds))

    def _control(self, action: str, arguments: Mapping[str, Any]) -> Control:
        """Return a question as a message."""
        return Control(next(self._numbers), action, msgspec.json.encode(dict(arguments)))

    def _asked(self, message: Control, seconds: float | None = None) -> Buffer:
        """Send a question and wait for its answer."""
        number = message.number
        question = self._questions[number] = Question(message)
        if self._lost is not None:
            raise self._lost
        self._request(message)
        try:
            answer: Controlled = result_of(question, seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        finally:  # after a timeout the answer would find nobody waiting
            self._questions.pop(number, None)
        if answer.failed:
            raise ConfigurationError(f"{message.action}: {bytes(answer.answer).decode()}")
        return answer.answer

    def status(self, most: int = 100) -> Status:
        """Return the dispatcher's present status, for all its clients, with at most `most` workers,
        runs and failures each.

        Raises:
            GridEngineError: this client has left, or nobody answers any more.
        """
        return msgspec.convert(self.control("status", {"most": most}), Status)

    def follow(self, tell: Callable[[Status | None], object], interval: float) -> int:
        """Call `tell` with the dispatcher's status again and again, in the thread that reads: see
        `follow_lines`.
        """
        from gridengine.dispatcher.watch_messages import (  # few follow
            FOLLOW,
            WatchAnswer,
            WatchRequest,
        )

        def take(line: Buffer | None) -> None:
            tell(None if line is None else msgspec.json.decode(line, type=WatchAnswer).status)

        request = WatchRequest(FOLLOW, interval=interval)
        return self.follow_lines(take, msgspec.json.encode(request).decode())

    def follow_lines(self, tell: Tell, request: str) -> int:
        """Call `tell` with the answers to a request to follow, as JSON: at once, and then unasked;
        and with None when there will be no more. `tell` runs in the thread that reads, and must
        return at once. Return the argument for `unfollow`.

        Raises:
            ConfigurationError, GridEngineError: see `control`.
        """
        message = self._control("follow", {"request": request})
        number = message.number
        self._followed[number] = message, tell
        try:
            self._asked(message)
        except BaseException:
            self._followed.pop(number, None)
            raise
        return number

    def unfollow(self, followed: Any) -> None:
        if self._followed.pop(followed, None) is not None and self._lost is None:
            self._request(self._control("unfollow", {"number": followed}))

    def _tell(self, message: Controlled) -> bool:
        """Pass an answer to its follower; return whether there is one."""
        _, tell = self._followed.get(message.number, (None, None))
        if tell is None:  # another thread may have called `unfollow` just now
            return False
        try:
            tell(None if message.failed else message.answer)
        except Exception as error:  # the answer may be of another version; calls must go on
            log.debug("a follower of the dispatcher has failed: %s", safe_repr(error))
            tell(None)
        return True

    def _fail(self, error: GridEngineError) -> None:
        super()._fail(error)
        for _, tell in list(self._followed.values()):
            tell(None)


class DispatcherSilence:
    """Measures for how long nothing has arrived from the dispatcher, while this process was awake.

    Args:
        file: the dispatcher's connection file.
        patience: after this many seconds of silence the dispatcher is taken to be gone; None is the
            setting `client_lease`. At least 2.5 beats, so that it had the time to send one.
        now: in monotonic seconds.
    """

    def __init__(self, file: ClientConnection, patience: float | None, now: float) -> None:
        self._file = file
        self._lease = settings().client_lease
        if patience is not None:
            self._lease = max(patience, MOST_SILENT_BEATS * file.beat_seconds)
        self._most = 2 * file.beat_seconds
        self._seen_at = now
        self._seconds = 0.0
        self._received_at = 0.0
        self._look_at = 0.0

    def is_look_due(self, now: float, received_at: float) -> bool:
        """Return whether to look for the dispatcher now: a beat is missing, and the latest look is
        `LOOK_SECONDS` ago. Then the next look is that much later.

        Args:
            now: in monotonic seconds.
            received_at: when the latest message arrived.

        Raises:
            DispatcherGone: the dispatcher has been silent for the whole lease.
        """
        silent = self._measure(now, received_at)
        if silent > self._lease:
            raise DispatcherGone(
                f"nothing was heard from the dispatcher {self._file.name!r} for {silent:.0f} s",
                hint="see whether it runs: gridengine dispatcher list",
            )
        due = silent > self._file.beat_seconds and now >= self._look_at
        if due:
            self._look_at = now + LOOK_SECONDS
        return due

    def _measure(self, now: float, received_at: float) -> float:
        """Return for how many seconds the dispatcher has been silent. A suspension of this process,
        such as that of a laptop, counts as two beats at most.
        """
        if received_at != self._received_at:
            self._received_at, self._seconds = received_at, 0.0
        else:
            self._seconds += min(now - self._seen_at, self._most)
        self._seen_at = now
        return self._seconds


def check_process(file: ClientConnection) -> None:
    """Raise `DispatcherGone` if a dispatcher's process has ended, and no other takes its place."""
    if file.is_gone_for_good():
        raise DispatcherGone(
            f"the dispatcher {file.name!r}, process {file.pid} of this machine, was killed, "
            "and will not be started again",
            hint="make another LocalDispatcher, and submit the calls without a result again; calls "
            "survive the death of a dispatcher that `gridengine dispatcher start` has started",
        )
