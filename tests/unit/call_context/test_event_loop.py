"""Coroutines are run to their end, and what they leave behind ends with them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import traceback
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gridengine.call_context import event_loop
from gridengine.call_context.current_call import GVAR
from gridengine.call_context.event_loop import CallLoop, _complete, run
from tests.support.event_loops import LOOPS, run_in

NAME = contextvars.ContextVar("name", default="nobody")


@pytest.fixture(params=["kept", "apart"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Run a coroutine as a runner does, and as is done elsewhere."""
    monkeypatch.setattr(GVAR, "in_runner", request.param == "kept")
    event_loop._process_loop.cache_clear()
    return run


async def loop_here() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_runner_keeps_its_loop_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(loop_here()) is not run(loop_here())
    monkeypatch.setattr(GVAR, "in_runner", True)
    event_loop._process_loop.cache_clear()
    assert run(loop_here()) is run(loop_here())


def test_a_call_finds_the_context_and_changes_its_own_copy(way: Callable[[Any], Any]) -> None:
    async def rename() -> str:
        before = NAME.get()
        NAME.set("somebody")
        return before

    context = contextvars.copy_context()
    context.run(NAME.set, "caller")
    assert context.run(way, rename()) == context.run(way, rename()) == "caller"


def test_an_exception_shows_none_of_asyncio(way: Callable[[Any], Any]) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        way(fail())
    files = {frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)}
    assert files == {__file__, event_loop.__file__}


def test_a_raised_exception_is_not_kept(way: Callable[[Any], Any]) -> None:
    class Large:
        pass

    async def fail() -> None:
        large = Large()
        seen.append(weakref.ref(large))
        raise ValueError(large)

    seen: list[weakref.ref[Large]] = []
    gc.disable()
    try:
        with pytest.raises(ValueError, match="Large"):
            way(fail())
        assert seen[0]() is None
    finally:
        gc.enable()


def left_behind(way: Callable[[Any], Any], end: Callable[[], None]) -> asyncio.Task[None]:
    """Have a call leave a task behind that does this at its end."""

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            end()

    async def leave() -> asyncio.Task[None]:
        task = asyncio.create_task(stay())
        await asyncio.sleep(0)
        return task

    return way(leave())  # type: ignore[no-any-return]


def test_tasks_that_are_left_are_cancelled(way: Callable[[Any], Any]) -> None:
    async def count() -> int:
        return len(asyncio.all_tasks())

    ended: list[bool] = []
    assert left_behind(way, lambda: ended.append(True)).cancelled()
    assert ended == [True]
    assert way(count()) == 1


def test_an_exception_of_a_left_task_is_logged(
    way: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        left_behind(way, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    assert "a call has left behind" in caplog.text


@pytest.mark.parametrize("held", [True, False])
def test_async_generators_that_are_left_are_closed(way: Callable[[Any], Any], held: bool) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("numbers")
            if held:
                await asyncio.sleep(0)
                ended.append("to the end")

    async def leave() -> None:
        generator = numbers()
        async for _ in generator:
            break
        if held:
            kept.append(generator)

    ended: list[str] = []
    kept: list[AsyncIterator[int]] = []
    way(leave())
    assert ended == ["numbers", "to the end"][: 1 + held]


def test_threads_have_ended_and_others_can_be_had(way: Callable[[Any], Any]) -> None:
    async def in_thread() -> threading.Thread:
        return await asyncio.to_thread(threading.current_thread)

    for _ in range(2):
        assert not way(in_thread()).is_alive()


def test_a_call_that_was_cut_off_does_not_go_on_in_the_next() -> None:
    async def cut_off() -> None:
        async def leave() -> None:
            raise SystemExit(3)

        task = asyncio.create_task(leave())
        try:
            await asyncio.gather(task, asyncio.Event().wait())
        finally:
            ended.append("cut off")

    ended: list[str] = []
    loop = CallLoop()
    with pytest.raises(SystemExit):
        loop.run(_complete(cut_off(), []))
    assert ended == ["cut off"]
    loop.run(asyncio.sleep(0))
    loop._runner.close()


def test_a_call_that_cancels_itself_raises_that(way: Callable[[Any], Any]) -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        way(cancel())
    assert way(asyncio.sleep(0, result=1)) == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_inside_of_a_loop_another_thread_runs_it(loop: str) -> None:
    async def where() -> tuple[str, threading.Thread]:
        await asyncio.sleep(0)
        return NAME.get(), threading.current_thread()

    async def call() -> tuple[str, threading.Thread]:
        NAME.set("caller")
        answer: tuple[str, threading.Thread] = run(where())
        return answer

    name, thread = run_in(loop, call)
    assert name == "caller"
    assert thread is not threading.current_thread()
