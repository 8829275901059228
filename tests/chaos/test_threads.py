"""Threads that submit, cancel, collect and close at the same time: no call is lost, and none has
another's result. With a lock in the interpreter they take turns after each few steps; without one
(`make test-free-threaded`) they run beside each other.
"""

from __future__ import annotations

import importlib
import random
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from typing import Any

import pytest

import gridengine
from gridengine import Cancelled, Executor, ProcessScheduler

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

THREADS, CALLS, ROUNDS = 8, 2000, 50
CARRYING = 10 * THREADS
"""In one of ten rounds each thread carries a state of its own: functions are pickled anew then
whenever another thread submits.
"""
SECONDS = 300.0
"""A call without an outcome is lost after this time."""
WHOSE: ContextVar[int] = ContextVar("WHOSE", default=-1)


def labelled(label: int, data: list[int]) -> tuple[int, int, int]:
    return label, WHOSE.get(), len(data)


@pytest.fixture(autouse=True)
def _small_steps() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def collect(
    futures: list[tuple[int, Future[Any]]], whose: int, size: int, figures: Counter[str]
) -> None:
    """Count the outcomes of a thread's calls."""
    for label, future in futures:
        try:
            right = future.result(timeout=SECONDS) == (label, whose, size)
            figures["right" if right else "wrong"] += 1
        except (CancelledError, Cancelled):
            figures["cancelled"] += 1
        except TimeoutError:
            figures["lost"] += 1


def play(executor: Executor, thread: int, seed: int, figures: Counter[str]) -> None:
    """Submit calls, cancel some and ask for some meanwhile; close, and collect the rest."""
    whose = thread if seed % CARRYING < THREADS else -1
    WHOSE.set(whose)
    chosen = random.Random(seed)
    futures: list[tuple[int, Future[Any]]] = []
    with gridengine.share(list(range(thread))) as data:
        for label in range(CALLS):
            try:
                futures.append((label, executor.submit(labelled, label, data)))
            except RuntimeError:  # another thread has closed the executor
                figures["refused"] += CALLS - label
                break
            if label % 97 == 96:
                for _, future in chosen.sample(futures, 5):
                    future.cancel()
            if label % 211 == 210:
                collect(chosen.sample(futures, 3), whose, thread, Counter())
        executor.shutdown(wait=chosen.random() < 0.5, cancel_futures=chosen.random() < 0.5)
        collect(futures, whose, thread, figures)


def at_once(act: Callable[[int], object]) -> None:
    """Call a function in all threads, which begin together, and wait for them."""
    together = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(thread: int) -> None:
        together.wait()
        try:
            act(thread)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for error in errors:
        raise error


def play_round(scheduler: ProcessScheduler, number: int) -> Counter[str]:
    """Have all threads play: half of them with an executor that they share."""
    shared = Executor(scheduler=scheduler)
    counts = [Counter[str]() for _ in range(THREADS)]

    def act(thread: int) -> None:
        executor = shared if thread % 2 else Executor(scheduler=scheduler)
        play(executor, thread, number * THREADS + thread, counts[thread])

    at_once(act)
    return sum(counts, Counter())


def test_threads_that_submit_cancel_collect_and_close_at_once_lose_nothing() -> None:
    figures = Counter[str]()
    with ProcessScheduler(2) as scheduler, gridengine.carry(WHOSE):
        for number in range(ROUNDS):
            figures += play_round(scheduler, number)
    print(figures)
    assert figures.total() == THREADS * CALLS * ROUNDS
    assert (figures["wrong"], figures["lost"]) == (0, 0), figures
    assert figures["right"] > figures.total() / 4


def test_threads_that_map_and_close_schedulers_of_their_own_at_once_have_their_results() -> None:
    results: dict[int, list[int]] = {}

    def map_and_close(thread: int) -> None:
        with ProcessScheduler(1) as scheduler:
            results[thread] = gridengine.map(abs, range(-thread, CALLS), scheduler=scheduler)

    for _ in range(5):
        at_once(map_and_close)
        assert results == {n: [*map(abs, range(-n, CALLS))] for n in range(THREADS)}
        results.clear()


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a lock"
)
def test_the_lock_stays_off_here_and_in_calls() -> None:
    importlib.import_module("zmq")  # for workers elsewhere
    with ProcessScheduler(1) as scheduler:
        assert not any(gridengine.map(lambda _: sys._is_gil_enabled(), [0], scheduler=scheduler))
    assert not sys._is_gil_enabled()
