"""Tasks of asyncio and trio wait for other threads."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from gridengine.client.loop_tasks import (
    TaskWaiter,
    cancellation_type,
    checkpoint,
    in_thread,
    task_waiter,
)
from tests.support.event_loops import LOOPS, cancelled_once, run_in

loops = pytest.mark.parametrize("loop", LOOPS)


def test_without_a_loop_nothing_can_be_waited_for() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        task_waiter()


@loops
def test_another_thread_ends_the_waiting(loop: str) -> None:
    async def wait() -> None:
        waiter = task_waiter()
        threading.Thread(target=waiter.release).start()
        await waiter.wait()
        await waiter.wait()

    run_in(loop, wait)


@loops
def test_a_waiter_released_before_is_not_waited_for(loop: str) -> None:
    async def wait() -> None:
        waiter = task_waiter()
        waiter.release()
        await checkpoint()
        await waiter.wait()

    run_in(loop, wait)


@loops
def test_the_waiting_ends_in_time_and_can_go_on(loop: str) -> None:
    async def wait() -> None:
        waiter = task_waiter()
        await waiter.wait(0.001)
        waiter.release()
        await waiter.wait()

    run_in(loop, wait)


@loops
def test_a_release_after_the_loop_has_ended_is_ignored(loop: str) -> None:
    async def make() -> TaskWaiter:
        return task_waiter()

    run_in(loop, make).release()


@loops
def test_a_release_after_the_task_was_cancelled_is_ignored(loop: str) -> None:
    async def main() -> None:
        async def wait() -> None:
            waiters.append(task_waiter())
            await waiters[0].wait()

        waiters: list[TaskWaiter] = []
        await cancelled_once(wait, lambda: waiters)
        waiters[0].release()
        await checkpoint()

    run_in(loop, main)


@loops
def test_an_exception_of_the_thread_is_raised(loop: str) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_in(loop, in_thread, fail, fail)


@loops
def test_a_cancelled_task_has_what_it_waits_for_end_and_waits_for_that(loop: str) -> None:
    begun, interrupted, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        interrupted.wait()
        ended.set()

    async def main() -> None:
        await cancelled_once(lambda: in_thread(block, interrupted.set), begun.is_set)
        assert ended.is_set()

    run_in(loop, main)


def test_a_cancelled_call_is_what_its_loop_knows_as_cancelled() -> None:
    async def kind() -> type[BaseException]:
        return cancellation_type()

    assert run_in("asyncio", kind).__module__ == "asyncio.exceptions"
    assert run_in("trio", kind) is CancelledError
