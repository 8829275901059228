"""Async programs and wait groups, in this process."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from concurrent.futures import Future
from typing import Any, Literal

import pytest

import gridengine
from gridengine import ConfigurationError, delayed, each, exec1, open_waitgroup, run
from gridengine.api import async_programs
from gridengine.api.delayed import CURRENT, delayedval
from gridengine.client.loop_tasks import checkpoint
from gridengine.serialize.expressions import instructions_of
from tests.support.event_loops import LOOPS

Backend = Literal["asyncio", "trio"]
backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@delayed
def double(x: Any) -> Any:
    return 2 * x


@backends
def test_a_program_awaits_results_of_delayed_functions(backend: Backend) -> None:
    async def main(x: int) -> Any:
        assert CURRENT.get() is not None
        return await (double(x) + double(double(1)))

    assert run(main, 3, scheduler="inline", backend=backend) == 10
    assert CURRENT.get() is None


def test_a_delayed_function_has_its_own_resources() -> None:
    given = delayed(lambda: gridengine.GVAR.res) @ gridengine.Memory(1)

    async def main() -> Any:
        return await given()

    assert run(main, scheduler="inline") == gridengine.Memory(1)


@backends
def test_coroutine_functions_begin_in_the_order_in_which_they_were_called(backend: Backend) -> None:
    begun = []

    @delayed
    async def note(x: int) -> Any:
        begun.append(x)
        return await double(x)

    async def main() -> Any:
        return await each(*(note(x) for x in range(50)))

    results = run(main, scheduler="inline", backend=backend)
    assert results == [2 * x for x in range(50)]
    assert begun == list(range(50))


@backends
def test_an_asyncio_task_may_be_an_argument_of_a_call(backend: Backend) -> None:
    @delayed
    async def three() -> int:
        return 3

    async def main() -> Any:
        now = three()
        with pytest.raises(ConfigurationError, match="await that result first"):
            await double([now, 1])
        return await now, await double([now, 1])

    assert run(main, scheduler="inline", backend=backend) == (3, [3, 1, 3, 1])


@backends
def test_several_mains_run_at_once_and_their_results_are_in_order(backend: Backend) -> None:
    def twin(me: int) -> Any:
        async def main(met: list[int]) -> int:
            met.append(me)
            while len(met) < 2:
                await gridengine_checkpoint(backend)
            return me

        return main

    assert run([twin(1), twin(2)], [], scheduler="inline", backend=backend) == [1, 2]


async def gridengine_checkpoint(backend: Backend) -> None:
    if backend == "asyncio":
        await asyncio.sleep(0)
    else:
        import trio

        await trio.sleep(0)


@backends
def test_the_exception_of_one_main_is_itself(backend: Backend) -> None:
    async def main() -> None:
        await double(None)

    with pytest.raises(TypeError, match="unsupported operand"):
        run(main, scheduler="inline", backend=backend)


@backends
def test_a_result_of_this_very_loop_is_not_waited_for_for_ever(backend: Backend) -> None:
    @delayed
    async def nothing() -> None:
        pass

    async def main() -> None:
        nothing().result()

    with pytest.raises(RuntimeError, match="await it"):
        run(main, scheduler="inline", backend=backend)


def test_a_coroutine_function_wants_a_loop_or_resources() -> None:
    @delayed
    async def nothing() -> None:
        pass

    with pytest.raises(RuntimeError, match=r"no event loop runs here.*resources="):
        nothing()


def test_other_backends_are_refused() -> None:
    async def main() -> None:
        pass

    with pytest.raises(ConfigurationError, match="'asyncio' or 'trio', not 'curio'"):
        run(main, backend="curio")  # type: ignore[arg-type]


@backends
def test_a_plain_function_in_place_of_a_coroutine_function_is_named(backend: Backend) -> None:
    with pytest.raises(TypeError, match=r"plain is not an `async def`: it returned 5"):
        run(plain, scheduler="inline", backend=backend)
    with pytest.raises(TypeError, match=r"`async def` or a list.*not 5"):
        run(5, scheduler="inline", backend=backend)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be resources.*not {}"):
        run(exec1, {}, abs, scheduler="inline", backend=backend)


def plain() -> int:
    return 5


def test_in_a_loop_that_runs_already_it_says_to_await_the_program() -> None:
    async def main() -> int:
        return 3

    async def notebook() -> int:
        with pytest.raises(RuntimeError, match=r"await main\(\.\.\.\) itself"):
            run(main)
        return await main()

    assert asyncio.run(notebook()) == 3


@backends
def test_a_delayed_function_may_be_the_program(backend: Backend) -> None:
    assert run(double, 4, scheduler="inline", backend=backend) == 8


@backends
def test_calls_that_a_program_left_are_cancelled_before_they_begin(backend: Backend) -> None:
    dependents: list[Future[Any]] = []

    @delayed
    async def never() -> None:
        await waits_for_ever(backend)

    @delayed
    async def last() -> None:
        made = never()
        [instruction] = instructions_of(made._operation)
        dependents.append(instruction[1][0])

    async def main() -> None:
        last()

    run(main, scheduler="inline", backend=backend)
    assert [one.cancelled() for one in dependents] == [True]


async def waits_for_ever(backend: Backend) -> None:
    while True:
        await gridengine_checkpoint(backend)


def test_nothing_of_a_program_is_kept_once_it_has_ended() -> None:
    programs = []

    async def main() -> Any:
        program = CURRENT.get()
        programs.append(weakref.ref(program))
        executors.append(weakref.ref(program.asking(gridengine.Cores(1))))
        await exec1(gridengine.Cores(1), abs, -1)
        return await double(1)

    executors: list[Any] = []
    run(main, scheduler="inline")
    gc.collect()
    assert [one() for one in (*programs, *executors)] == [None, None]


def test_a_call_of_a_coroutine_function_is_not_the_function() -> None:
    async def subtask() -> None:
        pass

    async def main() -> None:
        async with open_waitgroup() as group:
            with pytest.raises(TypeError, match=r"call of .*subtask: give the `async def` itself"):
                group.start_subtask(subtask())  # type: ignore[arg-type]

    run(main, scheduler="inline")
    with pytest.raises(TypeError, match=r"a call of .*main"):
        run(main(), scheduler="inline")  # type: ignore[arg-type]


@delayed
def fib(n: int) -> Any:
    return n if n < 2 else (fib(n - 1) + fib(n - 2)).result()


@pytest.mark.timeout(30)
def test_calls_that_make_calls_in_one_process_do_not_wait_for_each_other() -> None:
    async def main() -> Any:
        return await fib(11)

    assert run(main, scheduler="inline") == 89


def test_waiting_for_futures_refuses_a_delayed_at_once() -> None:
    async def main() -> set[int]:
        with pytest.raises(AttributeError, match=r"is not a future.*asyncio\.ensure_future"):
            await asyncio.wait([delayedval(1)])  # type: ignore[type-var]
        done, _ = await asyncio.wait([asyncio.ensure_future(delayedval(1))])
        return {one.result() for one in done}

    assert run(main, scheduler="inline") == {1}


loops = pytest.mark.parametrize("backend", LOOPS)


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
@loops
def test_a_wait_group_that_was_left_takes_nothing_and_has_its_results(backend: Any) -> None:
    async def main() -> Any:
        async with open_waitgroup() as group:
            group.submit(None, abs, -1)
        with pytest.raises(RuntimeError):
            group.start_subtask(exec1, None, abs, -1)
        return group.results

    assert run(main, scheduler="inline", backend=backend) == [1]


@loops
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


@loops
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


@loops
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
        if not future.done():
            self.killed.append(future)
            future.set_exception(ValueError("killed"))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldExecutor:
    one = HeldExecutor()
    monkeypatch.setattr(async_programs, "current_program", lambda: one)
    return one


@pytest.mark.filterwarnings("error")  # of a coroutine that was never awaited, say
@loops
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


@loops
def test_an_exception_of_a_block_ends_the_calls_that_are_left(
    backend: Any, held: HeldExecutor
) -> None:
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
