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
    kept = client.keeping("sweep")
    assert (kept.path, kept.weight, kept.max_calls, kept.max_bytes) == (PATH, 2, 10, 1000)
    assert (client.keep, kept.keep) == ("", "sweep")


def test_those_that_are_kept_are_known_for_as_long_as_somebody_has_them() -> None:
    client = RemoteScheduler(PATH)
    kept = client.keeping("sweep")
    assert list(client.kept) == [kept]
    del kept
    gc.collect()
    assert list(client.kept) == []


@pytest.mark.parametrize(
    "given",
    [{"weight": 0}, {"weight": -1}, {"weight": float("inf")}, {"max_calls": 0}, {"max_bytes": -1}],
)
def test_what_is_out_of_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        RemoteScheduler(PATH, **given)


@pytest.mark.parametrize("given", [{"weight": "2"}, {"max_calls": 1.5}, {"max_bytes": True}])
def test_what_is_no_number_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(given))):
        RemoteScheduler(PATH, **given)


def test_it_launches_nothing() -> None:
    with pytest.raises(NotImplementedError, match="no workers to launch"):
        RemoteScheduler(PATH).launcher(None)  # type: ignore[arg-type]
