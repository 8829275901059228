"""What `multiprocessing` finds in a runner; with modules of the tests' own in the place of its own,
and an agent that answers at once.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import select
import socket
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gridengine.serialize import shared_objects
from gridengine.wire import agent_requests
from gridengine.wire.channel import socket_pair
from gridengine.worker import multiprocessing_state
from gridengine.worker.multiprocessing_state import prepare

PARTS = ("context", "process", "resource_tracker", "shared_memory")


@pytest.fixture
def answers() -> dict[bytes, agent_requests.Answer]:
    """What the agent answers; to all else it has no answer."""
    return {}


@pytest.fixture
def sock(
    monkeypatch: pytest.MonkeyPatch, answers: dict[bytes, agent_requests.Answer]
) -> Iterator[socket.socket]:
    """A runner's end of its socket; at the other end this process is the agent."""
    for part in PARTS:
        monkeypatch.delitem(sys.modules, f"multiprocessing.{part}", raising=False)
        if hasattr(multiprocessing, part):
            monkeypatch.setattr(multiprocessing, part, getattr(multiprocessing, part))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    registry, factory = shared_objects.registry(), logging.getLogRecordFactory()
    fetch = registry.fetch_descriptor
    ours, theirs = socket_pair()

    def serve() -> None:
        while agent_requests.reply(theirs, answers.__getitem__):
            select.select([theirs], [], [])

    agent = threading.Thread(target=serve)
    agent.start()
    yield ours
    ours.close()
    agent.join()
    theirs.close()
    registry.fetch_descriptor = fetch
    logging.setLogRecordFactory(factory)


def test_a_runner_is_a_child_of_its_agent_once_user_code_asks(
    sock: socket.socket, answers: dict[bytes, agent_requests.Answer]
) -> None:
    answers[agent_requests.AUTHENTICATION_KEY] = b"the caller's", None
    prepare(sock, 3)
    assert "multiprocessing.process" not in sys.modules
    process = importlib.import_module("multiprocessing.process")
    assert process.current_process().name == "PoolWorker-3"
    assert process.parent_process().pid == os.getpid()
    assert process.current_process().authkey == b"the caller's"


def test_elsewhere_it_keeps_a_key_of_its_own(sock: socket.socket) -> None:
    prepare(sock, 3)
    process = importlib.import_module("multiprocessing.process")
    assert len(process.current_process().authkey) == 32


def test_a_module_that_is_loaded_already_is_adapted_too(
    sock: socket.socket,
) -> None:
    process = importlib.import_module("multiprocessing.process")
    prepare(sock, 4)
    assert process.current_process().name == "PoolWorker-4"


def test_a_module_is_loaded_as_without_this(sock: socket.socket) -> None:
    before = importlib.import_module("multiprocessing.process")
    del sys.modules["multiprocessing.process"]
    prepare(sock, 5)
    after = importlib.import_module("multiprocessing.process")
    assert after is not before
    assert type(after.__loader__) is type(before.__loader__)
    assert after.__spec__ is not None
    assert after.__spec__.loader is after.__loader__


def test_records_name_the_process_before_multiprocessing_is_there(
    sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(sock, 6)
    make = logging.getLogRecordFactory()
    arguments = "name", logging.INFO, "path", 1, "text", (), None
    assert make(*arguments).processName != "PoolWorker-6"  # whom it asks knows better
    monkeypatch.delitem(sys.modules, "multiprocessing")
    assert make(*arguments).processName == "PoolWorker-6"


class Tracker:
    """As `multiprocessing.resource_tracker` has one; notes what it is told."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self.registered: list[str] = []

    def register(self, name: str, kind: str) -> None:
        self.registered.append(name)

    def unregister(self, name: str, kind: str) -> None:
        self.registered.remove(name)


@pytest.mark.parametrize("given", [True, False])
def test_runners_share_the_callers_tracker_or_start_one(
    sock: socket.socket,
    answers: dict[bytes, agent_requests.Answer],
    monkeypatch: pytest.MonkeyPatch,
    pipe: tuple[int, int],
    given: bool,
) -> None:
    module = ModuleType("multiprocessing.resource_tracker")
    tracker = Tracker()
    module._resource_tracker = tracker  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    if given:
        answers[agent_requests.RESOURCE_TRACKER] = b"", pipe[1]
    prepare(sock, 7)
    found = tracker._fd
    if found is None:
        assert not given
    else:
        assert os.path.sameopenfile(found, pipe[1])
        os.close(found)
    answers.clear()
    assert tracker._fd == found
    tracker._fd = 18
    assert tracker._fd == 18


@pytest.fixture
def memory(sock: socket.socket, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module as `multiprocessing.shared_memory`, and its tracker."""
    tracker = Tracker()
    module = ModuleType("multiprocessing.shared_memory")

    class SharedMemory:
        """As Python's before 3.13."""

        def __init__(self, name: str, create: bool, size: int, track: bool = True) -> None:
            self._name = name
            if name == "none":
                raise FileNotFoundError(name)
            if track:
                here.resource_tracker.register(name, "shared_memory")

        def unlink(self) -> None:
            here.resource_tracker.unregister(self._name, "shared_memory")

    here: Any = module
    here.SharedMemory, here.resource_tracker = SharedMemory, tracker
    monkeypatch.setitem(sys.modules, module.__name__, module)
    prepare(sock, 8)
    return SimpleNamespace(make=here.SharedMemory, noted=tracker.registered)


def test_the_maker_of_a_segment_alone_notes_it(memory: SimpleNamespace) -> None:
    mine = memory.make("mine", create=True, size=8)
    theirs = memory.make("theirs")
    assert memory.noted == ["mine"]
    theirs.unlink()
    assert memory.noted == ["mine"]
    mine.unlink()
    assert memory.noted == []


def test_tracking_set_by_user_code_holds(memory: SimpleNamespace) -> None:
    memory.make("theirs", track=True)
    memory.make("others", track=False)
    assert memory.noted == ["theirs"]


def test_after_one_that_is_not_there_the_next_is_noted(memory: SimpleNamespace) -> None:
    with pytest.raises(FileNotFoundError):
        memory.make("none")
    memory.make("mine", create=True, size=8)
    assert memory.noted == ["mine"]


def test_the_class_is_called_as_pythons_own(memory: SimpleNamespace) -> None:
    assert memory.make.__name__ == "SharedMemory"
    assert memory.make.__module__ == __name__
    assert multiprocessing_state.__name__ not in repr(memory.make)


def test_children_are_forked_unless_the_call_says_otherwise(
    sock: socket.socket,
) -> None:
    prepare(sock, 3)
    context = importlib.import_module("multiprocessing.context")._default_context
    assert context.get_start_method(allow_none=True) is None
    assert context.get_context().get_start_method() == "fork"
    context.set_start_method("spawn", force=True)
    assert context.get_context().get_start_method() == "spawn"
