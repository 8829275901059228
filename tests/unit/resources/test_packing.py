"""Which task begins where, and who waits for whom."""

from __future__ import annotations

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import Cores, Memory, Resource, Token, WTime
from gridengine.resources.packing import Packer


def packer(*offers: Resource, **holders: Resource) -> Packer[str, str]:
    """Return a packer with these holders; a large task may be overtaken for a minute."""
    made: Packer[str, str] = Packer(offers, overtake_seconds=60)
    for name, resources in holders.items():
        made.open(name, resources, 0.0)
    return made


def places(packer: Packer[str, str], now: float = 0.0) -> list[tuple[str, str]]:
    return [(placed.task, placed.holder) for placed in packer.place(now)]


def add(packer: Packer[str, str], now: float = 0.0, **tasks: Resource) -> None:
    for task, request in tasks.items():
        packer.add(task, request, now)


def end(packer: Packer[str, str], *tasks: str) -> None:
    for task in tasks:
        packer.remove(task)


def overtaken(*offers: Resource) -> Packer[str, str]:
    """Return a packer of four cores where `large`, which wants them all, was overtaken at time 0;
    `small` and `other` run.
    """
    made = packer(*offers, node=Cores(4))
    add(made, small=Cores(1))
    places(made)
    add(made, large=Cores(4), other=Cores(1))
    assert places(made) == [("other", "node")]
    return made


# -------------------------------------------------------------------- what can never be


@pytest.mark.parametrize(
    "request_", [Cores(5), Cores(1) & Memory(1), Token("fast"), WTime(61)], ids=repr
)
def test_a_request_that_no_holder_can_hold_is_an_error_at_once(request_: Resource) -> None:
    made: Packer[str, str] = Packer([Cores(4) & WTime(60)])
    made.open("node", Cores(2), 0.0)
    if request_ == WTime(61):
        made.shut("node")
    with pytest.raises(
        ConfigurationError, match=r"no worker can ever hold .*: they hold .*Cores\(4\) & WTime"
    ) as caught:
        made.add("one", request_, 0.0)
    assert caught.value.hint is not None
    assert "worker_resources= of the scheduler" in caught.value.hint
    assert made.waiting == 0


def test_without_any_holder_nothing_can_be_held() -> None:
    with pytest.raises(ConfigurationError, match="they hold nothing"):
        packer().add("one", Cores(1), 0.0)


# -------------------------------------------------------------------- who may overtake, and how
# long


def test_after_a_minute_and_no_sooner_the_holder_drains_for_it() -> None:
    made = overtaken()
    add(made, 59.0, early=Cores(1))
    assert places(made, 59.0) == [("early", "node")]
    made.remove("early")
    add(made, 60.0, late=Cores(1))
    assert places(made, 60.0) == []
    made.remove("small")
    assert places(made, 70.0) == []
    made.remove("other")
    assert places(made, 80.0) == [("large", "node")]
    made.remove("large")
    assert places(made, 90.0) == [("late", "node")]


def test_only_one_holder_drains_and_the_one_that_is_used_least() -> None:
    made = packer(a=Cores(4), b=Cores(4))
    add(made, one=Cores(3), two=Cores(2), large=Cores(4), three=Cores(1))
    assert places(made) == [("one", "a"), ("two", "b"), ("three", "a")]
    made.remove("three")
    add(made, 60.0, four=Cores(2), five=Cores(1))
    assert places(made, 60.0) == [("five", "a")]


def test_a_holder_that_could_never_hold_it_does_not_drain() -> None:
    made = packer(small=Cores(2), large=Cores(4))
    add(made, one=Cores(1), two=Cores(1), three=Cores(1), big=Cores(4), four=Cores(1))
    places(made)
    made.remove("one")
    add(made, 60.0, five=Cores(1), six=Cores(1))
    assert places(made, 60.0) == [("five", "small")]


def test_a_task_that_needs_not_wait_any_more_lets_the_others_in() -> None:
    made = overtaken()
    add(made, 60.0, late=Cores(1))
    places(made, 60.0)
    made.remove("large")
    assert places(made, 60.0) == [("late", "node")]


def test_when_the_draining_holder_has_gone_another_drains() -> None:
    made = overtaken()
    places(made, 60.0)
    assert sorted(made.shut("node")) == ["other", "small"]
    made.open("next", Cores(4), 61.0)
    made.open("more", Cores(4), 61.0)
    add(made, 61.0, late=Cores(1))
    assert places(made, 61.0) == [("large", "next"), ("late", "more")]


@pytest.mark.parametrize("looked_between", [True, False])
def test_a_holder_that_comes_later_may_drain(looked_between: bool) -> None:
    made = overtaken(Cores(4))
    places(made, 60.0)
    made.shut("node")
    if looked_between:
        assert places(made, 60.0) == []
    made.open("next", Cores(4), 61.0)
    made.add("again", Cores(1), 61.0, order=1)
    add(made, 61.0, late=Cores(1))
    assert places(made, 61.0) == [("again", "next")]


def test_a_holder_drains_for_the_first_task_whose_time_has_come() -> None:
    made = overtaken()
    places(made, 60.0)
    made.add("again", Cores(4) & WTime(9), 70.0, order=1)
    places(made, 70.0)
    places(made, 130.0)
    made.remove("large")
    add(made, 131.0, late=Cores(1))
    assert places(made, 131.0) == []
    end(made, "small", "other")
    assert places(made, 132.0) == [("again", "node")]


def test_no_worker_is_drained_for_a_task_that_nobody_overtook() -> None:
    made = packer(node=Cores(4))
    add(made, one=Cores(1))
    places(made)
    add(made, large=Cores(4))
    assert places(made) == []
    add(made, 1000.0, late=Cores(1))
    assert places(made, 1000.0) == [("late", "node")]


def test_a_follower_in_the_same_queue_that_was_not_overtaken_has_a_minute_of_its_own() -> None:
    made = overtaken()
    add(made, second=Cores(4))
    end(made, "small", "other")
    assert places(made, 60.0) == [("large", "node")]
    made.remove("large")
    made.add("again", Cores(1), 61.0, order=1)
    add(made, 61.0, late=Cores(1))
    assert places(made, 61.0) == [("again", "node"), ("late", "node")]


def test_a_task_that_waits_anew_has_a_minute_anew() -> None:
    made = overtaken()
    made.remove("large")
    made.add("large", Cores(4), 60.0, order=2)
    add(made, 60.0, late=Cores(1))
    assert places(made, 60.0) == [("late", "node")]


def test_a_follower_that_was_overtaken_too_need_not_wait_for_another_minute() -> None:
    made = packer(node=Cores(4))
    add(made, one=Cores(1), large=Cores(4), second=Cores(4), two=Cores(1))
    places(made)
    end(made, "one", "two")
    assert places(made, 60.0) == [("large", "node")]
    made.remove("large")
    add(made, 60.0, late=Cores(1))
    made.add("first", Cores(1), 60.0, order=1)
    assert places(made, 60.0) == [("first", "node")]


def test_with_no_seconds_nobody_overtakes() -> None:
    made: Packer[str, str] = Packer([Cores(4)], overtake_seconds=0)
    made.open("node", Cores(4), 0.0)
    add(made, one=Cores(1), large=Cores(4), two=Cores(1))
    assert places(made) == [("one", "node")]


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_negative_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="overtake_seconds must not be negative, not"):
        Packer(overtake_seconds=seconds)


# -------------------------------------------------------------------- time


def test_a_holder_whose_time_runs_out_stops_draining() -> None:
    made = packer(node=Cores(4) & WTime(100))
    add(made, one=Cores(1), long=Cores(4) & WTime(30), two=Cores(1))
    places(made)
    add(made, 60.0, late=Cores(1))
    assert places(made, 60.0) == []
    assert places(made, 70.0) == []
    assert places(made, 71.0) == [("late", "node")]


# -------------------------------------------------------------------- what comes and goes


def test_the_rest_of_a_task_is_tried_next() -> None:
    made = packer(node=Cores(2))
    add(made, calls=Cores(1), later=Cores(1))
    begun = []
    for placed in made.place(0.0):
        begun.append(placed.task)
        if placed.task == "calls":
            made.add("rest", Cores(1), 0.0, order=placed.order)
    assert begun == ["calls", "rest"]


def test_a_task_that_is_not_known_may_be_removed() -> None:
    made = packer(node=Cores(1))
    made.remove("one")
    assert made.waiting == 0


def test_a_task_added_twice_is_an_error() -> None:
    made = packer(node=Cores(1))
    add(made, one=Cores(1))
    with pytest.raises(ValueError, match="'one' is here already"):
        add(made, one=Cores(1))


def test_a_holder_opened_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="'node' is open already"):
        packer(node=Cores(1)).open("node", Cores(1), 0.0)


def test_a_round_that_is_broken_off_notes_overtaken_tasks() -> None:
    made = packer(node=Cores(4))
    add(made, one=Cores(1), large=Cores(4), two=Cores(1), three=Cores(1))
    for placed in made.place(0.0):
        if placed.task == "two":
            break
    add(made, 60.0, late=Cores(1))
    assert places(made, 60.0) == []


def test_a_task_is_placed_at_one_holder_before_all_that_wait_if_there_is_room() -> None:
    made = packer(a=Cores(1), b=Cores(2))
    add(made, one=Cores(1), two=Cores(2), three=Cores(2))
    assert places(made) == [("one", "a"), ("two", "b")]
    assert made.place_at("a", "again", Cores(1), 0.0) is None
    made.remove("two")
    placed = made.place_at("b", "again", Cores(1), 0.0)
    assert placed is not None
    assert (placed.holder, placed.given) == ("b", Cores(1, [0]))
    assert places(made) == []
    made.remove("again")
    assert places(made) == [("three", "b")]


def test_a_holder_that_refuses_a_task_is_tried_again_once_it_is_reconsidered() -> None:
    refused = {("one", "a")}
    made: Packer[str, str] = Packer([Cores(1)], admits=lambda *pair: pair not in refused)
    made.open("a", Cores(1), 0.0)
    made.add("one", Cores(1), 0.0)
    assert places(made) == []
    made.add("other", Cores(1), 0.0, kind="of another queue")
    assert places(made) == [("other", "a")]
    made.remove("other")
    refused.clear()
    assert places(made) == [("one", "a")]


def test_a_holder_that_no_longer_admits_a_task_does_not_drain_for_it() -> None:
    refused: set[tuple[str, str]] = set()
    made: Packer[str, str] = Packer(None, admits=lambda *pair: pair not in refused)
    made.open("a", Cores(4), 0.0)
    add(made, small=Cores(1))
    places(made)
    add(made, large=Cores(4), other=Cores(1))
    assert places(made) == [("other", "a")]
    add(made, 61.0, late=Cores(1))
    assert places(made, 61.0) == []
    refused.add(("large", "a"))
    made.reconsider("a")
    assert places(made, 62.0) == [("late", "a")]
