"""What a client asks of a dispatcher in another process besides calls, and how it notices that the
dispatcher has been silent for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from gridengine.calls.requesting import Question
from gridengine.errors import ConfigurationError, DispatcherGone, GridEngineError, safe_repr
from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import ClientConnection
from gridengine.wire.messages import Control, Controlled, Message

log = logging.getLogger("gridengine")

Tell: TypeAlias = Callable[[Buffer | None], object]
"""Is told what comes; None when there will be nothing more."""


class DispatcherControl:
    """Asks, in any thread; the thread that reads tells what is followed.

    Args:
        questions: those that are not answered, by their numbers.
        numbers: what they are counted by.
        send: sends a message.
        lost: returns why nothing is answered any more, None if it is.
    """

    def __init__(
        self,
        questions: dict[int, Question],
        numbers: Iterator[int],
        send: Callable[[Message], object],
        lost: Callable[[], GridEngineError | None],
    ) -> None:
        self._questions = questions
        self._numbers = numbers
        self._send = send
        self._lost = lost
        self._followed: dict[int, tuple[Control, Tell]] = {}
        """By the numbers of questions that are answered again and again: them, and who is told."""

    def ask(self, action: str, arguments: Mapping[str, Any], seconds: float | None) -> Any:
        """See `RemoteDispatcher.control`."""
        return msgspec.json.decode(self._asked(self.message(action, arguments), seconds))

    def message(self, action: str, arguments: Mapping[str, Any]) -> Control:
        """Return a question, as it travels."""
        return Control(next(self._numbers), action, msgspec.json.encode(dict(arguments)))

    def _asked(self, message: Control, seconds: float | None = None) -> Buffer:
        number = message.number
        question = self._questions[number] = Question(message)
        if (lost := self._lost()) is not None:
            raise lost
        self._send(message)
        try:
            answer: Controlled = question.result(seconds)
        except TimeoutError:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        finally:  # nobody waits for it any more
            self._questions.pop(number, None)
        if answer.failed:
            raise ConfigurationError(f"{message.action}: {bytes(answer.answer).decode()}")
        return answer.answer

    def follow(self, tell: Tell, request: str) -> int:
        """See `RemoteDispatcher.follow_lines`."""
        message = self.message("follow", {"request": request})
        number = message.number
        self._followed[number] = message, tell
        try:
            self._asked(message)
        except BaseException:
            self._followed.pop(number, None)
            raise
        return number

    def unfollow(self, number: int) -> None:
        """Tell nothing more."""
        if self._followed.pop(number, None) is not None and self._lost() is None:
            self._send(self.message("unfollow", {"number": number}))

    def followed(self) -> list[Control]:
        """Return the questions that are followed, for another process of the dispatcher."""
        return [message for message, _ in list(self._followed.values())]

    def tell(self, message: Controlled) -> bool:
        """Tell who follows; return whether anybody does."""
        _, tell = self._followed.get(message.number, (None, None))
        if tell is None:  # another thread may have let it go just now
            return False
        try:
            tell(None if message.failed else message.answer)
        except Exception as error:  # another version's, say: no call is to suffer from it
            log.debug("what follows the dispatcher has failed: %s", safe_repr(error))
            tell(None)
        return True

    def end(self) -> None:
        """Tell all who follow that there will be nothing more."""
        for _, tell in list(self._followed.values()):
            tell(None)


LOOK_SECONDS = 5.0
"""How often, when a beat of the dispatcher is missing, its process is looked at, where that can be
seen, and the connection file is read again.
"""


class DispatcherSilence:
    """For how long nothing has come from the dispatcher, while somebody was here to hear it.

    Args:
        file: its connection file.
        lease: after how many seconds of it the dispatcher is taken to be gone.
        now: in monotonic seconds.
    """

    def __init__(self, file: ClientConnection, lease: float, now: float) -> None:
        self._file = file
        self._lease = lease
        self._most = 2 * file.beat_seconds
        self._seen_at = now
        self._seconds = 0.0
        self._received_at = 0.0
        self._look_at = 0.0

    def is_look_due(self, now: float, received_at: float) -> bool:
        """Return whether the dispatcher is to be looked for, given when something came last: a beat
        of it is missing, and the last look is long enough ago; the next one is not before as long.

        Raises:
            DispatcherGone: it has been silent for the whole lease.
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
        """Return for how long it has been silent. The time that this process was suspended, as by
        a laptop's lid, hardly counts.
        """
        if received_at != self._received_at:
            self._received_at, self._seconds = received_at, 0.0
        else:
            self._seconds += min(now - self._seen_at, self._most)
        self._seen_at = now
        return self._seconds


def check_process(file: ClientConnection) -> None:
    """Raise `DispatcherGone` when a dispatcher's process has ended, and was the only one."""
    if file.is_gone_for_good():
        raise DispatcherGone(
            f"the dispatcher {file.name!r}, process {file.pid} of this machine, was killed, "
            "and is none that is started again",
            hint="make another LocalDispatcher, and hand in again what has no result; calls "
            "outlive the process of one that is started by `gridengine dispatcher start`",
        )
