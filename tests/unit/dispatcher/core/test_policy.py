"""For how long a worker may be there, what it can hold, and how often."""

from __future__ import annotations

import math

import pytest

from gridengine.dispatcher.core.policy import (
    SPARE_SECONDS,
    Policy,
    booked,
    can_hold,
    fitting,
    spare_of,
)
from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Cores, Memory, Nodes, Ranks, Resource, Token, WTime
from tests.support.core_play import GOOD

HOUR = 3600.0


@pytest.mark.parametrize(("walltime", "spare"), [(HOUR, SPARE_SECONDS), (20.0, 2.0)])
def test_a_tenth_of_a_short_walltime_is_kept_for_leaving(walltime: float, spare: float) -> None:
    assert spare_of(walltime) == spare


@pytest.mark.parametrize(
    ("policy", "held", "stay"),
    [
        (Policy(), Cores(1), math.inf),
        (Policy(), WTime(softT=5.0), math.inf),
        (Policy(), WTime(HOUR), HOUR - SPARE_SECONDS),
        (Policy(margin_seconds=60.0), WTime(HOUR), HOUR + 60.0 - SPARE_SECONDS),
        (Policy(walltime=HOUR), Cores(1), HOUR - SPARE_SECONDS),
        (Policy(walltime=HOUR, margin_seconds=60.0), WTime(60.0), HOUR - SPARE_SECONDS),
    ],
)
def test_a_worker_stays_for_its_walltime_and_leaves_before_it_is_over(
    policy: Policy, held: Resource, stay: float
) -> None:
    assert policy.stay(held) == stay


NODE = Cores(4) & Memory(8) & Token("t")


@pytest.mark.parametrize(
    ("held", "request_", "words"),
    [
        (NODE, Cores(5), r"hold Cores\(5\): they hold Cores\(4\) & Memory\(8\)"),
        (NODE, Token("u"), r"hold Token\('u'\): they hold"),
        (NODE & WTime(100), WTime(99), "hold "),
        (NODE, Ranks(5), r"hold Ranks\(5\): they hold Cores\(4\)"),
        (NODE, Ranks(2) & Memory(5), r"hold Ranks\(2\) & Memory\(5\): they hold"),
    ],
)
def test_a_request_that_no_worker_can_hold_is_an_error_in_its_own_words(
    held: Resource, request_: Resource, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"no worker can ever {words}"):
        can_hold(Policy(**GOOD, resources=held), request_)


@pytest.mark.parametrize("others", [False, True])
def test_ranks_on_several_nodes_are_an_error_where_calls_share_workers(others: bool) -> None:
    shared = Policy(**GOOD, resources=NODE, keeps_others=others)
    with pytest.raises(ConfigurationError, match="asks for 2 nodes, and a worker that calls share"):
        can_hold(shared, Nodes(2))
    can_hold(Policy(**GOOD), Nodes(2))


@pytest.mark.parametrize("request_", [Memory(1), ZERO, Token("t")])
def test_a_call_without_cores_has_one(request_: Resource) -> None:
    assert booked(request_) == request_ & Cores(1)
    assert booked(request_ & Cores(3)) == request_ & Cores(3)


def policy(resources: Resource | None = NODE) -> Policy:
    return Policy(**GOOD, resources=resources, slots=4)


@pytest.mark.parametrize(
    ("request_", "times"),
    [
        (ZERO, 4),
        (Cores(2), 2),
        (Ranks(2), 2),
        (Ranks(4), 1),
        (Memory(3), 2),
        (Token("t"), 4),
        (Cores(5), 0),
        (Token("u"), 0),
    ],
)
def test_a_worker_holds_a_request_so_often(request_: Resource, times: int) -> None:
    assert fitting(policy(), request_) == times


def test_a_worker_that_is_launched_for_a_request_holds_it_in_each_slot() -> None:
    assert fitting(policy(None), Cores(100)) == 4
