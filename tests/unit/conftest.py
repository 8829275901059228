"""Executors on dispatchers of the tests, named runs in this process, and pipes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gridengine
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher
from tests.support.named_calls import Notes
from tests.support.played_listener import Played
from tests.support.watched import Machine


@pytest.fixture
def dispatcher() -> HeldDispatcher:
    return HeldDispatcher()


@pytest.fixture
def waiting(dispatcher: HeldDispatcher) -> Iterator[gridengine.Executor]:
    """An executor at whose dispatcher nothing happens before a test runs it."""
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher))
    yield executor
    executor.shutdown(wait=False, cancel_futures=True)
    dispatcher.run_what_is_there()


@pytest.fixture
def executor() -> Iterator[gridengine.Executor]:
    """An executor whose calls run when they are submitted."""
    with gridengine.Executor(scheduler=FakeScheduler()) as executor:
        yield executor


@pytest.fixture
def played() -> Played:
    """A dispatcher's end for clients."""
    return Played()


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The calls that a named run has made."""
    return Notes(tmp_path, monkeypatch)


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> Iterator[Machine]:
    """A machine without dispatchers, runs and reports of who runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        configure(watch_directory=folder, run_directory=tmp_path / "runs")
        with contextlib.closing(Machine(Path(folder))) as machine:
            yield machine


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe to read and to write; a test may close them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)
