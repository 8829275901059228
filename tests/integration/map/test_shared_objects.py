"""`gridengine.share` with real processes: on this machine, over the network, and on a Grid
Engine.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import gridengine
from gridengine.schedulers import Scheduler
from tests.integration.map.test_large_functions import is_mapped, mapped, write
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    pass

np = pytest.importorskip("numpy")

ITEMS = 1_000_000


@pytest.fixture(params=[gridengine.ProcessScheduler, TcpScheduler])
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    with request.param(2) as scheduler:
        yield scheduler


@pytest.fixture(autouse=True)
def without_garbage() -> Iterator[None]:
    """What a test leaves open is its own, and no test needs the collector to let go of it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def ones() -> Iterator[Any]:
    with gridengine.share(np.ones(ITEMS)) as shared:
        yield shared


def total(array: Any, number: int = 0) -> float:
    return float(array.sum()) + number


def deep(box: dict[str, list[Any]], *, also: Any) -> tuple[float, bool]:
    return total(box["arrays"][0]), box["arrays"][0] is also


def identity(x: Any, number: int = 0) -> Any:
    return x


def blocks() -> set[int]:
    """Return the blocks that this process or one below it has open."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found |= {
                number
                for number in map(block_of, Path(f"/proc/{process.pid}/fd").iterdir())
                if number
            }
    return found


def block_of(descriptor: Path) -> int:
    """Return the number of the block that a descriptor stands for, 0 if it is none."""
    try:
        return descriptor.stat().st_ino if "gridengine-block" in str(descriptor.readlink()) else 0
    except OSError:  # it has been closed meanwhile, or its process has ended
        return 0


# ------------------------------------------------------------------ every way to hand in calls


def test_an_argument_is_mapped_and_not_copied(scheduler: Scheduler, ones: Any) -> None:
    results = gridengine.starmap(
        mapped, [(ones, number) for number in range(8)], chunksize=1, scheduler=scheduler
    )
    assert results == [(ITEMS, False, 0)] * 8


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda ones, place: gridengine.map(total, [ones] * 3, [1, 2, 3], scheduler=place),
    "partial": lambda ones, place: gridengine.map(
        functools.partial(total, ones), [1, 2, 3], scheduler=place
    ),
    "closure": lambda ones, place: gridengine.map(
        lambda number: total(ones, number), [1, 2, 3], scheduler=place
    ),
    "imap": lambda ones, place: list(
        gridengine.imap(functools.partial(total, ones), [1, 2, 3], scheduler=place)
    ),
    "imap_unordered": lambda ones, place: sorted(
        gridengine.imap_unordered(functools.partial(total, ones), [1, 2, 3], scheduler=place)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_functions_over_many_arguments_get_the_object(
    scheduler: Scheduler, ones: Any, way: str
) -> None:
    assert WAYS[way](ones, scheduler) == [ITEMS + 1, ITEMS + 2, ITEMS + 3]


def test_an_executor_gets_the_object(scheduler: Scheduler, ones: Any) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        futures = [executor.submit(total, ones, number) for number in range(100)]
        assert [future.result() for future in futures] == [ITEMS + number for number in range(100)]
        assert executor.submit(total, number=2, array=ones).result() == ITEMS + 2
        assert executor.submit(functools.partial(total, ones)).result() == ITEMS
        assert list(executor.map(total, [ones] * 3)) == [ITEMS] * 3


def test_an_initializer_gets_the_object(scheduler: Scheduler, ones: Any) -> None:
    with gridengine.Executor(
        scheduler=scheduler, initializer=remember, initargs=(ones,)
    ) as executor:
        assert executor.submit(recall).result() == ITEMS


def remember(array: Any) -> None:
    os.environ["TOTAL"] = str(total(array))


def recall() -> float:
    return float(os.environ["TOTAL"])


def test_a_pool_gets_the_object(scheduler: Scheduler, ones: Any) -> None:
    with gridengine.Pool(scheduler=scheduler) as pool:
        assert pool.starmap(total, [(ones, 1), (ones, 2)]) == [ITEMS + 1, ITEMS + 2]
        assert pool.apply(total, (ones,)) == ITEMS


def test_a_job_gets_the_object_wherever_it_lies(scheduler: Scheduler, ones: Any) -> None:
    job = gridengine.Job(
        target=deep, args=({"arrays": [ones]},), kwargs={"also": ones}, scheduler=scheduler
    )
    job.start()
    assert job.result() == (ITEMS, True)


class Summer(gridengine.Job):
    """A job that has a handle for an attribute."""

    def run(self) -> float:  # type: ignore[override]
        return total(self.array)

    array: Any = None


def test_a_job_with_an_attribute_gets_the_object(scheduler: Scheduler, ones: Any) -> None:
    job = Summer(scheduler=scheduler)
    job.array = ones
    job.start()
    assert job.result() == ITEMS


def test_joblib_gets_the_object(scheduler: Scheduler, ones: Any) -> None:
    joblib = pytest.importorskip("joblib")
    import gridengine.joblib_backend  # noqa: F401 - registers it

    with joblib.parallel_config("gridengine", scheduler=scheduler):
        assert joblib.Parallel(n_jobs=2)(
            joblib.delayed(total)(ones, number) for number in range(4)
        ) == [ITEMS + n for n in range(4)]


def test_inline_a_call_gets_the_object(ones: Any) -> None:
    with gridengine.InlineScheduler() as scheduler:
        assert gridengine.map(total, [ones], scheduler=scheduler) == [ITEMS]
        with pytest.raises(ValueError, match="read-only"):
            gridengine.map(functools.partial(write, ones), [0], scheduler=scheduler)


def test_a_call_that_returns_it_returns_the_object(scheduler: Scheduler, ones: Any) -> None:
    [got] = gridengine.map(identity, [ones], scheduler=scheduler)
    assert got.sum() == ITEMS


def test_what_was_unpickled_to_be_handed_in_again_is_the_object(
    scheduler: Scheduler, ones: Any
) -> None:
    """A call that shares its task with one that is killed is made again."""
    with gridengine.Executor(scheduler=scheduler) as executor:
        assert executor.submit(identity, 1).result() == 1
        futures = [executor.submit(total, ones, number) for number in range(2000)]
        executor.kill(futures[1000])
        done = [future.result() for number, future in enumerate(futures) if number != 1000]
    assert len(done) == 1999


def test_a_handle_in_a_shared_object_is_the_object_there(scheduler: Scheduler, ones: Any) -> None:
    with gridengine.share({"inner": ones, "more": list(range(10))}) as outer:
        assert gridengine.map(
            lambda box: total(box["inner"]) + len(box["more"]), [outer], scheduler=scheduler
        ) == [ITEMS + 10]


def test_small_objects_are_shared_too(scheduler: Scheduler) -> None:
    handles = [gridengine.share([number]) for number in range(50)]
    assert gridengine.map(sum, handles, scheduler=scheduler) == list(range(50))


# ------------------------------------------------------------------ nobody changes what others see


def test_an_attempt_to_write_fails_and_nobody_sees_a_change(
    scheduler: Scheduler, ones: Any
) -> None:
    results = gridengine.map(
        functools.partial(write, ones), range(4), reraise=False, scheduler=scheduler
    )
    assert {type(error) for error in results} == {ValueError}
    assert gridengine.map(total, [ones] * 4, scheduler=scheduler) == [ITEMS] * 4
    assert ones.get().sum() == ITEMS


def test_what_the_caller_writes_later_is_not_seen(scheduler: Scheduler) -> None:
    array = np.ones(ITEMS)
    with gridengine.share(array) as shared:
        array[:] = 7
        assert gridengine.map(total, [shared], scheduler=scheduler) == [ITEMS]


# ------------------------------------------------------------------ failures and ends


def test_a_fresh_runner_gets_it_again(scheduler: Scheduler, ones: Any, tmp_path: Path) -> None:
    def die_once(array: Any, path: Path) -> float:
        if not path.exists():
            path.touch()
            os.abort()
        return total(array)

    assert gridengine.starmap(die_once, [(ones, tmp_path / "died")], scheduler=scheduler) == [ITEMS]


def test_a_fresh_worker_gets_it_again(ones: Any, tmp_path: Path) -> None:
    def kill_worker_once(array: Any, path: Path) -> float:
        if not path.exists():
            path.touch()
            for parent in psutil.Process().parents()[:2]:
                parent.send_signal(signal.SIGKILL)
            signal.pause()
        return total(array)

    with TcpScheduler(1) as scheduler:
        assert gridengine.starmap(
            kill_worker_once, [(ones, tmp_path / "died")], scheduler=scheduler
        ) == [ITEMS]


def test_one_object_serves_several_schedulers(ones: Any) -> None:
    with gridengine.ProcessScheduler(1) as first, TcpScheduler(1) as second:
        for scheduler in (first, second, first):
            assert gridengine.map(total, [ones], scheduler=scheduler) == [ITEMS]


def test_calls_that_were_handed_in_need_no_handle(scheduler: Scheduler) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        with gridengine.share(np.ones(ITEMS)) as shared:
            futures = [executor.submit(total, shared, number) for number in range(300)]
        assert [future.result() for future in futures] == [ITEMS + number for number in range(300)]


@pytest.mark.parametrize("captured", [False, True])
def test_nothing_is_left_of_it_when_it_is_closed(scheduler: Scheduler, captured: bool) -> None:
    shared = gridengine.share(np.ones(3 * ITEMS))
    if captured:
        gridengine.map(
            lambda number: total(shared, number), range(8), chunksize=1, scheduler=scheduler
        )
    else:
        gridengine.starmap(
            total, [(shared, number) for number in range(8)], chunksize=1, scheduler=scheduler
        )
    assert blocks()
    shared.close()
    wait_until(lambda: not blocks())
    wait_until(
        lambda: not any(gridengine.map(is_mapped, range(8), chunksize=1, scheduler=scheduler))
    )


@pytest.mark.parametrize("kind", [gridengine.ProcessScheduler, TcpScheduler])
def test_nothing_is_left_of_it_when_its_scheduler_was_closed_first(
    kind: Callable[[int], Scheduler],
) -> None:
    with gridengine.share(np.ones(ITEMS)) as shared, kind(1) as scheduler:
        assert gridengine.map(total, [shared], scheduler=scheduler) == [ITEMS]
    wait_until(lambda: not blocks())


def test_nothing_is_left_of_an_initializers_when_its_executor_is_gone(
    scheduler: Scheduler,
) -> None:
    with gridengine.share(np.ones(ITEMS)) as shared:
        test_an_initializer_gets_the_object(scheduler, shared)
    wait_until(lambda: not blocks())


def test_inline_nothing_is_left_of_it_nor_of_a_large_function() -> None:
    def write_both(number: int) -> float:
        large[0] = number
        return float(large.sum() + shared.sum())

    large = np.ones(ITEMS)
    with gridengine.InlineScheduler() as scheduler, gridengine.share(np.ones(ITEMS)) as shared:
        assert gridengine.map(write_both, [1], scheduler=scheduler) == [2 * ITEMS]
        shared.close()
        assert not blocks()


def test_nothing_is_left_of_it_when_the_last_handle_is_dropped_anywhere(
    scheduler: Scheduler,
) -> None:
    def use() -> None:
        shared = gridengine.share(np.ones(ITEMS))
        assert gridengine.map(total, [shared], scheduler=scheduler) == [ITEMS]

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: not blocks())


ENDS: dict[str, Callable[[gridengine.Executor, Any], object]] = {
    "results": lambda executor, shared: [
        executor.submit(total, shared, number).result() for number in range(20)
    ],
    "failures": lambda executor, shared: [
        executor.submit(write, shared, number).exception() for number in range(20)
    ],
    "a kill": lambda executor, shared: killed(
        [executor.submit(total, shared, number) for number in range(2000)], executor
    ),
    "cancelling": lambda executor, shared: [
        executor.submit(total, shared, number).cancel() for number in range(2000)
    ],
    "abandoning": lambda executor, shared: next(executor.map(total, [shared] * 100)),
}


def killed(futures: list[Any], executor: gridengine.Executor) -> None:
    executor.kill(futures[1000])
    for future in futures:
        future.exception()


@pytest.mark.parametrize("way", ENDS)
def test_nothing_is_left_of_it_however_the_calls_ended(scheduler: Scheduler, way: str) -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        shared = gridengine.share(np.ones(ITEMS))
        ENDS[way](executor, shared)
        shared.close()
        wait_until(lambda: not blocks())


def test_what_is_shared_does_not_count_as_a_calls_memory() -> None:
    with (
        gridengine.ProcessScheduler(1) as scheduler,
        gridengine.share(np.ones(50 * ITEMS)) as shared,
    ):
        assert gridengine.map(
            total, [shared], scheduler=scheduler, resources=gridengine.Memory(0.25)
        ) == [50 * ITEMS]


def test_here_the_workers_map_the_very_copy_that_was_made() -> None:
    with gridengine.ProcessScheduler(2) as scheduler, gridengine.share(np.ones(ITEMS)) as shared:
        made = blocks()
        gridengine.starmap(
            total, [(shared, number) for number in range(8)], chunksize=1, scheduler=scheduler
        )
        assert blocks() == made
        assert len(made) == 1


def test_without_descriptors_it_is_sent_to_each_process(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    shared = gridengine.share(np.ones(ITEMS))
    monkeypatch.undo()
    assert not blocks()
    assert gridengine.map(total, [shared] * 4, scheduler=scheduler) == [ITEMS] * 4
