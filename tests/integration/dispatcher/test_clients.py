"""Clients of a stand-alone dispatcher, and calls with one as their scheduler."""

from __future__ import annotations

import operator

import pytest

import gridengine
from gridengine.errors import ConfigurationError


def test_a_notebook_shows_what_the_dispatcher_tells(client: gridengine.Client) -> None:
    client.map(abs, range(10))
    assert " done" in client._repr_html_()
    with gridengine.Client(client._name) as other:
        other.disconnect()
        assert "disconnected" in other._repr_html_()


def test_a_dispatcher_that_does_not_run_is_named(tmp_path: object) -> None:
    with pytest.raises(ConfigurationError, match="there is no dispatcher 'nosuch'"):
        gridengine.Client("nosuch")
    with pytest.raises(ConfigurationError, match="dispatcher must not be empty"):
        gridengine.Client("")
    with pytest.raises(TypeError, match="dispatcher must be a text, not 5"):
        gridengine.Client(5)  # type: ignore[arg-type]


def test_a_client_has_a_starmap(client: gridengine.Client) -> None:
    assert client.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]


def test_a_client_gets_keys_of_a_graph(client: gridengine.Client) -> None:
    graph = {"a": 2, "b": (operator.add, "a", 3)}
    assert client.get(graph, "b") == 5
    assert client.get(graph, ["a", "b"]) == (2, 5)
