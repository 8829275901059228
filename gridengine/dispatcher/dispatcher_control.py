"""What a client asks of a dispatcher in another process besides calls, and follows there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from gridengine.dispatcher.requesting import Question
from gridengine.errors import ConfigurationError, GridEngineError, safe_repr
from gridengine.serialize.payload import Buffer
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
