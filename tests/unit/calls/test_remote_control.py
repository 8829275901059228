"""What is asked of a dispatcher in another process besides calls, and who is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.calls.remote_control import ControlledDispatcher
from gridengine.calls.translation import Outgoing
from gridengine.errors import ConfigurationError, DispatcherGone
from gridengine.wire.messages import Control, Controlled, Message


class Asked(ControlledDispatcher):
    """A dispatcher that answers at once."""

    _deliver = _receive = _submitter = close = None  # type: ignore[assignment]  # nobody calls them

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Message] = []
        self.failed = self.silent = False

    def _request(self, request: Outgoing, /) -> None:
        assert isinstance(request, Control)
        self.sent.append(request)
        question = None if self.silent else self._questions.get(request.number)
        if question is not None:
            question.set_result(Controlled(request.number, b'"done"', self.failed))


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_an_answer_has_the_values_of_json(asked: Asked) -> None:
    assert asked.control("scale", {"action": 3}) == "done"
    assert asked.sent == [Control(1, "scale", b'{"action":3}')]


def test_a_refused_request_is_an_error_that_names_it(asked: Asked) -> None:
    asked.failed = True
    with pytest.raises(ConfigurationError, match="scale: "):
        asked.control("scale", {})
    with pytest.raises(ConfigurationError, match="follow: "):
        asked.follow_lines([].append, "status")
    assert not asked._followed


def test_nothing_is_asked_of_one_that_is_gone(asked: Asked) -> None:
    asked._lost = DispatcherGone("killed")
    with pytest.raises(DispatcherGone):
        asked.control("status", {})
    assert asked.sent == []


def test_a_wait_for_an_answer_has_a_limit(asked: Asked) -> None:
    asked.silent = True
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        asked.control("status", seconds=0)
    assert not asked._questions


def test_a_follower_is_told_until_it_is_removed(asked: Asked) -> None:
    told: list[Any] = []
    number = asked.follow_lines(told.append, "status")
    assert asked._tell(Controlled(number, b"first"))
    asked.unfollow(number)
    assert not asked._tell(Controlled(number, b"late"))
    asked._fail(DispatcherGone("ended"))
    assert told == [b"first"]
    assert isinstance(asked.sent[-1], Control)
    assert asked.sent[-1].action == "unfollow"


def test_a_failing_follower_is_told_that_nothing_more_comes(asked: Asked) -> None:
    told: list[Any] = []

    def take(line: Any) -> None:
        told.append(line)
        if line is not None:
            raise ValueError("another version's")

    number = asked.follow_lines(take, "status")
    assert asked._tell(Controlled(number, b"first"))
    assert told == [b"first", None]
