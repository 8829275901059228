"""Whether a process still runs."""

from __future__ import annotations

import os
import resource
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gridengine.errors import ConfigurationError
from gridengine.system.machine import wait_unreaped
from gridengine.wire import processes
from gridengine.wire.processes import (
    FILES_PER_RUNNER,
    ForkHooks,
    allow_one_more_runner,
    allow_open_files,
    check_threads,
    started,
    this_machine,
)


def test_a_process_has_begun_and_one_that_is_not_there_has_not() -> None:
    assert started(os.getpid()) > 0
    assert started(1 << 22) == 0


def test_a_process_that_has_ended_and_was_not_waited_for_has_not_begun() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    wait_unreaped(pid)
    assert started(pid) == 0
    os.waitpid(pid, 0)


@pytest.mark.linux
def test_a_machine_is_told_by_its_start_and_its_processes() -> None:
    assert this_machine() == this_machine() != ""
    assert "pid:[" in this_machine()


# ---------------------------------------------------------------- open files


NONE = resource.RLIM_INFINITY
OPEN = 72
"""With those that are spared it makes 200."""


class Limits:
    """This process's limits, as the system has them."""

    def __init__(self, soft: int, hard: int) -> None:
        self.limits = soft, hard
        self.set: list[int] = []

    def setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        assert limits[1] == self.limits[1]
        self.limits = limits
        self.set.append(limits[0])


def limited(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> Limits:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.limits)
    monkeypatch.setattr(resource, "setrlimit", limits.setrlimit)
    monkeypatch.setattr(processes, "_open_files", lambda: OPEN)
    return limits


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "raised"),
    [
        (1024, 4096, 0, []),
        (240, 4096, 0, []),
        (239, 4096, 0, [240]),
        (100, NONE, 0, [240]),
        (NONE, NONE, 0, []),
        (100, 240, 0, [240]),
        (100, 300, 1000, [300]),
    ],
)
def test_the_limit_is_raised_as_far_as_needed_and_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, raised: list[int]
) -> None:
    limits = limited(monkeypatch, soft, hard)
    allow_open_files(10, each=4, handshakes=wanted)
    assert limits.set == raised


@pytest.mark.parametrize(
    ("workers", "words"),
    [(1, "1 worker needs 201 open files"), (2, "2 workers need 202 open files")],
)
def test_a_small_limit_of_files_is_told(
    monkeypatch: pytest.MonkeyPatch, workers: int, words: str
) -> None:
    limits = limited(monkeypatch, 100, 200)
    with pytest.raises(ConfigurationError, match=words):
        allow_open_files(workers)
    assert limits.set == []


def test_for_more_runners_it_is_raised_each_time_for_twice_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = limited(monkeypatch, 100, NONE)
    for runners in range(9):
        allow_one_more_runner(runners)
    first = limits.set[0]
    more = [FILES_PER_RUNNER * runners for runners in (1, 2, 4, 8)]
    assert limits.set == [first, *(first + count for count in more)]


def test_one_more_runner_is_tried_at_the_hard_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = limited(monkeypatch, 100, 150)
    allow_one_more_runner(4)
    assert limits.set == []


def test_a_missing_proc_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "open_descriptors", Mock(side_effect=FileNotFoundError))
    with pytest.raises(ConfigurationError, match="there is no /proc here"):
        allow_open_files(1)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (64, r"no more than 64 \(`ulimit -u`\), .* no more than 64 \(`ulimit -v`\)"),
        (NONE, r"no more than the machine allows \(`ulimit -u`\)"),
    ],
)
def test_too_few_threads_are_said_and_those_that_were_started_end(
    monkeypatch: pytest.MonkeyPatch, limit: int, words: str
) -> None:
    started: list[threading.Thread] = []

    class Thread(threading.Thread):
        def start(self) -> None:
            if len(started) == 3:
                raise RuntimeError("can't start new thread")
            super().start()
            started.append(self)

    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    check_threads(3)
    started.clear()
    with pytest.raises(ConfigurationError, match=words):
        check_threads(4)
    assert len(started) == 3
    assert not any(thread.is_alive() for thread in started)


def test_a_ctrl_c_while_threads_are_counted_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        check_threads(1)


def test_a_fork_waits_until_a_thread_at_work_rests_and_the_thread_rests_while_it_forks() -> None:
    hooks = ForkHooks()
    hold, began, seen = hooks.new_hold(), threading.Event(), list[str]()

    def work() -> None:
        with hold:
            began.set()
            while hold.locks[0].acquire(blocking=False):  # until the fork stands in line
                hold.locks[0].release()
            seen.append("worked")
        with hold:
            seen.append("worked again")

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    hooks.take()
    seen.append("forked")
    hooks.give_back()
    thread.join()
    assert seen == ["worked", "forked", "worked again"]


def test_a_thread_at_work_may_itself_fork() -> None:
    hooks = ForkHooks()
    with hooks.new_hold(), hooks.importing:
        hooks.take()
        hooks.give_back()


def test_a_fork_waits_for_a_thread_that_waits_for_it_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "FORK_SECONDS", 0.01)
    hooks = ForkHooks()
    hold, forked = hooks.new_hold(), threading.Event()
    began = threading.Event()

    def work() -> None:
        with hold:
            began.set()
            forked.wait()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    hooks.take()
    hooks.give_back()
    forked.set()
    thread.join()
    with hold:
        pass


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("work/fit.py", "work/fit.py"),
        ("/work/package/__main__.py", "/work/package"),
        ("__main__.py", str(Path.cwd())),
        ("-c", "-c"),
    ],
)
def test_a_package_that_runs_is_called_by_its_name(
    monkeypatch: pytest.MonkeyPatch, argument: str, found: str
) -> None:
    monkeypatch.setattr(sys, "argv", [argument, "more"])
    assert processes.program() == found
    monkeypatch.setattr(sys, "argv", [])
    assert processes.program() == ""


def test_a_process_that_gevent_has_patched_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patched: list[str] = []
    monkey = SimpleNamespace(is_module_patched=patched.__contains__)
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)  # type: ignore[arg-type]
    check_threads(1)
    patched.extend(["select", "ssl"])
    with pytest.raises(ConfigurationError, match=r"gevent's .* select in this"):
        check_threads(1)
