"""Submitted calls, until their listener has their outcome."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator

import pytest

from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import Cancelled
from gridengine.requests import CallsFinished, TaskBegan, TaskMessage
from tests.support.tasks import make_task


class Listening:
    def __init__(self, *, daemon: bool = True) -> None:
        self.daemon = daemon
        self.events: list[CallsFinished] = []
        self.restarts = 0

    def settled(self, event: CallsFinished) -> None:
        self.events.append(event)

    def began(self, event: TaskBegan) -> None: ...
    def noted(self, event: TaskMessage) -> None: ...
    def restarted(self) -> None:
        self.restarts += 1


def test_unsettled_calls_fail_once() -> None:
    tasks, listener = UnsettledTasks(), Listening()
    tasks.add([make_task(1, [], 6), make_task(2, [], 1)], listener)
    tasks.settle(CallsFinished(1, 2, 3, []))
    tasks.settle(CallsFinished(1, 3, 5, []))
    tasks.settle(CallsFinished(2, 0, 1, [], last=True))
    listener.events.clear()
    assert list(tasks.fail(Cancelled("x"))) == []
    assert [(one.task, one.start, one.stop, one.last) for one in listener.events] == [
        (1, 0, 2, False),
        (1, 5, 6, True),
    ]
    assert {one.exitcode for one in listener.events} == {1}


def test_calls_that_were_settled_in_any_order_are_not_failed_again() -> None:
    tasks, listener = UnsettledTasks(), Listening()
    tasks.add([make_task(1, [], 6)], listener)
    tasks.settle(CallsFinished(1, 4, 5, []))
    tasks.settle(CallsFinished(1, 1, 2, []))
    assert tasks.left(1) == [(0, 1), (2, 4), (5, 6)]


def test_an_outcome_of_a_task_that_is_not_there_is_dropped() -> None:
    tasks = UnsettledTasks()
    tasks.settle(CallsFinished(7, 0, 1, []))
    assert tasks.listener(7) is None


def test_only_tasks_that_are_not_daemon_are_waited_for_unless_all_is_cleared() -> None:
    tasks, job = UnsettledTasks(), Listening(daemon=False)
    asked: list[bool] = []

    def give_up() -> bool:
        asked.append(True)
        tasks.settle(CallsFinished(2, 0, 1, [], last=True))
        return False

    tasks.add([make_task(1, [], 1)], Listening())
    tasks.wait_for_jobs(lambda: False)
    tasks.add([make_task(2, [], 1)], job)
    tasks.wait_for_jobs(give_up)
    assert asked
    tasks.add([make_task(3, [], 1)], job)
    tasks.clear()
    tasks.wait_for_jobs(lambda: False)


def test_each_listener_is_told_once_that_the_dispatcher_is_a_new_process() -> None:
    tasks, listener, ended = UnsettledTasks(), Listening(), Listening()
    tasks.add([make_task(1, [], 1), make_task(2, [], 1)], listener)
    tasks.add([make_task(3, [], 1)], ended)
    tasks.settle(CallsFinished(3, 0, 1, [], last=True))
    tasks.restarted()
    assert (listener.restarts, ended.restarts) == (1, 0)


@pytest.fixture
def busy() -> Iterator[None]:
    """Threads take turns after each few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_tasks_may_be_added_while_all_listeners_are_told_of_a_new_process() -> None:
    tasks, listener, adding = UnsettledTasks(), Listening(), True

    def add() -> None:
        for number in itertools.count(1):
            tasks.add([make_task(number, [], 1)], listener)
            tasks.settle(CallsFinished(number - 50, 0, 1, [], last=True))
            begun.set()
            if not adding:
                return

    thread, begun = threading.Thread(target=add), threading.Event()
    thread.start()
    begun.wait()
    try:
        for _ in range(2_000):
            tasks.restarted()
    finally:
        adding = False
        thread.join()
