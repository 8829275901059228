"""`CallFuture`: it does what a future of the standard library does, and is cancelled or killed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import pickle
import threading
import traceback
import weakref
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

import gridengine
from gridengine.client.future import CallTemplate
from gridengine.client.options import CallOptions
from gridengine.errors import Cancelled, PicklingError, WorkerLost
from gridengine.requests import CallsFinished, Function
from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import CallSnapshot
from gridengine.serialize.encoding import OUT_OF_BAND
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.serialize.shared_objects import shared_object_of
from gridengine.wire.messages.client import Attempt
from tests.support.event_loops import LOOPS, all_of, cancelled_once, run_in, until
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.held_dispatcher import (
    SECONDS,
    HeldDispatcher,
    calls_of,
    fail,
    give,
    run_all,
    square,
)

# ------------------------------------------------------------------ futures


def test_a_future_is_one_of_the_standard_library(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    future = waiting.submit(square, 3)
    assert isinstance(future, Future)
    assert (future.running(), future.done(), future.cancelled()) == (True, False, False)
    run_all(waiting)
    assert (future.running(), future.done(), future.cancelled()) == (False, True, False)
    assert "finished returned int" in repr(future)


def test_waiting_too_long_is_a_timeout(waiting: gridengine.Executor) -> None:
    future = waiting.submit(square, 3)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(0)


def test_a_ctrl_c_while_somebody_waits_ends_at_the_line_that_waits(
    waiting: gridengine.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    future: Any = waiting.submit(square, 3)

    def interrupted(*_: object) -> None:
        exec(compile("raise KeyboardInterrupt", gridengine.__file__, "exec"))

    with monkeypatch.context() as patched:
        patched.setattr(type(future), "_release_at_end", interrupted)
        for wait in (future.result, future.exception):
            with pytest.raises(KeyboardInterrupt) as caught:
                wait()
            first, second, *_ = traceback.extract_tb(caught.value.__traceback__)
            assert (first.filename, second.name) == (__file__, "interrupted")


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [((), {}, None), ((5,), {}, "5"), ((), {"x": 5}, "x=5")],
)
def test_the_error_of_a_lost_call_with_a_seed_leaves_out_its_number(
    args: Any, kwargs: Any, words: str | None
) -> None:
    dispatcher = HeldDispatcher()
    with gridengine.Executor(scheduler=FakeScheduler(dispatcher), seed=1) as executor:
        future = executor.submit(give, *args, **kwargs)
        [entry] = dispatcher.entries
        attempts = [Attempt("here", "", 0.0, 1.0, "it died")]
        task, payload = entry.task.id, bytes(entry.task.payload[0])
        call = payload, 0, entry.task.options.form, entry.function.parameters
        error = WorkerLost("it died", pickled_call=call)
        dispatcher.settle(
            entry, CallsFinished(task, 0, 1, None, error=error, exitcode=1, attempts=attempts)
        )
        found: Any = future.exception()
    assert found.arguments == words


def test_wait_and_as_completed_take_them(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(3)]
    dispatcher.run(dispatcher.entries[1])
    assert concurrent.futures.wait(
        futures, return_when=concurrent.futures.FIRST_COMPLETED
    ).done == {futures[1]}
    completed = concurrent.futures.as_completed(futures, timeout=SECONDS)
    assert next(completed) is futures[1]
    dispatcher.run(dispatcher.entries[2])
    assert next(completed) is futures[2]
    dispatcher.run(dispatcher.entries[0])
    assert list(completed) == [futures[0]]


def test_a_callback_gets_the_future_once_it_is_done(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    seen: list[Any] = []
    come = threading.Event()

    def note(future: Future[int]) -> None:
        seen.append(future.result())
        come.set()

    future = waiting.submit(square, 3)
    future.add_done_callback(note)
    assert seen == []
    run_all(waiting)
    assert come.wait(SECONDS)
    future.add_done_callback(lambda done: seen.append(done))
    assert seen == [9, future]


def test_a_callback_may_submit_and_wait(
    executor: gridengine.Executor, waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    answers: list[int] = []
    come = threading.Event()
    waiting.submit(square, 3).add_done_callback(
        lambda done: (answers.append(executor.submit(square, done.result()).result()), come.set())
    )
    run_all(waiting)
    assert come.wait(SECONDS)
    assert answers == [81]


def test_a_callback_that_raises_system_exit_ends_no_other(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Semaphore(0)

    def leave(_: Future[Any]) -> None:
        raise SystemExit("no licence")

    first, second = waiting.submit(square, 1), waiting.submit(square, 2)
    first.add_done_callback(leave)
    first.add_done_callback(lambda _: called.release())
    second.add_done_callback(lambda _: called.release())
    dispatcher.run_all(until=second.done)
    assert all(called.acquire(timeout=SECONDS) for _ in range(2))
    assert "exception calling callback" in caplog.text


def test_a_system_exit_of_a_callback_ends_the_cancelling_thread_after_other_callbacks(
    waiting: gridengine.Executor,
) -> None:
    def leave(_: Future[Any]) -> None:
        raise SystemExit("no licence")

    future = [waiting.submit(square, index) for index in range(10)][-1]
    called: list[Future[Any]] = []
    future.add_done_callback(leave)
    future.add_done_callback(called.append)
    with pytest.raises(SystemExit):
        future.cancel()
    assert called == [future]


def test_nobody_else_sets_an_outcome(waiting: gridengine.Executor) -> None:
    future = waiting.submit(square, 1)
    with pytest.raises(RuntimeError):
        future.set_running_or_notify_cancel()
    for act in (lambda: future.set_result(1), lambda: future.set_exception(OSError())):
        with pytest.raises(concurrent.futures.InvalidStateError):
            act()


def test_nothing_is_kept_of_futures_that_nobody_has(executor: gridengine.Executor) -> None:
    gc.disable()  # what is in no circle goes at once
    try:
        asked, unasked = executor.submit(square, 1), executor.submit(square, 2)
        asked.result()
        gone = [weakref.ref(asked), weakref.ref(unasked)]
        executor._submitter.batcher.dispatcher.entries.clear()  # type: ignore[attr-defined]
        del asked, unasked
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


# ------------------------------------------------------------------ cancelling


def test_a_call_that_waits_can_be_cancelled_and_never_runs(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(10)]
    assert futures[9].cancel()
    assert futures[9].cancel()
    assert futures[9].cancelled()
    assert futures[9].done()
    with pytest.raises(CancelledError):
        futures[9].result()
    run_all(waiting)
    assert calls_of(dispatcher.entries) == 9


def test_a_call_that_was_handed_over_cannot_be_cancelled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    future = waiting.submit(square, 3)
    assert not future.cancel()
    run_all(waiting)
    assert not future.cancel()
    assert future.result() == 9


def test_a_call_that_is_handed_over_while_it_is_being_cancelled_is_recalled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher.slots = 0  # nothing has begun
    batcher = waiting._submitter.batcher
    monkeypatch.setattr(batcher._helper, "do", lambda act: None)
    future = waiting.submit(square, Future())
    waiting.submit(square, future)
    assert not future.running()
    prepare = batcher.prepare_callbacks  # another thread may be as quick as that
    monkeypatch.setattr(batcher, "prepare_callbacks", lambda: (batcher.hand_over(), prepare()))
    assert future.cancel()


def test_a_killed_call_fails_with_cancelled(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    future = waiting.submit(square, 3)
    assert waiting.kill(future)
    assert list(dispatcher.cancelled.values()) == [9]
    with pytest.raises(Cancelled):
        future.result()
    assert not waiting.kill(future)


def test_a_killed_call_that_waited_fails_with_cancelled_and_never_runs(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(10)]
    assert waiting.kill(futures[9])
    with pytest.raises(Cancelled):
        futures[9].result()
    run_all(waiting)
    assert calls_of(dispatcher.entries) == 9


def test_several_of_those_that_travel_together_can_be_killed(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(give, index) for index in range(3000)]
    dispatcher.run_all(
        until=lambda: any(
            one.task.count > 10 and one.task.id not in dispatcher.settled
            for one in dispatcher.entries
        )
    )
    entry = next(
        one
        for one in dispatcher.entries
        if one.task.count > 10 and one.task.id not in dispatcher.settled
    )
    victims = entry.listener._handed[entry.task.id].futures[5:7]
    assert all(waiting.kill(victim) for victim in victims)
    run_all(waiting)
    for index, future in enumerate(futures):
        assert (
            isinstance(future.exception(SECONDS), Cancelled)
            if future in victims
            else future.result(SECONDS) == ((index,), {})
        )


def test_only_ones_own_futures_can_be_killed(
    waiting: gridengine.Executor, executor: gridengine.Executor
) -> None:
    with pytest.raises(ValueError, match="not a future of this executor"):
        waiting.kill(executor.submit(square, 1))
    with pytest.raises(ValueError, match="not a future of this executor"):
        waiting.kill(Future())


# ------------------------------------------------------------------ awaited


@pytest.mark.parametrize("loop", LOOPS)
def test_a_future_is_awaited_before_and_after_its_end(
    loop: str, waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    async def main() -> tuple[int, int]:
        future = waiting.submit(square, 3)
        threading.Thread(target=run_all, args=(waiting,)).start()
        return await future, await future

    assert run_in(loop, main) == (9, 9)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_thousand_are_awaited_without_a_thread_for_each(
    loop: str, waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    async def main() -> list[int]:
        async def one(future: Any) -> int:
            waits.append(1)
            result: int = await future
            return result

        async def run() -> int:
            await until(lambda: len(waits) == 1000)
            threads = threading.active_count()
            threading.Thread(target=run_all, args=(waiting,)).start()
            return max(0, threads - before)  # those of earlier tests may end meanwhile

        waits: list[int] = []
        futures = [waiting.submit(square, index) for index in range(1000)]
        before = threading.active_count()
        return await all_of([run, *(functools.partial(one, future) for future in futures)])

    assert run_in(loop, main) == [0, *(index * index for index in range(1000))]


@pytest.mark.parametrize("loop", LOOPS)
def test_awaiting_raises_the_exception_of_the_call(
    loop: str, waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    async def main() -> None:
        future = waiting.submit(fail, 3)
        threading.Thread(target=run_all, args=(waiting,)).start()
        with pytest.raises(ValueError, match="no 3"):
            await future

    run_in(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_call_that_waits_is_cancelled_with_the_task_that_awaits_it(
    loop: str, waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    async def main() -> None:
        async def wait(future: Any) -> None:
            awaited.append(future)
            await future

        awaited: list[Any] = []
        running = waiting.submit(square, 1)
        futures = [waiting.submit(square, index) for index in range(300)]
        await cancelled_once(lambda: wait(futures[299]), lambda: awaited)
        await until(futures[299].cancelled)
        await cancelled_once(lambda: wait(running), lambda: len(awaited) == 2)
        assert not running.cancelled()
        with pytest.raises((CancelledError, asyncio.CancelledError)):
            await futures[299]

    run_in(loop, main)
    run_all(waiting)


def test_a_loop_that_is_closed_keeps_no_other_from_its_results(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    futures = [waiting.submit(square, index) for index in range(2)]
    loop = asyncio.new_event_loop()
    task = loop.create_task(futures[0].ended())
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False
    loop.close()
    run_all(waiting)
    assert [future.result(SECONDS) for future in futures] == [0, 1]


def test_the_functions_of_asyncio_take_it(
    waiting: gridengine.Executor, dispatcher: HeldDispatcher
) -> None:
    async def main() -> Any:
        futures = [waiting.submit(square, index) for index in range(3)]
        threading.Thread(target=run_all, args=(waiting,)).start()
        return (
            await asyncio.gather(*futures),
            await asyncio.wait_for(futures[2], SECONDS),
            await asyncio.shield(futures[1]),
            await asyncio.wrap_future(futures[2]),
        )

    assert asyncio.run(main()) == ([0, 1, 4], 4, 1, 4)


# ------------------------------------------------------------------ calls that wait


def template_of(form: int = SINGLE) -> CallTemplate:
    anybody: Any = FakeDispatcher()
    function = Function(b"", (), (), b"", "train")
    return CallTemplate(anybody, function, form, CallOptions(), batcher=anybody)


@pytest.mark.parametrize(
    ("call", "form"), [(3, SINGLE), ((3, "a"), STAR), (((3,), {"key": "a"}), FULL)]
)
def test_a_call_of_constants_waits_as_it_is(call: Any, form: int) -> None:
    assert template_of(form).snapshot(call) is call


@pytest.mark.parametrize(("arguments", "named"), [(([1],), {}), ((1,), {"key": [1]})])
def test_arguments_that_may_change_arrive_as_they_were(arguments: Any, named: Any) -> None:
    template = template_of(FULL)
    taken = template.snapshot((arguments, named))
    for one in (*arguments, *named.values()):
        if isinstance(one, list):
            one.append("later")
    assert isinstance(taken, CallSnapshot)
    (back,) = pickling.load(template.joined([taken]))
    assert "later" not in repr(back)


def test_the_large_buffers_of_a_waiting_call_are_not_pickled_again() -> None:
    template = template_of()
    taken = template.snapshot(pickle.PickleBuffer(bytearray(OUT_OF_BAND)))
    payload = template.joined([taken, 3])
    assert memoryview(payload[1]).obj is taken.payload[1]
    assert taken.size > OUT_OF_BAND


def test_a_call_that_cannot_be_pickled_is_an_error_that_names_it() -> None:
    with pytest.raises(PicklingError, match="argument 2 of the call of train"):
        template_of(STAR).snapshot((1, threading.Lock()))


def test_an_object_that_several_calls_need_is_named_once_for_all() -> None:
    template, shared = template_of(), gridengine.share([1])
    payload = template.joined([template.snapshot([shared]), 2, template.snapshot([shared])])
    assert template.task(payload, 3).needs == (shared_object_of(shared),)
