"""An exception of a call says which call raised it, whatever the call was made with."""

from __future__ import annotations

import logging
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import GridEngineError, RemoteTraceback, WorkerCrashed, is_own

HERE = f"on {socket.gethostname()}"


@pytest.fixture(scope="module", params=["processes", "inline"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[gridengine.Scheduler]:
    kind = {
        "processes": lambda: gridengine.ProcessScheduler(max_workers=2),
        "inline": gridengine.InlineScheduler,
    }[request.param]
    with kind() as scheduler:
        yield scheduler


def risky(x: float, *more: Any, **named: Any) -> float:
    if x < 0:
        raise ValueError(f"no {x}")
    return x


class Unspeakable:
    def __repr__(self) -> str:
        raise SystemExit


def run_job(scheduler: gridengine.Scheduler) -> None:
    job = gridengine.Job(target=risky, name="sweep", args=(-1.5,), scheduler=scheduler)
    job.start()
    job.result()


def run_mutable_job(scheduler: gridengine.Scheduler) -> None:
    job = gridengine.Job(None, risky, name="sweep", args=(-1.5,), mutable=True, scheduler=scheduler)
    job.start()
    job.result()


def by_executor(act: Callable[[gridengine.Executor], Any]) -> Callable[[gridengine.Scheduler], Any]:
    def run(scheduler: gridengine.Scheduler) -> Any:
        with gridengine.Executor(scheduler=scheduler) as executor:
            return act(executor)

    return run


def by_pool(act: Callable[[gridengine.Pool], Any]) -> Callable[[gridengine.Scheduler], Any]:
    def run(scheduler: gridengine.Scheduler) -> Any:
        with gridengine.Pool(scheduler=scheduler) as pool:
            return act(pool)

    return run


SWEEP = [1.0] * 190 + [-1.5, 2.0]
WAYS: dict[str, tuple[Callable[[gridengine.Scheduler], Any], str]] = {
    "map": (
        lambda scheduler: gridengine.map(risky, SWEEP, scheduler=scheduler),
        "call 190 of risky, argument -1.5",
    ),
    "starmap": (
        lambda scheduler: gridengine.starmap(risky, [(1.0, 2), (-1.5, "b")], scheduler=scheduler),
        "call 1 of risky, arguments -1.5, 'b'",
    ),
    "imap": (
        lambda scheduler: list(gridengine.imap(risky, SWEEP, scheduler=scheduler)),
        "call 190 of risky, argument -1.5",
    ),
    "an argument without a repr": (
        lambda scheduler: gridengine.map(risky, [-1.5], [Unspeakable()], scheduler=scheduler),
        "call 0 of risky, arguments -1.5, <Unspeakable, whose repr raised SystemExit>",
    ),
    "submit": (
        by_executor(lambda it: it.submit(risky, -1.5, list(range(10**5)), deep=True).result()),
        "the call of risky, arguments -1.5, [0, 1, 2, 3, 4, 5, ...], deep=True",
    ),
    "Executor.map": (
        by_executor(lambda it: list(it.map(risky, SWEEP))),
        "call 190 of risky, argument -1.5",
    ),
    "apply": (by_pool(lambda it: it.apply(risky, (-1.5,))), "the call of risky, argument -1.5"),
    "Pool.map": (by_pool(lambda it: it.map(risky, SWEEP)), "call 190 of risky, argument -1.5"),
    "a job": (run_job, "job sweep, argument -1.5"),
    "a mutable job": (run_mutable_job, "job sweep"),
}


def own_frames(error: BaseException) -> list[str]:
    files = [entry.filename for entry in traceback.extract_tb(error.__traceback__)]
    assert __file__ in files
    return list(filter(is_own, files))


@pytest.mark.promise
@pytest.mark.parametrize("way", WAYS)
def test_tracebacks_of_calls_have_frames_of_this_package_at_debug_alone(
    scheduler: gridengine.Scheduler, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    for level, some in ((logging.INFO, False), (logging.DEBUG, True)):
        caplog.set_level(level, "gridengine")
        with pytest.raises(ValueError, match="no") as caught:
            WAYS[way][0](scheduler)
        assert bool(own_frames(caught.value)) == some
        assert isinstance(caught.value.__cause__, RemoteTraceback)


@pytest.mark.parametrize(
    "act",
    [
        lambda: gridengine.map(abs, [1], retries=-1),
        lambda: gridengine.imap(abs, [threading.Lock()], chunksize=0),
        lambda: gridengine.starmap(pow, [(2, threading.Lock())]),
        lambda: gridengine.Job(target=abs, retries=-1),
        lambda: gridengine.Job(target=abs, args=[threading.Lock()]).start(),
        lambda: gridengine.Executor(retries=-1),
        lambda: gridengine.Pool(retries=-1),
        lambda: gridengine.JobDispatcher(retries=-1),
        lambda: gridengine.map(abs, [gridengine.InlineScheduler()]),
        lambda: gridengine.map(abs),
        lambda: gridengine.map(abs, [1], retry_on="OSError"),
        lambda: gridengine.imap(abs, [1], steps=3),  # type: ignore[arg-type]
        lambda: gridengine.Pool("slurm"),  # type: ignore[arg-type]
    ],
)
def test_no_frame_of_this_package_is_above_its_own_refusals(act: Callable[[], Any]) -> None:
    with pytest.raises((GridEngineError, TypeError)) as caught:
        act()
    assert own_frames(caught.value) == []


def test_an_error_that_this_package_did_not_make_keeps_all_frames() -> None:
    class Arguments:
        def __iter__(self) -> Iterator[int]:
            raise TypeError("not today")

    with pytest.raises(TypeError, match="not today") as caught:
        gridengine.map(abs, Arguments())
    assert own_frames(caught.value) != []


def test_frames_of_the_users_own_code_stay_in_the_traceback(
    scheduler: gridengine.Scheduler,
) -> None:
    def sweep() -> Iterator[int]:
        gridengine.map(risky, [-1], scheduler=scheduler)
        yield 1

    with pytest.raises(ValueError, match="no -1") as caught:
        gridengine.map(risky, sweep(), scheduler=scheduler)
    assert "sweep" in [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.promise
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_has_one_note_of_its_call_its_argument_and_its_host(
    scheduler: gridengine.Scheduler, way: str
) -> None:
    run, words = WAYS[way]
    with pytest.raises(ValueError, match=r"no -1\.5") as caught:
        run(scheduler)
    assert caught.value.__notes__ == [f"{words}, {HERE}"]
    shown = "".join(traceback.format_exception(caught.value))
    assert "in risky" in shown
    assert shown.count(f"{words}, {HERE}") == 1


def die(x: object) -> None:
    os._exit(3)


def test_arguments_of_a_crashed_call_are_told_once_however_often_asked_for() -> None:
    with gridengine.Executor(1, scheduler=gridengine.ProcessScheduler, retries=0) as executor:
        future = executor.submit(die, (1, "b"))
        shown = [traceback.format_exception(future.exception()) for _ in range(2)]
        for _ in range(2):
            with pytest.raises(WorkerCrashed) as caught:
                future.result()
    assert shown[0][-1].count("\n  arguments: x=(1, 'b')\n") == 1
    assert shown[0] == shown[1]
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [entry.filename for entry in frames] == [__file__]


def fill(size: int) -> int:
    """Fill memory in steps: macOS only looks now and then how much a process has."""
    return sum(map(len, [bytearray(2**24) for _ in range(size >> 24)]))


def test_a_call_out_of_memory_shows_each_thing_once() -> None:
    with (
        gridengine.ProcessScheduler(max_workers=1) as scheduler,
        pytest.raises(gridengine.OutOfMemory) as caught,
    ):
        gridengine.map(fill, [10**10], scheduler=scheduler, resources=gridengine.Memory(1))
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("ran out of memory: its limit was") == 1
    assert shown.count("MemoryError") == 1
    assert "argument 10000000000" in shown
    assert f"{Path('gridengine', 'worker')}" not in shown


@pytest.mark.promise
def test_a_job_out_of_memory_or_crashed_is_named_on_standard_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with gridengine.ProcessScheduler(max_workers=1) as scheduler:
        for target, argument, words in (
            (fill, 10**10, ["job sweep ran out of memory: its", " limit was 1.00 GB"]),
            (die, 1, ["the process that ran job sweep exited with status 3", *["attempt: "] * 3]),
        ):
            caplog.clear()
            job = gridengine.Job(
                target=target,
                args=(argument,),
                name="sweep",
                scheduler=scheduler,
                resources=gridengine.Memory(1),
            )
            job.start()
            job.join()
            assert [caplog.text.count(one) for one in words] == [words.count(one) for one in words]
