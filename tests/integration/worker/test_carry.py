"""State of the caller that calls find by `gridengine.carry`, and NumPy's."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Iterator

import numpy
import pytest

import gridengine
from tests.support.places import ROOT
from tests.support.standalone import Standalone
from tests.support.tcp_scheduler import TcpScheduler

VARIABLE = contextvars.ContextVar("VARIABLE", default="initial")
LEVEL = [0]


def get() -> int:
    return LEVEL[0]


def set_(value: int) -> None:
    LEVEL[0] = value


def seen(_: object) -> tuple[str, int]:
    return VARIABLE.get(), LEVEL[0]


def unloadable() -> None:
    raise ValueError("cannot be loaded")


class Unloadable:
    def __reduce__(self) -> tuple[object, ...]:
        return unloadable, ()

    def __call__(self, _: object) -> None: ...


async def seen_later(_: object) -> tuple[str, int]:
    return seen(0)


def seen_where(_: object) -> tuple[int, tuple[str, int]]:
    return os.getpid(), seen(0)


def divided(_: object) -> str:
    numpy.ones(1) / numpy.zeros(1)
    return str(numpy.array([1 / 3]))


@pytest.fixture(scope="module", params=["local", "tcp", "stand-alone", "inline"])
def scheduler(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[gridengine.schedulers.Scheduler]:
    kinds = {
        "local": lambda: gridengine.ProcessScheduler(1),
        "tcp": lambda: TcpScheduler(1),
        "inline": gridengine.InlineScheduler,
    }
    if request.param in kinds:
        with kinds[request.param]() as scheduler:
            yield scheduler
        return
    folder = tmp_path_factory.mktemp("runs")
    standalone = Standalone(folder, max_workers=1, PYTHONPATH=str(ROOT))
    try:
        with gridengine.Client(standalone.path) as client:
            yield client
    finally:
        standalone.end()


@pytest.fixture(autouse=True)
def carried() -> Iterator[None]:
    """Carry the pair and the variable, with other values than a process has at first."""
    token, LEVEL[0] = VARIABLE.set("mine"), 7
    with gridengine.carry(get, set_), gridengine.carry(VARIABLE):
        yield
    VARIABLE.reset(token)
    LEVEL[0] = 0


@pytest.mark.promise
@pytest.mark.parametrize("f", [seen, seen_later])
def test_calls_find_the_state_that_their_caller_carries(
    scheduler: gridengine.schedulers.Scheduler, f: object
) -> None:
    assert gridengine.map(f, [0, 1], scheduler=scheduler) == [("mine", 7)] * 2
    LEVEL[0] = 8
    assert gridengine.map(f, [0], scheduler=scheduler) == [("mine", 8)]


def test_a_function_that_cannot_be_loaded_leaves_the_next_one_its_state() -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        with pytest.raises(ValueError, match="cannot be loaded"):
            gridengine.map(Unloadable(), [0], scheduler=scheduler)
        [(_, found)] = gridengine.map(seen_where, [0], scheduler=scheduler)
    assert found == ("mine", 7)


def test_calls_of_a_caller_that_carries_nothing_find_no_state_of_another() -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        [(process, found)] = gridengine.map(seen_where, [0], scheduler=scheduler)
        assert found == ("mine", 7)
        with gridengine.carry(VARIABLE) as variable, gridengine.carry(get, set_) as pair:
            variable.close()
            pair.close()
            [(other, found)] = gridengine.map(seen_where, [0], scheduler=scheduler)
            assert found == ("initial", 0)
            assert other != process
        with gridengine.carry(VARIABLE):
            [(same, found)] = gridengine.map(seen_where, [0], scheduler=scheduler)
        assert (same, found) == (other, ("mine", 0))


def test_the_end_of_a_process_for_others_calls_loses_no_result() -> None:
    """Calls of one function that carry a pair, then not, by turns, handed over together."""
    futures = []
    with gridengine.Executor(1) as executor:
        for number in range(6):
            pair = gridengine.carry(get, set_)  # in the place of the fixture's
            if number % 2 == 0:
                pair.close()
            futures.append(executor.submit(seen, number))
            pair.close()
    assert [one.result() for one in futures] == [("mine", 0), ("mine", 7)] * 3


@pytest.mark.promise
def test_calls_have_the_error_state_and_print_options_of_numpy_of_their_map(
    scheduler: gridengine.schedulers.Scheduler,
) -> None:
    with numpy.errstate(all="raise"), pytest.raises(FloatingPointError):
        gridengine.map(divided, [0], scheduler=scheduler)
    with numpy.errstate(all="ignore"), numpy.printoptions(precision=2):
        assert gridengine.map(divided, [0], scheduler=scheduler) == ["[0.33]"]
    with numpy.errstate(divide="ignore"):
        assert gridengine.map(divided, [0], scheduler=scheduler) == ["[0.33333333]"]
