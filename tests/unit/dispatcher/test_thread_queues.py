"""Events for the I/O thread: in order, and it is woken when it sleeps."""

from __future__ import annotations

import os
import select

from gridengine.dispatcher.core.events import Closing, Rebalance, Tick
from gridengine.dispatcher.thread_queues import EventQueue


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
