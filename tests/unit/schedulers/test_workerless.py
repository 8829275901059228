"""Calls in this very process. How they run: `tests/unit/calls/test_inline.py`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from gridengine.client.connect import connect
from gridengine.errors import ConfigurationError
from gridengine.schedulers.workerless import InlineScheduler, NestedScheduler, RemoteScheduler


@pytest.mark.parametrize("number", [None, 1, 50])
def test_a_number_of_workers_is_taken_and_has_no_effect(number: int | None) -> None:
    scheduler = InlineScheduler(max_workers=number)
    assert (scheduler.max_workers, repr(scheduler)) == (1, "InlineScheduler()")


@pytest.mark.parametrize(("number", "error"), [(0, ConfigurationError), ("2", TypeError)])
def test_a_wrong_number_of_workers_is_refused(number: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_workers"):
        InlineScheduler(number)  # type: ignore[arg-type]


class Shared:
    def __init__(self) -> None:
        self.closed = 0

    def close(self, *, wait: bool = True) -> None:
        self.closed += 1


def test_a_closed_scheduler_can_be_used_again() -> None:
    scheduler, shared = NestedScheduler(), Shared()
    scheduler.close()
    assert scheduler._share(lambda: shared) is shared
    with scheduler:
        pass
    assert shared.closed == 1
    assert scheduler._share(Shared) is shared


def test_a_scheduler_without_calls_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no call runs here"):
        connect(NestedScheduler())


PATH = Path("/r/client.json")


def test_a_kept_scheduler_has_the_same_place_and_limits() -> None:
    client = RemoteScheduler(PATH, weight=2, max_calls=10, max_bytes=1000)
    kept = client.leaving_as("sweep")
    assert (kept.path, kept.weight, kept.max_calls, kept.max_bytes) == (PATH, 2, 10, 1000)
    assert (client.origin, kept.origin) == ("", "sweep")


def test_kept_values_are_known_while_somebody_has_them() -> None:
    client = RemoteScheduler(PATH)
    kept = client.leaving_as("sweep")
    assert list(client.of_runs) == [kept]
    del kept
    gc.collect()
    assert list(client.of_runs) == []


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("weight", 0, ConfigurationError),
        ("weight", float("inf"), ConfigurationError),
        ("weight", "2", TypeError),
        ("max_calls", 0, ConfigurationError),
        ("max_calls", 1.5, TypeError),
        ("max_bytes", -1, ConfigurationError),
        ("max_bytes", True, TypeError),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        RemoteScheduler(PATH, **{name: value})
