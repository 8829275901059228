"""Who waits for calls that have ended is woken, whatever others do who wait for them too."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

import gridengine
from tests.support.held_dispatcher import SECONDS, HeldDispatcher, run_all, square


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


def test_what_is_given_back_of_a_held_condition_keeps_no_other_waiting(
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
