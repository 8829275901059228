"""Wait groups, with calls that are made in this process."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Future
from typing import Any

import pytest

import gridengine
from gridengine import exec1, open_waitgroup, run
from gridengine.api import waitgroup
from gridengine.client.loop_tasks import checkpoint
from tests.support.event_loops import LOOPS

backends = pytest.mark.parametrize("backend", LOOPS)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no eager tasks in asyncio")
def test_subtasks_that_begin_at_once_have_places_of_their_own() -> None:
    async def main() -> Any:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]

        async def one(x: int) -> int:
            if x:
                group.start_subtask(one, x - 1)
            return x

        async with open_waitgroup() as group:
            group.start_subtask(one, 2)
        return group.results

    assert run(main, scheduler="inline") == [2, 1, 0]


@pytest.mark.filterwarnings("error")  # of a coroutine that was never awaited, say
@backends
def test_a_wait_group_that_was_left_takes_nothing_and_has_its_results(backend: Any) -> None:
    async def main() -> Any:
        async with open_waitgroup() as group:
            group.submit(None, abs, -1)
        with pytest.raises(RuntimeError):
            group.start_subtask(exec1, None, abs, -1)
        return group.results

    assert run(main, scheduler="inline", backend=backend) == [1]


@backends
def test_a_wait_group_has_its_results_in_order(backend: Any) -> None:
    async def subtask(x: int) -> int:
        for _ in range(3):
            await checkpoint()
        return x

    async def main() -> Any:
        async with open_waitgroup() as group:
            group.start_subtask(subtask, 1)
            group.submit(None, pow, 2, 3)
            group.submit(gridengine.Cores(1), pow, 3, 2)
            with pytest.raises(RuntimeError, match="leave the block"):
                _ = group.results
            async with open_waitgroup() as inner:
                inner.submit(None, abs, -4)
        return [*group.results, *inner.results, await exec1(None, abs, -5)]

    assert run(main, scheduler="inline", backend=backend) == [1, 8, 9, 4, 5]


@backends
def test_an_exception_of_a_wait_group_is_in_a_group(backend: Any) -> None:
    async def main() -> None:
        async with open_waitgroup() as group:
            group.submit(None, abs, "x")

    with pytest.raises(ExceptionGroup) as raised:
        run(main, scheduler="inline", backend=backend)
    assert [type(one) for one in raised.value.exceptions] == [TypeError]


def compute(x: int) -> str:
    return f"computed {x}"


def look_up(x: int) -> str:
    if x:
        raise FileNotFoundError(x)
    return "from the cache"


@backends
def test_a_cache_is_asked_first(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Any:
        async with open_waitgroup() as group:
            group.load_cache_or_submit(None, compute, 0)
        first = group.results, await gridengine.load_cache_or_exec1(None, compute, 1)
        vars(compute)["cache_fn"] = look_up
        async with open_waitgroup() as group:
            group.load_cache_or_submit(None, compute, 0)
        return first, (group.results, await gridengine.load_cache_or_exec1(None, compute, 1))

    try:
        without, with_cache = run(main, scheduler="inline", backend=backend)
    finally:
        vars(compute).pop("cache_fn", None)
    assert without == (["computed 0"], "computed 1")
    assert with_cache == (["from the cache"], "computed 1")


class HeldExecutor:
    """An executor whose calls do not end by themselves."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []
        self.killed: list[Future[Any]] = []

    def asking(self, resources: object) -> HeldExecutor:
        return self

    def submit(self, fn: object, *args: object) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]

    def kill(self, future: Future[Any]) -> None:
        self.killed.append(future)
        future.set_exception(ValueError("killed"))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldExecutor:
    one = HeldExecutor()
    monkeypatch.setattr(waitgroup, "current_program", lambda: one)
    return one


@pytest.mark.filterwarnings("error")  # of a coroutine that was never awaited, say
@backends
def test_a_call_that_comes_after_the_block_was_left_is_ended(
    backend: Any, held: HeldExecutor
) -> None:
    async def main() -> None:
        async with open_waitgroup() as group:
            pass
        with pytest.raises(RuntimeError):
            group.submit(None, abs, -1)
        assert group.results == []

    run(main, scheduler="inline", backend=backend)
    assert held.killed == held.futures
    assert len(held.futures) == 1


@backends
def test_what_a_block_raises_ends_the_calls_that_are_left(backend: Any, held: HeldExecutor) -> None:
    async def main() -> None:
        async with open_waitgroup() as group:
            group.submit(None, abs, -1)
            group.submit(None, abs, -2)
            held.futures[0].set_result(1)
            raise KeyError

    with pytest.raises(ExceptionGroup) as raised:
        run(main, scheduler="inline", backend=backend)
    assert KeyError in [type(one) for one in raised.value.exceptions]
    assert held.killed == held.futures[1:]
