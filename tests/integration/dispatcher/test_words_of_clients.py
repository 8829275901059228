"""`Client` has the words that the clients of others have."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import pytest

import gridengine


@pytest.fixture(scope="module")
def client() -> Iterator[gridengine.Client]:
    with (
        gridengine.LocalDispatcher(1) as dispatcher,
        gridengine.Client(dispatcher.address) as client,
    ):
        yield client


def test_a_client_has_a_starmap(client: gridengine.Client) -> None:
    assert client.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]


def test_a_client_gets_keys_of_a_graph(client: gridengine.Client) -> None:
    graph = {"a": 2, "b": (operator.add, "a", 3)}
    assert client.get(graph, "b") == 5
    assert client.get(graph, ["a", "b"]) == (2, 5)
