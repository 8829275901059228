"""How a runner's process is set up for calls, what they are told of their resources, what they may
leave running, and how processes end that user code forked.
"""

from __future__ import annotations

import _thread
import atexit
import multiprocessing.process
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import Cores, GPUs, Memory, Nodes
from gridengine.resources.base import ZERO
from gridengine.serialize import pickling
from gridengine.system import bind_to, processors
from gridengine.wire.messages import Allocate
from gridengine.worker import multiprocessing_state
from gridengine.worker.process_setup import (
    AllocatedResources,
    exit_forked,
    exit_process,
    flush_output,
    seed_by_chance,
    set_path_and_directory,
)


class Ended(BaseException):
    """In the place of the end of this process."""


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(status: int) -> NoReturn:
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(Path.cwd())


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (None, 0, ""),
        (SystemExit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit(-1), 255, ""),
        (SystemExit(2**40 + 1), 1, ""),
        (SystemExit("no such file"), 1, "no such file\n"),
        (ValueError("wrong"), 1, "ValueError: wrong\n"),
    ],
)
def test_a_forked_process_ends_as_a_script_would(
    capsys: pytest.CaptureFixture[str], error: BaseException | None, status: int, told: str
) -> None:
    with pytest.raises(Ended) as ended:
        exit_forked(error)
    assert ended.value.args == (status,)
    assert capsys.readouterr().err == told


def test_a_forked_process_ends_whatever_user_code_has_made_of_its_hooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "excepthook", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(Ended):
        exit_forked(ValueError())
    with pytest.raises(Ended):
        exit_forked(SystemExit("no"))


def test_a_process_calls_its_exit_handlers_and_one_that_was_forked_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: called.append("handlers"))
    with pytest.raises(Ended, match="0"):
        exit_forked(None)
    assert called == []
    with pytest.raises(Ended, match="1"):
        exit_process(1)
    assert called == ["handlers"]


def test_one_stream_that_is_closed_keeps_nothing_of_the_other_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        err.write("said")
        out.close()
        flush_output()
        assert (tmp_path / "err").read_text() == "said"


def test_path_and_directory_become_the_callers(tmp_path: Path) -> None:
    path = sys.path
    set_path_and_directory(["/elsewhere"], str(tmp_path))
    assert sys.path is path  # which others may hold
    assert path == ["/elsewhere"]
    assert Path.cwd() == tmp_path


def test_a_directory_that_a_call_has_removed_is_left(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    set_path_and_directory(sys.path, str(tmp_path))
    assert Path.cwd() == tmp_path


def test_a_directory_that_is_not_here_is_said_with_the_machine(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be entered on ") as raised:
        set_path_and_directory(sys.path, str(tmp_path / "none"))
    assert "No such file" in str(raised.value)


def test_a_forked_process_does_not_draw_the_numbers_of_its_fork_server() -> None:
    numpy = pytest.importorskip("numpy")
    before = numpy.random.get_state()
    try:
        numpy.random.seed(0)
        expected = numpy.random.random()
        numpy.random.seed(0)
        seed_by_chance()
        assert numpy.random.random() != expected
    finally:
        numpy.random.set_state(before)


@pytest.fixture
def resources() -> Iterator[AllocatedResources]:
    """Of this process, which is bound as before when the test is over."""
    before = processors()
    yield AllocatedResources()
    bind_to(before)


def test_calls_are_told_the_machines_own_numbers(resources: AllocatedResources) -> None:
    asked = pickling.dump(Cores(2, [0, 1]) & GPUs(1, [0]) & Memory(3))
    resources.allocate(Allocate(1, 2, [6, 7], ["GPU-a"]), asked)
    given = resources.get()
    assert given == Cores(2, [6, 7]) & GPUs(1, ["GPU-a"]) & Memory(3)
    assert resources.get() is given
    assert resources.variables[b"OMP_NUM_THREADS"] == b"2"


def test_cores_without_numbers_stay_as_they_were_asked_for(resources: AllocatedResources) -> None:
    resources.allocate(Allocate(1, 4, threads=4), pickling.dump(Nodes(2) & Cores(4)))
    assert resources.get() == Nodes(2) & Cores(4)


def test_with_the_next_nothing_of_the_one_before_is_left(resources: AllocatedResources) -> None:
    resources.allocate(Allocate(1, 1, [6]), pickling.dump(Cores(1, [0])))
    resources.get()
    resources.allocate(Allocate(0, buffers=0), ())
    assert resources.get() is ZERO
    assert not resources.variables


@pytest.mark.linux
def test_calls_fail_where_the_process_cannot_be_bound_until_it_is_given_others(
    resources: AllocatedResources,
) -> None:
    resources.allocate(Allocate(1, 1, [99999], exact=True), pickling.dump(Cores(1, [0])))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"cores \[99999\] of .* cannot be used"):
            resources.get()
    resources.allocate(Allocate(2, 1, [6]), pickling.dump(Cores(1, [0])))
    assert resources.get() == Cores(1, [6])


def test_calls_are_told_why_a_resource_could_not_be_sent(resources: AllocatedResources) -> None:
    resources.allocate(Allocate(1, failed=True), pickling.dump_exception(KeyError("of a user")))
    with pytest.raises(KeyError, match="of a user"):
        resources.get()


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
