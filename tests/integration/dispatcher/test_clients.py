"""Clients of a stand-alone dispatcher. A client goes wherever a scheduler goes."""

from __future__ import annotations

import operator
import os
import time

import numpy as np
import pytest

import gridengine
from gridengine.errors import ConfigurationError, WorkerCrashed


def crash() -> None:
    os.abort()


class Adder:
    def __init__(self, total: object) -> None:
        self.total = total

    def add(self, other: object) -> object:
        self.total = self.total + other  # type: ignore[operator]
        return self.total

    def exit(self) -> None:
        os._exit(4)


def test_a_notebook_shows_the_dispatcher_s_status(client: gridengine.Client) -> None:
    client.map(abs, range(10))
    assert " done" in client._repr_html_()
    with gridengine.Client(client._name) as other:
        other.disconnect()
        assert "disconnected" in other._repr_html_()


def test_a_dispatcher_that_does_not_run_is_named() -> None:
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


def test_an_executor_has_a_client_as_its_scheduler(client: gridengine.Client) -> None:
    with gridengine.Executor(scheduler=client) as executor:
        futures = [executor.submit(pow, 2, x) for x in range(200)]
        assert [future.result() for future in futures] == [2**x for x in range(200)]
        assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        assert isinstance(executor.submit(crash).exception(), WorkerCrashed)


def test_a_job_dies_and_one_is_terminated(client: gridengine.Client) -> None:
    died, slept = (
        gridengine.Job(target=crash, scheduler=client, retries=0),
        gridengine.Job(target=time.sleep, args=(3600,), scheduler=client),
    )
    died.start()
    slept.start()
    slept.terminate()
    died.join()
    slept.join()
    assert (died.exitcode, slept.exitcode) == (-6, -15)


def test_futures_and_shared_objects_are_arguments(client: gridengine.Client) -> None:
    table = gridengine.share(list(range(1000)))
    with gridengine.Executor(scheduler=client) as executor:
        first = executor.submit(lambda table: sum(table), table)
        assert executor.submit(lambda x, y: x + y, first, 1).result() == 499_501
    assert client.map(lambda x: table[x], [3, 5]) == [3, 5]


def test_calls_make_calls(client: gridengine.Client) -> None:
    def outer(x: int) -> list[int]:
        return gridengine.map(lambda y: x * y, range(3))

    assert client.map(outer, range(3)) == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]


def test_a_client_calls_the_methods_of_its_object(client: gridengine.Client) -> None:
    with client.actor(Adder, 0) as adder:
        assert [one.result() for one in [adder.add(1) for _ in range(1000)]] == [*range(1, 1001)]
    ones = np.ones(500_000)
    with client.actor(Adder, ones) as adder:
        assert adder.add(ones).result().sum() == 1_000_000
        with pytest.raises(gridengine.ActorLost, match="exited with status 4"):
            adder.exit().result()
