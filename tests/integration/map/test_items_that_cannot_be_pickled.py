"""One call's bad argument or result is its own: those that travel with it are as good as ever. By
every way to have calls made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gridengine
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


def arguments(error: BaseException) -> list[Number]:
    return [Number(number, error if number == BAD else None) for number in range(CALLS)]


def number_of(one: Number) -> int:
    return one.number


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
