"""Workers that announce functions by their names, and the calls that wait for them."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import Launch
from gridengine.requests import Function
from gridengine.resources import Cores
from gridengine.resources.demand import Demand
from gridengine.wire.messages import Define, Refuse, Stop, Welcome
from tests.support.core_play import Play

MEAN = Function(b"mean", (b"mean",), (), b"/", "mean", codec="json")
AT_MEAN = {"function": MEAN, "demand": Demand(function="mean")}


@pytest.fixture(params=[{}, {"pooled": True}, {"resources": Cores(4)}], ids=str)
def play(request: pytest.FixtureRequest) -> Play:
    return Play(max_workers=2, **request.param)


def test_calls_of_an_announced_function_wait_for_its_worker(play: Play) -> None:
    play.submit(3, **AT_MEAN)
    assert not play.seen(Launch)
    play.hello(b"a", functions=["median", "mean"])
    assert play.sent(Welcome)
    [define] = play.sent(Define)
    assert (define.codec, define.function) == ("json", b"mean")
    [one] = play.assigned(b"a")
    play.done(one, worker=b"a")


def test_a_worker_of_announced_functions_has_those_calls_alone(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    play.hello(b"w", pid=8)
    play.submit(1)
    assert not play.assigned(b"a")
    assert play.assigned(b"w")
    play.submit(1, **AT_MEAN)
    assert play.assigned(b"a")
    assert not play.assigned(b"w")


def test_a_worker_of_announced_functions_takes_the_place_of_no_other(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    play.hello(b"b", pid=9, functions=["mean"])
    play.submit(5, retries=0)
    launches = play.seen(Launch)
    play.later(1)
    assert launches + play.seen(Launch)


def test_an_idle_worker_of_announced_functions_stays(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    for _ in range(100):
        play.later(1, beats=[b"a"])
        assert not play.sent(Stop)


def test_a_worker_of_announced_functions_may_have_another_version_but_not_protocol(
    play: Play,
) -> None:
    play.hello(b"a", functions=["mean"], version="other", python="")
    assert play.sent(Welcome)
    play.hello(b"b", functions=["mean"], protocol=1)
    assert play.sent(Refuse)


def test_calls_of_one_that_is_lost_wait_for_the_next(play: Play) -> None:
    play.hello(b"a", functions=["mean"])
    play.submit(1, **AT_MEAN)
    assert play.assigned(b"a")
    play.later(1000)
    play.hello(b"b", pid=9, functions=["mean"])
    assert play.assigned(b"b")
