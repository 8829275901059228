"""Calls that save their state before their worker leaves, and go on elsewhere."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import DrainHosts, Launched, Restored, StateSaved
from gridengine.errors import OutOfMemory, TimeoutError
from gridengine.requests import CallsFinished, Submitted
from gridengine.resources.demand import Demand
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import (
    INTERRUPTED,
    TERMINATED,
    Assignment,
    Goodbye,
    LeaveBy,
    Leaving,
    Recall,
    Refuse,
    Result,
    Results,
    Saved,
    Stop,
)
from tests.support.core_play import SQUARE, Play, calls
from tests.support.tasks import make_task


def save(play: Play, one: Assignment, state: bytes = b"state", index: int | None = None) -> None:
    play.say(Saved(one.run, one.start if index is None else index), state)


def interrupt(play: Play, one: Assignment) -> None:
    index = one.start
    play.say(Results([Result(one.run, index, index + 1, INTERRUPTED, 1.0)]), b"error")


def elsewhere(play: Play) -> Assignment:
    """The assignment of the only call that waits, to a new worker."""
    play.play(Launched([Handle("42", "/runs/x/2.log")]))
    play.hello(b"v", pid=8, log="/runs/x/2.log")
    [one] = play.assigned(b"v")
    return one


def test_a_call_that_has_stopped_goes_on_elsewhere_with_its_state_and_is_charged_nothing() -> None:
    play = Play()
    one = play.running()
    save(play, one)
    interrupt(play, one)
    assert play.seen(CallsFinished) == []
    assert play.sent(Stop) == [Stop()]
    again = elsewhere(play)
    assert (again.attempt, again.saved, again.buffers) == (1, [(0, 1)], 2)
    assert play.core.state.retried == 0


def test_a_saved_state_replaces_the_one_before() -> None:
    play = Play()
    one = play.running()
    save(play, one, b"first")
    save(play, one, b"second")
    interrupt(play, one)
    elsewhere(play)
    [buffers] = [sent.buffers for sent in play.effects if getattr(sent, "buffers", ())][-1:]
    assert list(buffers) == [b"calls", b"second"]


def test_a_state_is_dropped_when_its_call_has_ended() -> None:
    play = Play()
    one = play.running()
    save(play, one)
    play.done(one)
    assert play.core.state.saved == {}


def test_a_state_of_a_run_that_has_ended_is_dropped() -> None:
    play = Play()
    one = play.running()
    play.done(one)
    save(play, one)
    assert play.core.state.saved == {}
    assert play.sent(Refuse) == []


def test_a_worker_that_saves_for_a_call_that_it_does_not_have_is_refused() -> None:
    play = Play()
    save(play, play.running(), index=5)
    assert len(play.sent(Refuse)) == 1


def test_a_retry_after_a_crash_finds_the_state_and_is_charged() -> None:
    play = Play()
    one = play.running(retries=1)
    save(play, one)
    play.crash(one, 0)
    [again] = play.assigned()
    assert (again.attempt, again.saved) == (2, [(0, 1)])


def test_a_call_may_stop_though_it_may_run_only_once() -> None:
    play = Play()
    one = play.running(retries=0)
    interrupt(play, one)
    assert elsewhere(play).attempt == 1


def test_the_call_that_stops_is_found_among_those_assigned_with_it() -> None:
    play = Play()
    play.learn(0.001)
    play.submit(9)
    one = play.assigned()[0]
    assert one.stop - one.start > 1
    play.values(one, 0, 1)
    save(play, one, index=1)
    play.say(Results([Result(one.run, 1, 2, INTERRUPTED, 1.0)]), b"error")
    assert play.sent(Recall) != []
    assert play.core.state.saved == {one.task: {1: [b"state"]}}


# ------------------------------------------------------------------ walltime


def test_a_worker_is_told_when_it_leaves() -> None:
    play = Play(walltime=100.0)
    play.running()
    assert play.sent(LeaveBy) == [LeaveBy(90.0)]


def test_a_worker_without_a_walltime_is_told_nothing() -> None:
    play = Play()
    play.running()
    assert play.sent(LeaveBy) == []


@pytest.mark.parametrize("saved", [False, True])
def test_a_call_at_the_end_of_its_worker_s_life_runs_again_if_it_has_saved(saved: bool) -> None:
    play = Play(walltime=100.0, beat_seconds=1000.0)
    one = play.running(retries=1)
    if saved:
        save(play, one)
    play.later(91.0)
    ended = play.seen(CallsFinished)
    assert [type(each.error) for each in ended] == [] if saved else [TimeoutError]
    if saved:
        again = elsewhere(play)
        assert (again.attempt, again.saved) == (1, [(0, 1)])


def test_a_call_that_stops_at_the_end_of_a_worker_s_life_and_has_saved_nothing_fails() -> None:
    play = Play(walltime=100.0, beat_seconds=1000.0)
    one = play.running()
    play.now += 85.0
    interrupt(play, one)
    [ended] = play.seen(CallsFinished)
    assert (ended.raised, list(ended.payload or ())) == (True, [b"error"])


# ------------------------------------------------------------------ signals


def test_a_worker_that_waits_for_its_calls_is_assigned_nothing() -> None:
    play = Play()
    one = play.running()
    play.submit()
    play.say(Leaving())
    interrupt(play, one)
    assert play.assigned() == []
    assert play.sent(Stop) == [Stop()]


def test_a_call_that_has_saved_is_charged_nothing_when_a_signal_ends_its_worker() -> None:
    play = Play()
    one = play.running(retries=1)
    save(play, one)
    play.say(Goodbye(TERMINATED, [one.run]))
    again = elsewhere(play)
    assert (again.attempt, again.saved) == (1, [(0, 1)])


def test_a_call_that_has_saved_nothing_is_charged() -> None:
    play = Play()
    one = play.running(retries=1)
    play.say(Goodbye(TERMINATED, [one.run]))
    assert elsewhere(play).attempt == 2


def test_a_call_whose_worker_ran_out_of_memory_goes_on_from_its_state() -> None:
    play = Play(pooled=True)
    one = play.running(retries=1)
    save(play, one)
    play.say(Goodbye(TERMINATED, [one.run]))
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.FAILED, fault=OutOfMemory)
    play.later(2.0)
    assert elsewhere(play).attempt == 2


# ------------------------------------------------------------------ drain


def test_calls_on_a_host_that_is_drained_are_told_to_stop() -> None:
    play = Play()
    play.running()
    play.play(DrainHosts(frozenset({"node-w"})))
    assert play.sent(LeaveBy) == [LeaveBy(None)]


def test_a_worker_of_another_language_is_told_nothing() -> None:
    play = Play(keeps_others=True)
    play.hello(functions=["square"], version="", python="")
    play.submit(demand=Demand(function="square"))
    assert play.assigned() != []
    play.play(DrainHosts(frozenset({"node-w"})))
    assert play.sent(LeaveBy) == []


def test_a_call_that_stops_there_is_charged_nothing_though_it_saved_nothing() -> None:
    play = Play()
    one = play.running()
    play.play(DrainHosts(frozenset({"node-w"})))
    play.now += 500.0
    interrupt(play, one)
    assert calls([elsewhere(play)]) == [(one.task, 0, 1)]


def restored(saved: dict[int, dict[int, bytes]]) -> Play:
    """A core that goes on with a task of three calls, of which the first is settled."""
    play = Play(epoch=2)
    states = {task: {one: (state,) for one, state in its.items()} for task, its in saved.items()}
    task = make_task(1, (b"calls",), 3)
    play.play(Restored([Submitted(SQUARE, [task])], {1: [(0, 1)]}, saved=states))
    return play


def test_a_dispatcher_that_was_started_again_hands_out_the_states_of_before() -> None:
    play = restored({1: {1: b"state"}})
    play.hello()
    [one] = play.assigned()
    assert (one.start, one.saved, one.buffers) == (1, [(1, 1)], 2)


def test_states_of_calls_that_have_ended_before_a_restart_are_dropped() -> None:
    play = restored({1: {0: b"settled"}, 9: {0: b"no such task"}})
    assert play.seen(StateSaved) == [StateSaved(1, 0, None), StateSaved(9, 0, None)]
    assert play.core.state.saved == {}


def test_the_journal_is_told_of_each_state_and_of_its_end() -> None:
    play = Play()
    one = play.running()
    save(play, one)
    assert play.seen(StateSaved) == [StateSaved(one.task, 0, [b"state"])]
    play.done(one)
    assert play.seen(StateSaved) == [StateSaved(one.task, 0, None)]
