"""Tasks of the event loop that runs, asyncio's or trio's."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from gridengine.client.loop_tasks import (
    TaskWaiter,
    cancellation_type,
    check_async,
    checkpoint,
    in_thread,
    start_task,
    task_group,
    task_waiter,
    value_of,
)
from tests.support.event_loops import LOOPS, cancelled_once, run_in, until

loops = pytest.mark.parametrize("loop", LOOPS)


async def double(x: int) -> int:
    await checkpoint()
    return 2 * x


async def fail() -> None:
    await checkpoint()
    raise KeyError("no")


@loops
def test_a_group_ends_when_all_its_tasks_have(loop: str) -> None:
    async def main() -> list[int]:
        async with task_group() as start:
            for x in range(3):
                start(note, x)
        return found

    async def note(x: int) -> None:
        found.append(await double(x))

    found: list[int] = []
    assert sorted(run_in(loop, main)) == [0, 2, 4]


@loops
def test_the_error_of_one_ends_the_others(loop: str) -> None:
    async def main() -> None:
        async with task_group() as start:
            start(for_ever)
            start(fail)

    async def for_ever() -> None:
        while True:
            await checkpoint()

    with pytest.raises(ExceptionGroup) as raised:
        run_in(loop, main)
    assert [type(one) for one in raised.value.exceptions] == [KeyError]


@loops
def test_a_task_has_a_future_of_its_result_or_its_error(loop: str) -> None:
    async def main() -> None:
        good, bad = start_task(double, 4), start_task(fail)
        assert await value_of(good) == 8
        with pytest.raises(KeyError):
            await value_of(bad)
        assert await value_of(good) == 8  # of one that is done

    run_in(loop, main)


@loops
def test_a_task_ended_by_the_end_of_its_loop_is_cancelled(loop: str) -> None:
    async def main() -> None:
        futures.append(start_task(for_ever))
        await until(lambda: begun)

    async def for_ever() -> None:
        begun.append(True)
        while True:
            await checkpoint()

    futures: list[Future[Any]] = []
    begun: list[bool] = []
    run_in(loop, main)
    assert futures[0].cancelled()


def test_without_a_loop_none_can_be_started() -> None:
    with pytest.raises(RuntimeError, match=r"double is an `async def`, and no event loop runs"):
        start_task(double, 1)


@loops
def test_a_result_is_waited_for_that_another_thread_gives(loop: str) -> None:
    async def main() -> Any:
        future: Future[int] = Future()
        giver = threading.Thread(target=future.set_result, args=(5,))
        giver.start()
        result = await value_of(future)
        giver.join()
        return result

    assert run_in(loop, main) == 5


@loops
def test_a_cancelled_future_raises_its_cancellation(loop: str) -> None:
    async def main() -> None:
        future: Future[int] = Future()
        future.cancel()
        with pytest.raises(CancelledError):
            await value_of(future)

    run_in(loop, main)


def test_a_call_is_no_function() -> None:
    check_async(double)
    with pytest.raises(TypeError, match="this is a call of double"):
        check_async(double(1))


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
def test_a_cancelled_task_ends_its_awaited_call_and_waits_for_the_end(loop: str) -> None:
    begun, interrupted, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        interrupted.wait()
        ended.set()

    async def main() -> None:
        await cancelled_once(lambda: in_thread(block, interrupted.set), begun.is_set)
        assert ended.is_set()

    run_in(loop, main)


def test_the_kind_of_cancellation_is_that_of_the_event_loop() -> None:
    async def kind() -> type[BaseException]:
        return cancellation_type()

    assert run_in("asyncio", kind).__module__ == "asyncio.exceptions"
    assert run_in("trio", kind) is CancelledError
