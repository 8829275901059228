"""Programs of coroutine functions, with calls that are made in this process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import Future
from typing import Any, Literal

import pytest

import gridengine
from gridengine import ConfigurationError, delayed, each, exec1, open_waitgroup, run
from gridengine.api.delayed import CURRENT
from gridengine.api.delayed_value import delayedval
from gridengine.serialize.expressions import instructions_of

Backend = Literal["asyncio", "trio"]
backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@delayed
def double(x: Any) -> Any:
    return 2 * x


@backends
def test_a_program_awaits_what_delayed_functions_give(backend: Backend) -> None:
    async def main(x: int) -> Any:
        assert CURRENT.get() is not None
        return await (double(x) + double(double(1)))

    assert run(main, 3, scheduler="inline", backend=backend) == 10
    assert CURRENT.get() is None


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
def test_what_a_task_makes_may_be_an_argument_of_a_call(backend: Backend) -> None:
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
def test_what_is_no_coroutine_function_is_named(backend: Backend) -> None:
    with pytest.raises(TypeError, match=r"plain is no `async def`: it returned 5"):
        run(plain, scheduler="inline", backend=backend)
    with pytest.raises(TypeError, match=r"`async def`, which run calls.*not 5"):
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
def test_what_a_program_left_is_cancelled_though_it_has_not_begun(backend: Backend) -> None:
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


def test_what_waits_for_futures_alone_refuses_a_delayed_at_once() -> None:
    async def main() -> set[int]:
        with pytest.raises(AttributeError, match=r"is no future.*asyncio\.ensure_future"):
            await asyncio.wait([delayedval(1)])  # type: ignore[type-var]
        done, _ = await asyncio.wait([asyncio.ensure_future(delayedval(1))])
        return {one.result() for one in done}

    assert run(main, scheduler="inline") == {1}
