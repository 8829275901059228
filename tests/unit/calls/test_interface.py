"""Whether a call that makes calls has its slot, as its threads begin and end to wait."""

from __future__ import annotations

import queue
import threading

import pytest

from gridengine.calls.interface import CallSlot, WithoutSlot
from gridengine.wire.messages import Message, Resumes, Waits
from tests.support.waiting import wait_until

RUNNER, RUN = 7, 42


class Played:
    """A slot, what it says, and those who wait for it."""

    def __init__(self, run: int = RUN) -> None:
        self.sent: list[Message] = []
        self.slot = CallSlot(RUNNER, lambda: run, self.sent.append)

    def waiter(self) -> threading.Semaphore:
        return threading.Semaphore(0)

    def go_on(self) -> threading.Semaphore | None:
        """Have one wait no more; return what it waits with for the slot, if it has to."""
        waiter = self.waiter()
        return waiter if self.slot.take_again(waiter) else None


def is_free(waiter: threading.Semaphore | None) -> bool:
    return waiter is not None and waiter.acquire(blocking=False)


def test_a_call_that_waits_says_so_and_waits_for_its_slot_before_it_goes_on() -> None:
    one = Played()
    one.slot.give_back()
    assert one.sent == [Waits(RUNNER, RUN)]
    waiter = one.go_on()
    assert one.sent[1:] == [Resumes(RUNNER, RUN)]
    assert not is_free(waiter)
    one.slot.resumed()
    assert is_free(waiter)


def test_a_call_has_no_slot_while_one_of_its_threads_waits() -> None:
    one = Played()
    one.slot.give_back()
    one.slot.give_back()
    assert one.go_on() is None  # the other may wait for this one
    assert one.sent == [Waits(RUNNER, RUN)]
    assert one.go_on() is not None
    assert one.sent[1:] == [Resumes(RUNNER, RUN)]


def test_a_call_that_begins_to_wait_while_it_asks_for_its_slot_gives_it_back() -> None:
    one = Played()
    one.slot.give_back()
    waiter = one.go_on()
    one.slot.give_back()
    assert len(one.sent) == 2
    one.slot.resumed()
    assert is_free(waiter)
    assert one.sent[2:] == [Waits(RUNNER, RUN)]


def test_a_call_that_may_not_wait_keeps_its_slot_and_may_ask_again() -> None:
    one = Played()
    one.slot.give_back()
    assert one.slot.refuse(RecursionError("too deep"))
    assert one.go_on() is None
    one.slot.check()
    one.slot.give_back()
    assert one.sent == [Waits(RUNNER, RUN)] * 2


def test_a_call_is_told_once_that_its_resources_are_taken() -> None:
    one = Played()
    one.slot.give_back()
    waiter = one.go_on()
    assert not one.slot.refuse(LookupError("gone"))
    assert is_free(waiter)
    with pytest.raises(LookupError, match="gone"):
        one.slot.check()
    one.slot.check()


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    one = Played()
    one.slot.resumed()
    one.slot.give_back()
    one.slot.resumed()
    assert one.go_on() is not None


def test_nobody_waits_for_the_slot_of_a_call_that_has_ended() -> None:
    one = Played()
    one.slot.give_back()
    waiter = one.go_on()
    one.slot.give_back()
    one.slot.close()
    assert is_free(waiter)
    assert one.go_on() is None
    one.slot.give_back()
    assert len(one.sent) == 2


def test_a_process_without_calls_has_no_slot_to_give_back() -> None:
    one = Played(run=0)
    one.slot.give_back()
    assert one.go_on() is None
    assert one.sent == []


def test_a_wait_that_is_over_too_soon_goes_on_at_once() -> None:
    one = Played()
    with WithoutSlot(one.slot) as wait:
        wait.expired = True
    with pytest.raises(queue.Empty), WithoutSlot(one.slot):
        raise queue.Empty
    assert one.sent == [Waits(RUNNER, RUN), Resumes(RUNNER, RUN)]  # it is still asked for
    one.slot.resumed()
    with pytest.raises(queue.Empty), WithoutSlot(one.slot):
        raise queue.Empty
    assert len(one.sent) == 4


def test_a_wait_ends_once_there_is_a_slot() -> None:
    one = Played()
    ended = threading.Event()

    def wait() -> None:
        with WithoutSlot(one.slot):
            pass
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: Resumes(RUNNER, RUN) in one.sent)
    assert not ended.is_set()
    one.slot.resumed()
    thread.join()
    assert ended.is_set()


def test_without_a_slot_nothing_is_done() -> None:
    with WithoutSlot(None) as wait:
        wait.expired = True
