"""A `Client`, whose dispatchers are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.api import client as module
from gridengine.errors import ConfigurationError
from gridengine.watching import dispatcher_lookup


class Dispatcher:
    """Has a journal on a disk that may be full."""

    def __init__(self) -> None:
        self.full = self.closed = False
        self.waited: list[float | None] = []

    def flush(self, timeout: float | None) -> bool:
        self.waited.append(timeout)
        return not self.full


@pytest.fixture
def dispatchers(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Dispatcher]:
    """The dispatcher of each scheduler."""
    made: dict[Any, Dispatcher] = {}
    monkeypatch.setattr(dispatcher_lookup, "client_file", Path)
    monkeypatch.setattr(module, "dispatcher_of", lambda one: made.setdefault(one, Dispatcher()))
    return made


@pytest.mark.parametrize("full", [None, 0, 1, 2])
def test_calls_are_durable_once_those_of_the_client_and_of_all_its_runs_are(
    dispatchers: dict[Any, Dispatcher], full: int | None
) -> None:
    client = gridengine.Client("night")
    places = [client, client.leaving_as("a"), client.leaving_as("b")]
    for number, place in enumerate(places):
        dispatchers.setdefault(place, Dispatcher()).full = number == full
    assert client.flush() == (full is None)
    assert [dispatchers[place].waited for place in places] == [[None]] * 3
    assert client.flush(0) == (full is None)
    assert [dispatchers[place].waited for place in places] == [[None, 0.0]] * 3


def test_a_client_whose_calls_cannot_be_written_is_not_detached(
    dispatchers: dict[Any, Dispatcher],
) -> None:
    client = gridengine.Client("night")
    run = client.leaving_as("a")
    dispatchers.setdefault(run, Dispatcher()).full = True
    with pytest.raises(ConfigurationError, match="cannot write its journal"):
        client.disconnect(detach=True)
    assert not client._closed
    assert not run._closed
