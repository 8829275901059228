"""Calls and executors end: who waits is woken, and what was made is closed."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

import gridengine
from gridengine.client.executor_lifetime import CallTally, Lifetime
from gridengine.errors import ConfigurationError
from tests.support.held_dispatcher import SECONDS, HeldDispatcher, run_all, square


class Scheduler:
    """Knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.times = 0

    def close(self) -> None:
        self.times += 1
        self.closed.set()


class Calls(Lifetime):
    """Calls that begin and end when a test says so."""

    def __init__(self, scheduler: Any, *, ours: bool = True, daemon: bool = False) -> None:
        super().__init__(scheduler, ours=ours, daemon=daemon)
        self.killed = False

    def begin(self, count: int) -> None:
        with self.lock:
            self._open += count

    def end(self, count: int) -> None:
        with self.lock:
            self._note_ended(count)

    def kill_all(self) -> None:
        self.killed = True
        self.end(self._open)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def test_a_scheduler_of_its_own_is_closed_once_though_closed_twice(scheduler: Scheduler) -> None:
    calls = Calls(scheduler)
    calls.close(wait=True)
    calls.close(wait=True)
    calls.close(wait=False)
    assert scheduler.times == 1


def test_a_ctrl_c_as_a_wait_lets_its_lock_go_leaves_it_to_the_thread_that_has_it_by_then(
    scheduler: Scheduler,
) -> None:
    calls, held, go_on = Calls(scheduler), threading.Event(), threading.Event()
    calls.begin(1)

    def hold() -> None:
        with calls.lock:
            held.set()
            go_on.wait(SECONDS)

    other = threading.Thread(target=hold)
    let_go = calls._all_ended._release_save  # type: ignore[attr-defined]

    def interrupted() -> None:
        let_go()
        other.start()
        assert held.wait(SECONDS)
        raise KeyboardInterrupt

    calls._all_ended._release_save = interrupted  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        calls.join()
    assert not calls.lock.acquire(blocking=False)
    go_on.set()
    other.join()
    calls.end(1)


def test_a_scheduler_of_others_stays_open(scheduler: Scheduler) -> None:
    Calls(scheduler, ours=False).close(wait=True)
    assert scheduler.times == 0


def test_a_shutdown_without_waiting_closes_after_the_last_call(scheduler: Scheduler) -> None:
    calls = Calls(scheduler)
    calls.begin(2)
    calls.close(wait=False)
    calls.end(1)
    assert not calls.join(0)
    assert scheduler.times == 0
    calls.end(1)
    assert calls.join(SECONDS)
    assert scheduler.closed.wait(SECONDS)


def test_a_waiting_shutdown_ends_with_the_last_call(scheduler: Scheduler) -> None:
    calls = Calls(scheduler)
    calls.begin(1)
    closing = threading.Thread(target=calls.close, kwargs={"wait": True})
    closing.start()
    calls.end(1)
    closing.join(SECONDS)
    assert (closing.is_alive(), scheduler.times) == (False, 1)


def test_nothing_is_taken_once_it_is_closed_broken_or_in_a_fork(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(scheduler)
    calls.check()
    here = os.getpid()
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: here + 1)
        with pytest.raises(ConfigurationError, match="forked"):
            calls.check()
        calls.close(wait=True)
        assert scheduler.times == 0
    calls.stop()
    with pytest.raises(RuntimeError, match="after shutdown"):
        calls.check()
    calls.broken = "its initializer failed"
    with pytest.raises(BrokenProcessPool, match="its initializer failed"):
        calls.check()
    calls.close(wait=True)


def test_callbacks_run_in_a_thread_of_theirs_in_order_and_here_once_that_has_ended(
    scheduler: Scheduler,
) -> None:
    calls, done = Calls(scheduler), []

    def note() -> None:
        done.append(calls.is_callback_thread())
        if len(done) == 1:
            calls.call_back(note)  # at once: this is it

    calls.call_back(note)
    calls.call_back(note)
    calls.close(wait=True)
    assert done == [True] * 3
    calls.call_back(note)
    calls.do_soon(note)
    assert done[3:] == [False] * 2


@pytest.mark.parametrize("daemon", [False, True])
def test_the_end_of_the_interpreter_waits_for_calls_or_ends_them(
    scheduler: Scheduler, daemon: bool
) -> None:
    calls = Calls(scheduler, daemon=daemon)
    calls.begin(1)
    if not daemon:
        calls.end(1)
    calls._at_exit()
    assert (calls.killed, scheduler.times) == (daemon, 1)


def test_an_exception_that_ends_the_interpreter_waits_for_nothing(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(scheduler)
    calls.begin(1)
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    monkeypatch.delattr(sys, "ps1", raising=False)
    calls._at_exit()
    assert scheduler.times == 0
    calls.end(1)
    calls.close(wait=True)


def test_callbacks_do_not_run_in_the_thread_that_brings_results(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    threads: list[threading.Thread] = []
    come = threading.Event()
    waiting.submit(square, 3).add_done_callback(
        lambda _: (threads.append(threading.current_thread()), come.set())
    )
    run_all(waiting)
    assert come.wait(SECONDS)
    assert threads != [threading.current_thread()]


def test_a_future_whose_condition_is_held_keeps_no_other_from_its_result(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    held, other = waiting.submit(square, 2), waiting.submit(square, 3)
    brings = threading.Thread(target=dispatcher.run_what_is_there, daemon=True)
    with held._condition:  # as by who was interrupted in `concurrent.futures.wait`
        brings.start()
        assert other.result(SECONDS) == 9
        assert waiting.submit(square, 4).running()
        assert not held.done()
    assert held.result(SECONDS) == 4
    brings.join()


def test_a_recalled_call_with_a_held_condition_keeps_no_other_waiting(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    dispatcher.slots = 0
    held, other = waiting.submit(square, 2), waiting.submit(square, 3)
    ends = threading.Thread(
        target=waiting.shutdown, kwargs={"wait": False, "cancel_futures": True}, daemon=True
    )
    with held._condition:
        ends.start()
        ends.join(SECONDS)
        assert other.cancelled()
    with pytest.raises(CancelledError):
        held.result(SECONDS)


def test_a_tally_begins_anew_once_all_have_ended() -> None:
    woken: list[int] = []
    tally = CallTally(lambda: woken.append(1), lambda: None, restarts=True)
    tally.add(2)
    tally.end(1, failed=True)
    tally.add(1)
    tally.end(1, failed=False)
    tally.withdraw(1)
    assert (tally.total, tally.done, tally.failed, tally.is_open) == (2, 2, 1, False)
    tally.add(5)
    assert (tally.total, tally.done, tally.failed, tally.number) == (5, 0, 0, 2)
    assert woken == [1, 1]
    tally.end(5, failed=False)
    tally.watched = True
    tally.add(1)
    assert (woken, tally.number) == ([1, 1], 3)


def test_a_tally_without_a_new_beginning_goes_on_counting() -> None:
    tally = CallTally(lambda: None, lambda: None, restarts=False)
    for _ in range(2):
        tally.add(3)
        tally.end(3, failed=False)
    assert (tally.total, tally.done) == (6, 6)
