"""Events for the I/O thread: in order, and it is woken when it sleeps."""

from __future__ import annotations

import logging
import os
import select
import threading
import weakref

import pytest

from gridengine.dispatcher.core.events import Closing, Rebalance, Tick
from gridengine.dispatcher.thread_queues import EventQueue, HelperThread
from tests.support.interrupts import at_each_point


def wakes(queue: EventQueue) -> bool:
    poller = select.poll()
    poller.register(queue.fd, select.POLLIN)
    return bool(poller.poll(0))


def test_events_keep_their_order() -> None:
    queue = EventQueue()
    queue.post(Tick())
    queue.extend([Rebalance(), Closing()])
    assert list(queue.events) == [Tick(), Rebalance(), Closing()]


def test_a_thread_that_does_not_sleep_is_not_woken() -> None:
    queue = EventQueue()
    queue.post(Tick())
    queue.extend([Tick()])
    queue.barrier()
    assert not wakes(queue)


def test_a_thread_that_sleeps_is_woken_by_whatever_comes_and_once_drained_sleeps_again() -> None:
    queue = EventQueue()
    for act in (lambda: queue.post(Tick()), lambda: queue.extend([Tick()]), queue.barrier):
        queue.sleeping = True
        act()
        assert wakes(queue)
        queue.drain()
        assert not wakes(queue)


def test_only_the_first_of_many_events_wakes_a_sleeping_thread() -> None:
    queue = EventQueue()
    queue.sleeping = True
    queue.post(Tick())
    queue.drain()
    queue.post(Tick())
    assert not wakes(queue)
    queue.sleeping = True
    queue.post(Tick())
    assert wakes(queue)


def test_after_a_ctrl_c_in_a_post_the_next_wakes_a_sleeping_thread() -> None:
    queue = EventQueue[Tick]()
    queue.sleeping = True
    for _ in at_each_point(lambda: queue.post(Tick())):
        queue.post(Tick())
        assert wakes(queue)
        queue.drain()
        queue.sleeping = True


def test_a_barrier_is_set_by_the_thread_alone() -> None:
    queue = EventQueue()
    done = queue.barrier()
    assert not done.is_set()
    queue.barriers.popleft()()
    assert done.is_set()


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")  # noqa: PTH110


def test_a_closed_queue_has_no_descriptor_and_wakes_nobody() -> None:
    queue = EventQueue[Tick]()
    queue.close()
    assert not is_open(queue.fd)
    queue.sleeping = True
    queue.post(Tick())
    queue.close()


def test_a_descriptor_that_a_thread_writes_to_is_closed_with_its_queue() -> None:
    queues = [EventQueue[Tick]()]
    fd = queues[0].fd
    queues[0]._set = lambda: queues[0].close()
    queues[0].wake()
    assert is_open(fd)
    queues.clear()
    assert not is_open(fd)


def test_requests_are_done_in_order_before_the_thread_ends() -> None:
    helper, done = HelperThread("helper"), []
    for number in range(100):
        helper.do(lambda number=number: done.append((number, helper.is_current())))  # type: ignore[misc]
    helper.end(wait=True)
    assert done == [(number, True) for number in range(100)]
    assert not helper.is_current()


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_exception_of_a_request_is_told_and_ends_no_other(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    helper, done = HelperThread("helper"), []
    helper.do(fail)
    helper.do(lambda: done.append(1))
    with caplog.at_level(logging.ERROR, logger="gridengine"):
        helper.end(wait=True)
    assert done == [1]
    assert "a request failed" in caplog.text


def test_a_helper_thread_may_end_itself_and_be_ended_twice() -> None:
    helper = HelperThread("helper")
    ended = threading.Event()

    def end() -> None:
        helper.end(wait=True)  # waits for nobody: it is this thread
        ended.set()

    helper.do(end)
    assert ended.wait(60)
    helper.end(wait=True)


def test_nothing_of_a_request_is_kept_once_it_is_done() -> None:
    class Request:
        def __call__(self) -> None:
            """Do nothing."""

    gone = threading.Event()
    helper, request = HelperThread("helper"), Request()
    weakref.finalize(request, gone.set)
    helper.do(request)
    del request
    assert gone.wait(60)
    helper.end(wait=True)
