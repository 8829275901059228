"""A fault of the core's books is found after the event that made it, and its message tells what led
to that.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gridengine.dispatcher.core.calls import Broken, Span
from gridengine.dispatcher.core.events import Tick
from gridengine.dispatcher.core.state import CoreState
from tests.support.core_play import Play


def add(name: str, of: Callable[[CoreState], object]) -> Callable[[CoreState], None]:
    """Return how to have a count be wrong by one."""

    def spoil(state: CoreState) -> None:
        one = of(state)
        setattr(one, name, getattr(one, name) + 1)

    return spoil


def first(many: dict[object, object]) -> object:
    return next(iter(many.values()))


def put_twice(state: CoreState) -> None:
    [one] = state.open_tasks.values()
    state.common_queue.put(Span(one, 0, 1, one.options.demand))


FAULTS: dict[str, Callable[[CoreState], None]] = {
    "a client's load": add("load", lambda state: state.own),
    "a client's calls": add("unsettled", lambda state: state.own),
    "a share": add("weight", lambda state: state.own),
    "a submitter's batches": add("batches", lambda state: first(state.submitters)),
    "the active clients": add("active_clients", lambda state: state),
    "a function's calls": add("running", lambda state: first(state.functions)),
    "a function's tasks": add("open", lambda state: first(state.objects)),
    "a task's calls": add("unsettled", lambda state: first(state.open_tasks)),
    "its inputs": add("missing", lambda state: first(state.open_tasks)),
    "a queue's slots": add("slots", lambda state: state.common_queue),
    "a queue's calls": add("calls", lambda state: state.common_queue),
    "a worker's batches": add("batches", lambda state: first(state.workers)),
    "a worker's calls": add("calls", lambda state: first(state.workers)),
    "a slot group's batches": add("batches", lambda state: first(state.workers).slot_groups[0]),
    "a provisioner's workers": add("workers", lambda state: state.common),
    "an idle worker": lambda state: state.common.idle.add(b"w"),
    "a retired function": lambda state: state.retired.update({b"square": 1}),
    "a run": lambda state: state.runs.clear(),
    "a call in two places": put_twice,
}


@pytest.mark.parametrize("spoil", FAULTS.values(), ids=list(FAULTS))
def test_a_fault_of_the_books_is_found(spoil: Callable[[CoreState], None]) -> None:
    play = Play()
    play.running(2)
    play.later(0.1, beats=[b"w"])
    spoil(play.core.state)
    with pytest.raises(Broken):
        play.play(Tick())


def test_the_message_of_an_invariant_tells_the_worker_s_events() -> None:
    play = Play()
    play.running()
    play.core.state.workers[b"w"].calls += 1
    with pytest.raises(Broken) as caught:
        play.later(20)
    first, *story = str(caught.value).splitlines()
    assert first == "what it has: (1, 2, 0) is kept, (1, 1, 0) is found"
    assert story == ["  100.000 Received: says Hello", "  120.000 Tick: ready, then silent"]


def test_a_core_that_is_not_checked_goes_on() -> None:
    play = Play(checked=False)
    play.running()
    play.core.state.own.load += 1
    play.play(Tick())
    assert play.core.state.story is None
