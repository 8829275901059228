"""Workers of one dispatcher that hold different things, and calls that wait for such."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.dispatcher.core.events import Launch, Restored, RestoredWorker
from gridengine.requests import CallsFinished, Submitted
from gridengine.resources import Capacity, Cores, Memory, Resource, Token, WTime
from gridengine.resources.demand import ANY, Demand, encode_demand
from gridengine.wire.messages import MEMORY, VERSION, Goodbye, Hello, Refuse, Release
from tests.support.core_play import SQUARE, Play
from tests.support.tasks import make_task

LARGE, LICENSED = Cores(1) & Memory(64), Cores(2) & Token("licence")


def parts(held: Resource) -> Any:
    return encode_demand(Demand(held))[0]


def play(max_workers: int = 0, **policy: Any) -> Play:
    """A stand-alone dispatcher whose workers hold a core where they do not say more; without
    `max_workers` people start all of them.
    """
    return Play(**{"resources": Cores(1), "keeps_others": True, **policy}, max_workers=max_workers)


def by_hand(one: Play, name: bytes, held: Resource) -> None:
    cores = held.get(Cores)
    one.hello(name, slots=1 if cores is None else cores.N, resources=parts(held))


def ask(one: Play, resources: Resource, calls: int = 1, **options: Any) -> None:
    one.submit(calls, demand=Demand(resources), **options)


def test_calls_go_to_the_worker_that_holds_their_resources() -> None:
    one = play()
    by_hand(one, b"large", LARGE)
    by_hand(one, b"licensed", LICENSED)
    ask(one, Token("licence"))
    assert len(one.assigned(b"licensed")) == 1
    ask(one, Memory(50))
    assert len(one.assigned(b"large")) == 1
    ask(one, Cores(2))
    assert one.assigned() == [], "one of its cores is taken"


def test_a_worker_without_stated_resources_holds_those_of_the_dispatchers_workers() -> None:
    one = play(resources=Cores(2) & Memory(4))
    one.hello(b"w", slots=2)
    ask(one, Memory(4))
    assert len(one.assigned(b"w")) == 1


@pytest.mark.parametrize("max_workers", [0, 5])
def test_calls_wait_for_a_worker_that_holds_their_resources(max_workers: int) -> None:
    one = play(max_workers, start_timeout=10)
    ask(one, Token("licence"), 2)
    for _ in range(3):
        one.later(100)
        assert (one.seen(Launch), one.seen(CallsFinished)) == ([], [])
    by_hand(one, b"licensed", Token("licence"))
    [first] = one.assigned(b"licensed")
    one.done(first, worker=b"licensed")
    one.say(Goodbye("told to stop", ()), worker=b"licensed")
    one.later(100)
    assert one.seen(CallsFinished) == []
    by_hand(one, b"next", LICENSED)
    assert len(one.assigned(b"next")) == 1


def test_others_give_nothing_back_for_calls_that_no_worker_holds() -> None:
    one = play()
    by_hand(one, b"w", Cores(1))
    ask(one, Token("licence"))
    ask(one, Cores(1), 3)
    for _ in range(3):
        [run] = one.assigned()
        assert one.sent(Release) == []
        one.done(run)
    by_hand(one, b"licensed", LICENSED)
    assert len(one.assigned(b"licensed")) == 1


def test_no_workers_are_asked_for_where_people_start_them() -> None:
    one = play(start_timeout=10)
    one.submit(5)
    for _ in range(3):
        one.later(100)
        assert (one.seen(Launch), one.seen(CallsFinished)) == ([], [])
    one.hello(b"w")
    assert len(one.assigned(b"w")) == 1


def test_workers_that_hold_more_are_not_asked_for_with_calls_that_the_schedulers_own_hold() -> None:
    one = play(5)
    ask(one, Memory(50), 3)
    assert one.seen(Launch) == []
    one.submit(2)
    assert [launch.count for launch in one.seen(Launch)] == [2]


@pytest.mark.parametrize(
    ("policy", "held", "words"),
    [
        ({"resources": None, "pooled": True}, parts(LARGE), "--cores 4"),
        ({}, [("Cores", ["many"])], "many"),
        ({}, [("Nodes", [1])], "Nodes"),
        ({}, [("Memory", [1, 2, 3])], "Memory"),
        ({}, [("Cores", [1]), ("Cores", [2])], "Cores twice"),
    ],
)
def test_a_worker_with_resources_that_cannot_be_given_out_is_refused_with_the_reason(
    policy: dict[str, Any], held: Any, words: str
) -> None:
    one = play(5, **policy)
    one.hello(b"w", resources=held)
    [refusal] = one.sent(Refuse)
    assert words in refusal.reason
    assert one.core.state.workers == {}


@pytest.mark.parametrize("pooled", [False, True])
def test_a_worker_that_comes_back_holds_the_same_resources(pooled: bool) -> None:
    policy = {"resources": None, "pooled": True} if pooled else {}
    one = play(epoch=2, max_workers=5 if pooled else 0, **policy)
    hello = Hello(VERSION, "1", "3.11", "run", "node", 7, 1, "", resources=parts(LARGE))
    task = make_task(1, (b"calls",), 1, demand=Demand(Memory(50)))
    one.play(Restored([Submitted(SQUARE, [task])], {}, [], [RestoredWorker(b"w", hello)], []))
    state = one.core.state
    assert state.missing_worker(Demand(Memory(50))) is None
    by_hand(one, b"w", LARGE)
    assert len(one.assigned(b"w")) == (0 if pooled else 1)


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (Memory(100), "gridengine worker NAME --memory 100"),
        (Token("other"), "gridengine worker NAME --token other"),
        (Capacity(2), ""),
        (Memory(64), None),
        (Token("licence") & WTime("1:00:00"), None),
    ],
)
def test_an_unheld_request_is_told_with_the_command_that_starts_a_worker(
    request_: Resource, command: str | None
) -> None:
    one = play()
    assert one.core.state.missing_worker(ANY) == "gridengine worker NAME"
    by_hand(one, b"large", LARGE)
    by_hand(one, b"licensed", LICENSED)
    assert one.core.state.missing_worker(ANY) is None
    assert one.core.state.missing_worker(Demand(request_)) == command


def test_no_worker_by_hand_is_wanted_for_requests_that_the_scheduler_holds() -> None:
    one = play(5)
    assert one.core.state.missing_worker(Demand(Cores(1))) is None
    assert one.core.state.missing_worker(Demand(Cores(2))) == "gridengine worker NAME --cores 2"


@pytest.mark.parametrize(("held", "again"), [(8, True), (6, False)])
def test_a_call_out_of_memory_has_more_only_where_a_worker_holds_that(
    held: float, again: bool
) -> None:
    one = play()
    by_hand(one, b"w", Memory(held))
    ask(one, Memory(4), escalate_memory=2.0, retries=2)
    [run] = one.assigned()
    one.crash(run, 0, MEMORY)
    assert len(one.assigned(b"w")) == again
    assert len(one.seen(CallsFinished)) == (not again)
