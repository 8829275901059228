"""What calls leave running, and whether a process has to wait for it."""

from __future__ import annotations

import _thread
import atexit
import multiprocessing.process
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gridengine.worker import multiprocessing_state


@pytest.fixture
def leave() -> Iterator[type[threading.Thread]]:
    """A kind of thread that goes on until the test is over."""
    over, threads = threading.Event(), list[threading.Thread]()

    class Thread(threading.Thread):
        def __init__(self, *, daemon: bool) -> None:
            super().__init__(target=over.wait, daemon=daemon)
            threads.append(self)
            self.start()

    yield Thread
    over.set()
    for thread in threads:
        thread.join()


def test_a_thread_is_waited_for_unless_it_is_a_daemon(leave: type[threading.Thread]) -> None:
    assert not multiprocessing_state.is_running()
    leave(daemon=True)
    assert not multiprocessing_state.is_running()
    leave(daemon=False)
    assert multiprocessing_state.is_running()


def test_our_own_threads_do_not_count(leave: type[threading.Thread]) -> None:
    others = _thread._count()
    leave(daemon=True)
    leave(daemon=False)
    assert multiprocessing_state.is_running(others + 1)
    assert not multiprocessing_state.is_running(others + 2)


@pytest.mark.parametrize(("daemon", "running"), [(True, False), (False, True)])
def test_a_child_of_multiprocessing_is_waited_for_unless_it_is_a_daemon(
    monkeypatch: pytest.MonkeyPatch, daemon: bool, running: bool
) -> None:
    child = SimpleNamespace(daemon=daemon)
    monkeypatch.setattr(multiprocessing.process, "active_children", lambda: [child])
    assert multiprocessing_state.is_running() is running


def test_multiprocessing_s_own_clean_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atexit, "_ncallbacks", lambda: 0)
    util = SimpleNamespace(_finalizer_registry={})
    monkeypatch.setitem(sys.modules, "multiprocessing.util", util)
    assert not multiprocessing_state.is_left()
    util._finalizer_registry[0, 1] = "the end of a semaphore"
    assert multiprocessing_state.is_left()
    assert not multiprocessing_state.is_running()


def test_exit_handlers_take_time_but_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "multiprocessing.util", None)
    monkeypatch.setattr(atexit, "_ncallbacks", lambda: 0)
    assert not multiprocessing_state.is_left()
    monkeypatch.setattr(atexit, "_ncallbacks", lambda: 1)
    assert multiprocessing_state.is_left()
    assert not multiprocessing_state.is_running()


def test_multiprocessing_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "multiprocessing.process")
    assert not multiprocessing_state.is_running()
    assert "multiprocessing.process" not in sys.modules
