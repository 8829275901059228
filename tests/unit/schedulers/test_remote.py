"""Where the workers of a dispatcher in another process are."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers.remote import RemoteScheduler

PATH = Path("/r/client.json")


def test_one_that_is_kept_has_the_same_place_and_limits() -> None:
    client = RemoteScheduler(PATH, weight=2, max_calls=10, max_bytes=1000)
    kept = client.leaving_as("sweep")
    assert (kept.path, kept.weight, kept.max_calls, kept.max_bytes) == (PATH, 2, 10, 1000)
    assert (client.origin, kept.origin) == ("", "sweep")


def test_those_that_are_kept_are_known_for_as_long_as_somebody_has_them() -> None:
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
def test_what_is_no_number_or_out_of_range_is_refused(
    name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=name):
        RemoteScheduler(PATH, **{name: value})
