"""Calls that ask for resources, in real processes of this machine: what they are given, and who
runs beside whom.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import gridengine
from gridengine import Capacity, Cores, Executor, GPUs, Memory, ProcessScheduler, Token
from gridengine.resources import Resource
from gridengine.system import processors

CPUS = processors()


class Disk(Capacity):
    """Jobs at a time that write to the slow disk."""


@pytest.fixture
def scheduler() -> Iterator[ProcessScheduler]:
    with ProcessScheduler(
        4, worker_resources=Token("licence") & Disk(1) & Memory(8) & GPUs(2)
    ) as one:
        yield one


def look(_: object = None) -> tuple[gridengine.Resource, list[int], str | None, str | None]:
    threads, gpus = os.environ.get("OMP_NUM_THREADS"), os.environ.get("CUDA_VISIBLE_DEVICES")
    return gridengine.GVAR.res, sorted(os.sched_getaffinity(0)), threads, gpus


@pytest.mark.linux
@pytest.mark.promise
def test_a_call_runs_on_the_cores_that_it_was_given(scheduler: ProcessScheduler) -> None:
    [(given, cpus, threads, _)] = gridengine.map(look, [0], scheduler=scheduler, resources=Cores(1))
    assert given == Cores(1, cpus)
    assert set(cpus) <= set(CPUS)
    assert len(cpus) == 1
    assert threads == "1"


def test_calls_that_ask_for_nothing_are_neither_pinned_nor_limited(
    scheduler: ProcessScheduler,
) -> None:
    gridengine.map(look, range(2), scheduler=scheduler, resources=Cores(1))
    for given, cpus, _, _ in gridengine.map(look, range(2), scheduler=scheduler):
        assert (given, cpus) == (gridengine.ZERO, CPUS)


class Moody(Resource):
    """A kind one of whose methods raises in the threads of the package."""

    fails, failure = "", ValueError

    def __init__(self, seats: int = 1) -> None:
        self.seats = seats

    def can_allocate(self, res: object) -> bool:
        self.may_fail("can_allocate")
        return True

    def allocate(self, res: Moody) -> Moody:
        self.may_fail("allocate")
        return Moody(res.seats)

    def deallocate(self, res: object) -> None:
        self.may_fail("deallocate")

    def expression(self) -> str:
        self.may_fail("expression")
        return f"Moody({self.seats})"

    def usage(self) -> tuple[float, float]:
        self.may_fail("usage")
        return 0, 1

    def set_time(self, now: float) -> None:
        self.may_fail("set_time")

    def _held(self) -> Moody:
        self.may_fail("_held")
        return super()._held()

    def __eq__(self, other: object) -> bool:
        self.may_fail("__eq__")
        return super().__eq__(other)

    def __hash__(self) -> int:
        self.may_fail("__hash__")
        return super().__hash__()

    def __repr__(self) -> str:
        self.may_fail("__repr__")
        return super().__repr__()

    def __reduce__(self) -> tuple[object, ...]:
        self.may_fail("__reduce__")
        return Moody, (self.seats,)

    def may_fail(self, name: str) -> None:
        if name == self.fails and threading.current_thread().name.startswith("gridengine"):
            raise self.failure("a fault of mine")


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "method",
    sorted(
        {name for name in vars(Moody) if callable(getattr(Moody, name))}
        - {"may_fail", "failure", "__init__"}
    ),
)
def test_an_error_of_a_users_own_kind_fails_no_other_call(
    monkeypatch: pytest.MonkeyPatch, method: str, failure: type[BaseException]
) -> None:
    with (
        ProcessScheduler(2, worker_resources=Moody(3)) as scheduler,
        Executor(scheduler=scheduler) as executor,
    ):
        monkeypatch.setattr(Moody, "fails", method)
        monkeypatch.setattr(Moody, "failure", failure)
        for _ in range(2):
            future = executor.with_options(resources=Moody(1)).submit(abs, -1)
            error = future.exception(120)
            if error is None:
                assert future.result() == 1
            else:
                assert isinstance(error, gridengine.ConfigurationError)
                assert "a fault of mine" in str(error)
                assert isinstance(error.__cause__, failure)
            for resources in (Cores(1), Cores(2), Memory(0.5)):
                assert executor.with_options(resources=resources).submit(abs, -2).result(120) == 2
            assert gridengine.map(abs, [-3, -4], scheduler=scheduler) == [3, 4]
        monkeypatch.setattr(Moody, "fails", "")
        assert executor.with_options(resources=Moody(2)).submit(abs, -5).result(120) == 5
