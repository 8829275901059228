"""What the dispatcher's thread is not asked to do."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.calls.posting import PostingDispatcher
from gridengine.dispatcher import io_thread
from gridengine.dispatcher.core.events import Event, Scaled
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.io_thread import DispatcherThread
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.dispatcher.worker_links import LocalWorkers
from gridengine.errors import Cancelled, ClusterError, ConfigurationError, GridEngineError
from gridengine.requests import Function
from gridengine.schedulers import ProcessScheduler
from gridengine.settings.values import settings
from tests.support.interrupts import at_each_point
from tests.support.tasks import make_task


def test_a_scheduler_without_workers_cannot_scale() -> None:
    thread: Any = SimpleNamespace(_policy=Policy(max_workers=0, run_id="run"), name="mine")
    with pytest.raises(ConfigurationError, match="starts no workers") as raised:
        DispatcherThread.scale(thread, 2, 4)
    assert raised.value.hint == "start some by hand: gridengine worker mine"


@pytest.mark.parametrize(
    "bounds", [(5, None), (None, -1), (3, 2), ("1", 2), (1, 2.5), (float("nan"), None)]
)
def test_invalid_bounds_are_refused_to_the_caller(bounds: tuple[Any, Any]) -> None:
    posted: list[Event] = []
    policy = Policy(max_workers=4, version="1", python="3.11", run_id="run", pooled=True)
    thread: Any = SimpleNamespace(_policy=policy, _post=posted.append)
    with pytest.raises(ConfigurationError, match="there cannot be from"):
        DispatcherThread.scale(thread, *bounds)
    assert posted == []
    assert DispatcherThread.scale(thread, 2, None) == (2, 4)
    assert posted == [Scaled(2, None)]


@pytest.mark.parametrize(
    ("error", "kind", "traceback", "hint"),
    [
        (ClusterError("a folder is gone", hint="leave it"), ClusterError, False, "leave it"),
        (ZeroDivisionError("own"), Cancelled, True, "report this as a fault of gridengine"),
    ],
)
def test_an_error_with_a_remedy_ends_all_calls_as_itself_and_is_one_line_of_the_log(
    error: Exception,
    kind: type[Exception],
    traceback: bool,
    hint: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run() -> None:
        raise error

    told: list[GridEngineError] = []
    thread: Any = SimpleNamespace(
        _loop=SimpleNamespace(run=run, hold=contextlib.nullcontext()),
        _fail_all=told.append,
        _tear_down=lambda *, broken: None,
        _at_exit=run,
        _queue=SimpleNamespace(close=lambda: None),
        _when_ended=lambda: None,
    )
    with caplog.at_level(logging.WARNING, "gridengine"):
        DispatcherThread._work(thread)
    [one], [record] = told, caplog.records
    assert (type(one), one.hint, thread.failure) == (kind, hint, error)
    assert (record.exc_info is not None) is traceback
    assert traceback or "\n" not in record.getMessage()


class Forked(PostingDispatcher):
    """The copy of a dispatcher in a fork of its process."""

    def __init__(self) -> None:
        self._owner = os.getpid() + 1
        self._closed, self._closing = False, threading.Lock()
        self.posted: list[object] = []
        post = self.posted.append
        self._queue: Any = SimpleNamespace(post=post, extend=post, ask=post, barrier=post)


def test_a_fork_of_its_process_asks_it_nothing_and_does_not_end_it() -> None:
    one = Forked()
    function = Function(b"f", (b"pickled",), (), b"/", "f")
    listener: Any = None
    for ask in (
        lambda: one.submit(function, [make_task(1, (b"calls",))], listener),
        lambda: one._in_thread(int),
        lambda: one._ask(7),
    ):
        with pytest.raises(ConfigurationError, match="that this one was forked from"):
            ask()
    one.release(b"name")
    one.catch_up()
    one.close()
    one._at_exit()
    assert one.posted == []
    assert not one._closed


def test_a_dispatcher_whose_end_a_ctrl_c_has_interrupted_can_still_be_ended() -> None:
    queue = EventQueue[Event]()
    thread: Any = SimpleNamespace(_closing=threading.RLock(), _closed=False, _queue=queue)

    def end() -> None:
        thread._closed = False
        queue.events.clear()
        DispatcherThread._end(thread, wait=False)

    for _ in at_each_point(end):
        DispatcherThread._end(thread, wait=False)
        assert queue.events


@pytest.mark.parametrize("refused", ["gridengine-2", "gridengine-standard-"])
def test_a_dispatcher_whose_last_threads_cannot_start_is_ended_before_its_maker_is_told(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    before = set(threading.enumerate())
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        PostingDispatcher(ProcessScheduler(max_workers=1), settings())
    assert set(threading.enumerate()) <= before


def test_a_ctrl_c_while_a_dispatcher_begins_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = set(threading.enumerate())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PostingDispatcher, "_make_clients", interrupt)
    with pytest.raises(KeyboardInterrupt):
        PostingDispatcher(ProcessScheduler(max_workers=1), settings())
    assert set(threading.enumerate()) <= before


def test_a_ctrl_c_as_a_dispatcher_has_begun_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(contextlib.ExitStack, "pop_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        PostingDispatcher(ProcessScheduler(max_workers=1), settings())
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_a_ctrl_c_before_the_thread_of_a_dispatcher_runs_has_that_close_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closers: list[str] = []
    go, start, close = threading.Event(), threading.Thread.start, LocalWorkers.close

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def start_late(thread: Any) -> None:
        if thread.name.startswith("gridengine-2"):
            bootstrap = thread._bootstrap
            thread._bootstrap = lambda: (go.wait(), bootstrap())
            thread._started.wait = interrupt
        start(thread)

    def noted(link: LocalWorkers, **options: Any) -> None:
        closers.append(threading.current_thread().name)
        close(link, **options)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    monkeypatch.setattr(LocalWorkers, "close", noted)
    monkeypatch.setattr(io_thread.time, "sleep", lambda seconds: go.set())
    with pytest.raises(KeyboardInterrupt):
        PostingDispatcher(ProcessScheduler(max_workers=1), settings())
    go.set()
    assert closers[0].startswith("gridengine-2")
