"""Clients of a stand-alone dispatcher, and calls with one as their scheduler."""

from __future__ import annotations

import operator
import time

import pytest

import gridengine
from gridengine.errors import Cancelled, ConfigurationError
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until


def test_a_call_and_its_exception_come_back(client: gridengine.Client) -> None:
    assert client.submit(pow, 2, 5).result() == 32
    with pytest.raises(ZeroDivisionError) as caught:
        client.submit(operator.truediv, 1, 0).result()
    assert caught.value.__cause__ is not None


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


def test_a_dispatcher_that_does_not_run_is_named(tmp_path: object) -> None:
    with pytest.raises(ConfigurationError, match="no dispatcher 'nosuch' runs"):
        gridengine.Client("nosuch")
    with pytest.raises(ConfigurationError, match="dispatcher must not be empty"):
        gridengine.Client("")
    with pytest.raises(TypeError, match="dispatcher must be a text, not 5"):
        gridengine.Client(5)  # type: ignore[arg-type]
