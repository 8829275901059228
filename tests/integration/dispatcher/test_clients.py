"""Clients of a stand-alone dispatcher, and calls with one as their scheduler."""

from __future__ import annotations

import operator
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import gridengine
from gridengine.dispatcher import journal_limits
from gridengine.errors import Cancelled, ConfigurationError
from gridengine.resources import Token
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until


def test_a_map_runs_on_the_dispatchers_workers(client: gridengine.Client) -> None:
    assert gridengine.map(lambda x: x * x, range(1000), scheduler=client) == [
        x * x for x in range(1000)
    ]
    pids = set(client.map(lambda _: os.getppid(), range(10)))
    assert os.getpid() not in pids


def test_a_call_and_its_exception_come_back(client: gridengine.Client) -> None:
    assert client.submit(pow, 2, 5).result() == 32
    with pytest.raises(ZeroDivisionError) as caught:
        client.submit(operator.truediv, 1, 0).result()
    assert caught.value.__cause__ is not None


def test_a_graph_runs_at_the_dispatcher(client: gridengine.Client) -> None:
    graph = {"a": 1, "b": (abs, -5), "e": (sum, ["a", "b"])}
    [future] = client.submit_graph(graph, keys=["e"])
    assert future.result() == 6


def test_a_call_that_cannot_be_encoded_fails_alone(client: gridengine.Client) -> None:
    def odd() -> int:
        return 5

    odd.__name__ = odd.__qualname__ = "\ud800"
    assert client.submit(odd).result(60) == 5
    with pytest.raises(ConfigurationError, match="handed in"):
        gridengine.map(abs, [-1], resources=Token("\ud800"), scheduler=client)
    assert client.submit(abs, -1).result(60) == 1


def test_a_call_that_the_journal_cannot_hold_fails_alone_with_those_that_need_it(
    client: gridengine.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 1_000_000)
    large, small = b"x" * 1_000_001, b"x" * 1_000
    futures = [client.submit(len, one) for one in (small, large, small)]
    graph = {"n": (len, large), "e": (abs, "n"), "f": (float, "n")}
    futures += client.submit_graph(graph, keys=["e", "f"])
    assert [futures[0].result(60), futures[2].result(60)] == [1_000, 1_000]
    for refused in (futures[1], *futures[3:]):
        with pytest.raises(ConfigurationError, match="a call of len has 1,000,"):
            refused.result(60)
    with pytest.raises(ConfigurationError, match="a call of len has 1,000,"):
        client.map(len, [small, large])
    assert client.submit(abs, -1).result(60) == 1


def test_a_notebook_shows_what_the_dispatcher_tells(client: gridengine.Client) -> None:
    client.map(abs, range(10))
    assert " done" in client._repr_html_()
    with gridengine.Client(client._name) as other:
        other.disconnect()
        assert "disconnected" in other._repr_html_()


def test_a_client_that_has_left_takes_no_calls(standalone: Standalone) -> None:
    client = gridengine.Client(standalone.path)
    assert client.submit(abs, -1).result() == 1
    client.disconnect()
    client.disconnect()
    with pytest.raises(ConfigurationError, match="closed"):
        gridengine.map(abs, [1], scheduler=client)


def test_a_client_that_leaves_ends_its_calls_and_no_others(standalone: Standalone) -> None:
    with gridengine.Client(standalone.path) as stays:
        leaves = gridengine.Client(standalone.path)
        sleeping = leaves.submit(__import__("time").sleep, 3600)
        wait_until(sleeping.running)
        leaves.disconnect()
        with pytest.raises(Cancelled):
            sleeping.result()
        wait_until(lambda: stays.status().running == 0)
        assert stays.submit(abs, -3).result() == 3


def detaches() -> None:
    gridengine.Executor(detach=True).submit(time.sleep, 3600)


def test_detached_calls_go_on_until_the_client_leaves_whose_call_made_them(
    standalone: Standalone,
) -> None:
    with gridengine.Client(standalone.path) as stays:
        leaves = gridengine.Client(standalone.path)
        leaves.submit(detaches).result(60)
        wait_until(lambda: stays.status().running == 1)
        own, other = (stays.describe()["clients"][place] for place in (-2, -1))
        assert (own["running"], other["running"], other["done"]) == (0, 1, 1)
        leaves.disconnect()
        wait_until(lambda: stays.status().running == 0)


def test_several_clients_share_the_workers(standalone: Standalone) -> None:
    def one(number: int) -> list[int]:
        with gridengine.Client(standalone.path) as client:
            return client.map(lambda x: x + number, range(100))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one, range(4))) == [
            list(range(number, number + 100)) for number in range(4)
        ]


@pytest.mark.parametrize("resources", [None, gridengine.resources.Memory(0.1)])
def test_ten_calls_of_one_do_not_wait_behind_many_of_another(
    standalone: Standalone, resources: gridengine.resources.Resource | None
) -> None:
    with (
        gridengine.Client(standalone.path) as first,
        gridengine.Client(standalone.path, weight=2) as second,
        gridengine.Executor(scheduler=first) as executor,
    ):
        executor.map(time.sleep, [0.1] * 2000)
        wait_until(lambda: first.status().waiting > 1000)
        assert second.map(abs, range(10), resources=resources) == list(range(10))
        wait_until(lambda: [one["done"] for one in second.describe()["clients"][-1:]] == [10])
        assert first.status().waiting > 1000
        executor.shutdown(cancel_futures=True)


def test_the_files_are_for_their_user_alone(standalone: Standalone) -> None:
    assert stat.S_IMODE(standalone.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in standalone.folder.iterdir()} == {0o600}


def test_a_dispatcher_that_does_not_run_is_named(tmp_path: object) -> None:
    with pytest.raises(ConfigurationError, match="no dispatcher 'nosuch' runs"):
        gridengine.Client("nosuch")
    with pytest.raises(ConfigurationError, match="dispatcher must not be empty"):
        gridengine.Client("")
    with pytest.raises(TypeError, match="dispatcher must be a text, not 5"):
        gridengine.Client(5)  # type: ignore[arg-type]
