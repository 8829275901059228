"""The thread that all users of a scheduler share: whatever happens to it, nobody waits for ever."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gridengine
from gridengine.client.connect import dispatcher_of
from gridengine.client.functions import make_function
from gridengine.dispatcher.core import state_machine
from gridengine.dispatcher.core.events import Received
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.dispatcher.worker_links import LocalWorkers
from gridengine.requests import CallsFinished, Submitted, TaskBegan, TaskMessage
from gridengine.serialize import pickling
from gridengine.settings.values import settings
from tests.support.tasks import make_task


def test_a_submission_while_the_scheduler_closes_fails_without_waiting() -> None:
    for _ in range(20):
        scheduler = gridengine.ProcessScheduler(1)
        ends: list[BaseException] = []
        started = threading.Barrier(5)

        def use(
            scheduler: gridengine.ProcessScheduler = scheduler,
            ends: list[BaseException] = ends,
            started: Any = started,
        ) -> None:
            started.wait()
            try:
                while True:
                    gridengine.map(abs, [-1], scheduler=scheduler)
            except gridengine.GridEngineError as error:
                ends.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        scheduler.close()
        for thread in threads:
            thread.join()
        assert {type(end) for end in ends} <= {gridengine.Cancelled, gridengine.ConfigurationError}
        assert len(ends) == 4


def test_a_dispatcher_checks_its_core_where_settings_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = state_machine.StateMachine.handle

    def miscount(core: state_machine.StateMachine, event: Any, now: float) -> Any:
        effects = handle(core, event, now)
        core.state.own.load += isinstance(event, Submitted)
        return effects

    monkeypatch.setattr(state_machine.StateMachine, "handle", miscount)
    monkeypatch.setenv("GRIDENGINE_CHECK", "1")
    settings.cache_clear()
    try:
        with (
            gridengine.ProcessScheduler(1) as scheduler,
            pytest.raises(gridengine.GridEngineError) as caught,
        ):
            gridengine.map(abs, [-1], scheduler=scheduler)
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    assert "the share of client 0" in str(caught.value)


def test_when_the_thread_itself_fails_every_call_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    close = LocalWorkers.close

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    def note(link: LocalWorkers, *, failed: bool = False) -> None:
        ended.append(failed)
        close(link)

    with gridengine.ProcessScheduler(1) as scheduler:
        assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]
        monkeypatch.setattr(LocalWorkers, "close", note)
        monkeypatch.setitem(state_machine._HANDLERS, Submitted, fail)
        with pytest.raises(gridengine.Cancelled, match="a fault of ours"):
            gridengine.map(abs, [-1], scheduler=scheduler)
        with pytest.raises(gridengine.ConfigurationError, match="closed"):
            gridengine.map(abs, [-1], scheduler=scheduler)
    assert ended[-1], "the logs of a run that failed are kept for longer"


class Handed:
    """Notes which calls it was told of."""

    daemon = True

    def __init__(self) -> None:
        self.told: list[CallsFinished] = []
        self.all_told = threading.Event()

    def settled(self, event: CallsFinished) -> None:
        self.told.append(event)
        if event.last:
            self.all_told.set()

    def began(self, event: TaskBegan) -> None: ...
    def noted(self, event: TaskMessage) -> None: ...


def fail_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: Any) -> Callable[..., None]:
    """Wrap the handler of an event in a table, or a method of a class. Return what has it fail when
    a thread calls it for the time `at` from then on, counted from 1: dispatchers of other tests may
    live in this process.
    """
    in_table = isinstance(owner, dict)
    plain = owner[name] if in_table else getattr(owner, name)
    due: list[tuple[threading.Thread, Iterator[int], int, BaseException]] = []

    def one(*arguments: Any) -> Any:
        for thread, count, at, failure in due:
            if threading.current_thread() is thread and next(count) == at:
                raise failure
        return plain(*arguments)

    if in_table:
        monkeypatch.setitem(owner, name, one)
    else:
        monkeypatch.setattr(owner, name, one)
    return lambda thread, at, failure: due.append((thread, itertools.count(1), at, failure))


@pytest.mark.parametrize(
    "failure", [RuntimeError("a fault of ours"), KeyboardInterrupt("a fault of ours")]
)
@pytest.mark.parametrize(
    ("owner", "name", "at"),
    [
        (state_machine._HANDLERS, Received, 1),
        (UnsettledTasks, "settle", 1),
        (UnsettledTasks, "settle", 3),
        (LocalWorkers, "send", 1),
    ],
)
def test_a_failing_thread_fails_each_call_once(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: Any, at: int, failure: BaseException
) -> None:
    handed, fail = Handed(), fail_in(monkeypatch, owner, name)
    with gridengine.ProcessScheduler(2) as scheduler:
        assert gridengine.map(abs, [-1, -2], scheduler=scheduler) == [1, 2]
        one: Any = dispatcher_of(scheduler)
        fail(one._thread, at, failure)
        tasks = [make_task(one.new_id(), pickling.dump_calls(list(range(8))), 8) for _ in range(4)]
        one.submit(make_function(slowly), tasks, handed)
        deadline = 120.0
        while sum(event.stop - event.start for event in handed.told) < 32 and handed.all_told.wait(
            deadline
        ):
            handed.all_told.clear()
    calls = sorted(
        (event.task, index) for event in handed.told for index in range(event.start, event.stop)
    )
    assert calls == [(task.id, index) for task in tasks for index in range(8)]
    assert "a fault of ours" in str(handed.told[-1].error)


def slowly(number: int) -> int:
    time.sleep(0.02)
    return number


def test_a_fault_in_the_core_after_a_decision_does_not_lose_the_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls that it had settled, and that nobody had been told of yet, are neither among those that
    wait nor among those that run.
    """
    handed = Handed()
    plain = state_machine.StateMachine.handle

    def fail_late(self: state_machine.StateMachine, event: Any, now: float) -> Any:
        effects = plain(self, event, now)
        if any(isinstance(one, CallsFinished) for one in effects):
            raise RuntimeError("a fault of ours")
        return effects

    with gridengine.ProcessScheduler(1) as scheduler:
        one = dispatcher_of(scheduler)
        monkeypatch.setattr(state_machine.StateMachine, "handle", fail_late)
        one.submit(
            make_function(abs),
            [make_task(one.new_id(), pickling.dump_calls([-1]))],
            handed,
        )
        assert handed.all_told.wait(120)
    assert isinstance(handed.told[0].error, gridengine.Cancelled)
