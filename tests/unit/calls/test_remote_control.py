"""What is asked of a dispatcher in another process besides calls, and who is told of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gridengine.calls.remote_control import DispatcherControl
from gridengine.calls.requesting import Question
from gridengine.errors import ConfigurationError, DispatcherGone, GridEngineError
from gridengine.wire.messages import Control, Controlled, Message


class Asked:
    """A dispatcher that answers at once."""

    def __init__(self) -> None:
        self.questions: dict[int, Question] = {}
        self.sent: list[Message] = []
        self.lost: GridEngineError | None = None
        self.failed = False
        self.control = DispatcherControl(
            self.questions, itertools.count(1), self.send, lambda: self.lost
        )

    def send(self, message: Message) -> None:
        self.sent.append(message)
        assert isinstance(message, Control)
        if (question := self.questions.pop(message.number, None)) is not None:
            question.set_result(Controlled(message.number, b'"done"', self.failed))

    def follow(self, told: list[Any]) -> int:
        return self.control.follow(told.append, "status")


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_an_answer_has_the_values_of_json(asked: Asked) -> None:
    assert asked.control.ask("scale", {"action": 3}, None) == "done"
    assert asked.sent == [Control(1, "scale", b'{"action":3}')]


def test_a_refused_request_is_an_error_that_names_it(asked: Asked) -> None:
    asked.failed = True
    with pytest.raises(ConfigurationError, match="scale: "):
        asked.control.ask("scale", {}, None)
    with pytest.raises(ConfigurationError, match="follow: "):
        asked.follow([])
    assert asked.control.followed() == []


def test_nothing_is_asked_of_one_that_is_gone(asked: Asked) -> None:
    asked.lost = DispatcherGone("killed")
    with pytest.raises(DispatcherGone):
        asked.control.ask("status", {}, None)
    assert asked.sent == []


def test_a_wait_for_an_answer_has_a_limit() -> None:
    questions: dict[int, Question] = {}
    control = DispatcherControl(questions, itertools.count(1), lambda message: None, lambda: None)
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        control.ask("status", {}, 0)
    assert not questions


def test_a_follower_is_told_until_it_is_removed(asked: Asked) -> None:
    told: list[Any] = []
    number = asked.follow(told)
    assert [one.number for one in asked.control.followed()] == [number]
    assert asked.control.tell(Controlled(number, b"first"))
    asked.control.unfollow(number)
    assert not asked.control.tell(Controlled(number, b"late"))
    asked.control.end()
    assert told == [b"first"]
    assert isinstance(asked.sent[-1], Control)
    assert asked.sent[-1].action == "unfollow"


def test_a_failing_follower_is_told_that_nothing_more_comes(asked: Asked) -> None:
    told: list[Any] = []

    def take(line: Any) -> None:
        told.append(line)
        if line is not None:
            raise ValueError("another version's")

    number = asked.control.follow(take, "status")
    assert asked.control.tell(Controlled(number, b"first"))
    assert told == [b"first", None]
