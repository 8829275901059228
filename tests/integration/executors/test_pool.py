"""`Pool` on this machine's processes, as `multiprocessing.Pool` is used."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import gridengine
from gridengine.errors import Cancelled

SECONDS = 120


@pytest.fixture
def pool(scheduler: gridengine.ProcessScheduler) -> Iterator[gridengine.Pool]:
    with gridengine.Pool(scheduler=scheduler) as pool:
        yield pool


def square(x: int) -> int:
    return x * x


def leave_at_two(x: int) -> int:
    if x == 2:
        sys.exit("no licence")
    return x


def test_a_map_whose_call_leaves_raises_that_each_time_it_is_asked(pool: gridengine.Pool) -> None:
    got: list[Any] = []
    result = pool.map_async(
        leave_at_two, range(4), chunksize=1, callback=got.append, error_callback=got.append
    )
    for _ in range(3):
        with pytest.raises(SystemExit, match="no licence"):
            result.get(SECONDS)
    assert not result.successful()
    assert [type(one) for one in got] == [SystemExit]


@pytest.mark.parametrize(
    "error", [SystemExit("no"), KeyboardInterrupt(), ValueError("no"), GeneratorExit()]
)
def test_a_callback_that_raises_ends_no_other(
    error: BaseException, pool: gridengine.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise error

    got: list[Any] = []
    pool.apply_async(square, (1,), callback=fail).wait(SECONDS)
    pool.map_async(square, [2], callback=fail).wait(SECONDS)
    assert pool.apply_async(square, (3,), callback=got.append).get(SECONDS) == 9
    assert pool.map_async(square, [4], callback=got.append).get(SECONDS) == [16]
    assert got == [9, [16]]
    assert caplog.text.count("exception calling callback") == 2


def test_a_callback_may_ask_for_results(pool: gridengine.Pool) -> None:
    got: list[Any] = []
    other = pool.apply_async(square, (2,), callback=got.append)
    results: list[Any] = []
    ready = threading.Event()

    def ask(value: int) -> None:
        ready.wait(SECONDS)
        got.extend([value, results[0].get(SECONDS), other.get(SECONDS)])

    results.append(pool.apply_async(square, (3,), callback=ask))
    ready.set()
    assert results[0].get(SECONDS) == 9
    assert got in ([4, 9, 9, 4], [9, 9, 4, 4])  # by which of the two ended first


def broken(count: int) -> Iterator[int]:
    yield from range(count)
    raise LookupError("no more arguments")


def test_an_error_of_the_iterable_does_not_keep_a_pool_from_being_joined() -> None:
    pool = gridengine.Pool(2)
    results = pool.imap(square, broken(500))
    pool.close()
    pool.join()
    assert [next(results) for _ in range(500)] == [index * index for index in range(500)]
    with pytest.raises(LookupError, match="no more arguments"):
        next(results)


def test_a_callback_is_never_called_in_the_thread_that_submits(pool: gridengine.Pool) -> None:
    threads: list[threading.Thread] = []
    result = pool.apply_async(
        square,
        (threading.Lock(),),
        error_callback=lambda _: threads.append(threading.current_thread()),
    )
    result.wait(SECONDS)
    assert not result.successful()
    assert threads != [threading.current_thread()]
    assert len(threads) == 1


def test_after_close_and_join_results_are_still_to_be_had() -> None:
    pool = gridengine.Pool(2)
    iterator, result = pool.imap(square, iter(range(500))), pool.map_async(square, range(10))
    pool.close()
    pool.join()
    assert list(iterator) == [index * index for index in range(500)]
    assert result.get(0) == [index * index for index in range(10)]
    with pytest.raises(ValueError, match="not running"):
        pool.apply_async(square, (1,))


def test_terminate_ends_running_and_waiting_calls() -> None:
    pool = gridengine.Pool(2)
    results = [pool.apply_async(time.sleep, (600,)) for _ in range(20)]
    mapped, iterator = pool.map_async(time.sleep, [600] * 20), pool.imap(time.sleep, [600] * 20)
    pool.terminate()
    pool.join()
    for result in (*results, mapped):
        with pytest.raises(Cancelled):
            result.get(SECONDS)
    with pytest.raises(Cancelled):
        next(iterator)


@pytest.mark.promise
def test_a_process_makes_as_many_calls_as_maxtasksperchild_says() -> None:
    with gridengine.Pool(2, maxtasksperchild=2, scheduler=gridengine.ProcessScheduler) as pool:
        pids = [
            *pool.map(pid_of, range(10)),
            *(pool.apply(pid_of, (x,)) for x in range(4)),
            *pool.imap(pid_of, range(10)),
        ]
    assert max(pids.count(pid) for pid in pids) == 2


def pid_of(x: int) -> int:
    return os.getpid()


def test_a_running_pool_cannot_be_joined(pool: gridengine.Pool) -> None:
    with pytest.raises(ValueError, match="still running"):
        pool.join()


def test_leaving_its_with_terminates_it() -> None:
    with gridengine.Pool(2) as pool:
        result = pool.apply_async(time.sleep, (600,))
    with pytest.raises(Cancelled):
        result.get(SECONDS)
    with pytest.raises(ValueError, match="not running"), pool:
        pass
