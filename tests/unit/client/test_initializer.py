"""What is done in each process that runs calls, here in that of the tests."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import pytest

from gridengine.call_context.current_call import GVAR
from gridengine.client.functions import make_function
from gridengine.client.initializer import Initializer, Prepared, initializer_of
from gridengine.errors import PicklingError
from gridengine.serialize import pickling


def test_threads_that_make_calls_at_once_run_it_once_and_wait_for_it() -> None:
    runs, met, done = [], threading.Barrier(4, timeout=60), threading.Event()

    def initializer() -> None:
        runs.append(1)
        done.wait(0.2)  # gives the others the time to come in between, were they let

    def call() -> int:
        met.wait()
        prepared.run()
        return len(runs)

    prepared = Initializer(initializer, (), None)
    with ThreadPoolExecutor(4) as threads:
        assert [each.result() for each in [threads.submit(call) for _ in range(4)]] == [1] * 4


def test_changes_of_calls_stay_when_the_initializer_comes_with_another_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GVAR, "environment_number", 3)
    monkeypatch.setenv("A", "caller")
    first = Initializer(os.environ.__setitem__, ("A", "initializer"), None)
    second = pickling.load(pickling.dump(first))
    first.run()
    os.environ["A"] = "call"
    second.run()
    assert os.environ["A"] == "call"
    GVAR.environment_number += 1  # as when it is set as a caller's
    second.run()
    assert os.environ["A"] == "initializer"


def test_ctrl_c_in_it_ends_the_caller_s_script_and_is_no_failure_of_it() -> None:
    outcomes: list[BaseException | None] = [KeyboardInterrupt(), None]

    def initializer() -> None:
        if error := outcomes.pop(0):
            raise error

    prepared = Initializer(initializer, (), None)
    with pytest.raises(KeyboardInterrupt):
        prepared.run()
    prepared.run()
    assert not outcomes


def test_once_it_has_failed_it_is_not_tried_again() -> None:
    runs: list[int] = []

    def initializer() -> None:
        runs.append(1)
        raise ValueError("no licence")

    prepared = Initializer(initializer, (), None)
    for _ in range(2):
        with pytest.raises(BrokenExecutor, match="no licence"):
            prepared.run()
    assert runs == [1]


def test_arguments_that_are_none_are_named() -> None:
    with pytest.raises(
        TypeError, match=r"initargs must be a tuple of arguments, such as \(x,\), not 5"
    ):
        initializer_of(print, 5, most=None)  # type: ignore[arg-type]


def test_an_argument_that_cannot_be_pickled_is_named_as_the_initializers() -> None:
    lock = multiprocessing.get_context("fork").RLock()
    prepared = Prepared(abs, Initializer(print, (1, lock), None))
    with pytest.raises(PicklingError, match=r"argument 2 of the initializer print .*RLock\)"):
        make_function(prepared)


def test_the_remedy_for_tqdms_lock_names_tqdm() -> None:
    class TqdmDefaultWriteLock:
        def __init__(self) -> None:
            self.locks = [multiprocessing.get_context("fork").RLock()]

    TqdmDefaultWriteLock.__qualname__ = "TqdmDefaultWriteLock"
    prepared = Prepared(abs, Initializer(print, (TqdmDefaultWriteLock(),), None))
    with pytest.raises(PicklingError, match=r"call tqdm.set_lock\(.*'spawn'"):
        make_function(prepared)
