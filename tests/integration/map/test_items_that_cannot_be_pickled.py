"""One call's bad argument or result is its own: those that travel with it are as good as ever. By
every way to have calls made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import gridengine
from gridengine.errors import PicklingError
from gridengine.schedulers.base import Scheduler
from tests.support.tcp_scheduler import TcpScheduler

SECONDS = 120
CALLS, BAD = 1000, 500


@pytest.fixture(scope="module", params=["processes", "tcp", "inline"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    kinds = {"processes": gridengine.ProcessScheduler, "tcp": TcpScheduler}
    if request.param == "inline":
        yield gridengine.InlineScheduler()
        return
    with kinds[request.param](max_workers=2) as scheduler:
        yield scheduler


class Number:
    """A number that cannot be rebuilt where it says."""

    def __init__(self, number: int, error: BaseException | None = None) -> None:
        self.number = number
        self.error = error

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["error"] is not None:
            raise state["error"]
        vars(self).update(state)


class Leaving:
    """Ends whoever pickles it."""

    def __reduce__(self) -> Any:
        sys.exit("no licence")


class LeavingError(Exception):
    """Ends whoever pickles it."""

    def __reduce__(self) -> Any:
        sys.exit("no licence")


def arguments(error: BaseException) -> list[Number]:
    return [Number(number, error if number == BAD else None) for number in range(CALLS)]


def number_of(one: Number) -> int:
    return one.number


def bad_result(number: int) -> Number:
    return Number(number, KeyError("not here") if number == BAD else None)


def leaving_result(number: int) -> Any:
    return Leaving() if number == BAD else number


def leaving_error(number: int) -> int:
    if number == BAD:
        raise LeavingError
    return number


def errors_in(results: list[Any]) -> dict[int, type[BaseException]]:
    """Return the errors among the results, each with its place; check that all others are their
    place's number.
    """
    found = {
        place: type(one) for place, one in enumerate(results) if isinstance(one, BaseException)
    }
    assert [one for one in results if not isinstance(one, BaseException)] == [
        place for place in range(CALLS) if place not in found
    ]
    return found


@pytest.mark.parametrize("error", [KeyError("no"), SystemExit("no licence")])
def test_a_map_misses_only_the_call_whose_argument_cannot_be_rebuilt(
    error: BaseException, scheduler: Scheduler
) -> None:
    results = gridengine.map(number_of, arguments(error), scheduler=scheduler, reraise=False)
    assert errors_in(results) == {BAD: type(error)}
    assert "in __setstate__" in str(results[BAD].__cause__)


@pytest.mark.promise
def test_a_pools_calls_fail_alone(scheduler: Scheduler) -> None:
    with gridengine.Pool(scheduler=scheduler) as pool:
        results = [pool.apply_async(number_of, (one,)) for one in arguments(KeyError("no"))]
        assert errors_in(
            [
                result.get(SECONDS) if result.successful() else KeyError()
                for result in results
                if result.wait() is None
            ]
        ) == {BAD: KeyError}
        iterator = pool.imap(number_of, arguments(KeyError("no")), chunksize=50)
        assert [iterator.next(SECONDS) for _ in range(BAD)] == list(range(BAD))
        with pytest.raises(KeyError, match="no"):
            next(iterator)
        assert list(iterator) == list(range(BAD + 1, CALLS))


@pytest.mark.parametrize("f", [leaving_result, leaving_error])
def test_an_outcome_whose_pickling_ends_the_process_is_an_error_of_its_call(
    f: Any, scheduler: Scheduler
) -> None:
    assert list(
        errors_in(gridengine.map(f, range(CALLS), scheduler=scheduler, reraise=False, retries=0))
    ) == [BAD]


def test_a_job_whose_argument_or_result_cannot_be_rebuilt_says_so(scheduler: Scheduler) -> None:
    jobs = [
        gridengine.Job(target=number_of, args=(Number(1, KeyError("no")),), scheduler=scheduler),
        gridengine.Job(target=bad_result, args=(BAD,), scheduler=scheduler),
        gridengine.Job(target=number_of, args=(Number(1),), scheduler=scheduler),
    ]
    for job in jobs:
        job.start()
    assert [job.outcome(SECONDS).__class__ for job in jobs] == [KeyError, PicklingError, int]
