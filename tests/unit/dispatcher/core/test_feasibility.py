"""What a worker can hold, and how often."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.policy import Policy, booked, can_hold, fitting
from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Cores, Memory, Resource, Token, WTime
from tests.support.core_play import GOOD

NODE = Cores(4) & Memory(8) & Token("t")


@pytest.mark.parametrize(
    ("held", "request_", "words"),
    [
        (NODE, Cores(5), r"hold Cores\(5\): they hold Cores\(4\) & Memory\(8\)"),
        (NODE, Token("u"), r"hold Token\('u'\): they hold"),
        (NODE & WTime(100), WTime(99), "hold "),
    ],
)
def test_what_no_worker_can_hold_is_an_error_and_told_as_it_was_written(
    held: Resource, request_: Resource, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"no worker can ever {words}"):
        can_hold(Policy(**GOOD, resources=held), request_)


@pytest.mark.parametrize("request_", [Memory(1), ZERO, Token("t")])
def test_who_does_not_say_how_many_cores_has_one(request_: Resource) -> None:
    assert booked(request_) == request_ & Cores(1)
    assert booked(request_ & Cores(3)) == request_ & Cores(3)


def policy(resources: Resource | None = NODE) -> Policy:
    return Policy(**GOOD, resources=resources, slots=4)


@pytest.mark.parametrize(
    ("request_", "times"),
    [(ZERO, 4), (Cores(2), 2), (Memory(3), 2), (Token("t"), 4), (Cores(5), 0), (Token("u"), 0)],
)
def test_a_worker_holds_a_request_so_often(request_: Resource, times: int) -> None:
    assert fitting(policy(), request_) == times


def test_a_worker_that_is_launched_for_a_request_holds_it_in_each_slot() -> None:
    assert fitting(policy(None), Cores(100)) == 4
