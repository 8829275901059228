"""How calls become tasks, and what is kept of the tasks that were handed over."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.client.functions import make_function
from gridengine.client.hand_in import HandedTask, HandedTasks, TaskMaker
from gridengine.client.options import CallOptions
from gridengine.requests import CallsFinished, Function
from gridengine.resources import Memory
from gridengine.serialize import pickling
from gridengine.serialize.payload import SINGLE
from gridengine.serialize.references import awaited_in
from tests.support.fake_dispatcher import FakeDispatcher

FUNCTION = Function(b"", (), (), b"", "train")


def test_a_task_travels_with_its_limits() -> None:
    dispatcher: Any = FakeDispatcher()
    options = CallOptions(1, 2.0, OSError, 3, Memory(1))
    task = TaskMaker(dispatcher, FUNCTION, SINGLE, options, 9).task([b"calls"], 4, 7)
    assert (task.id, task.count, task.first, task.options.submitter) == (1, 4, 7, 9)
    options = task.options
    limits = options.retries, options.timeout, options.escalate_memory, options.demand.memory_limit
    assert limits == (1, 2.0, 3.0, 2**30)


def test_a_call_for_which_there_is_no_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bytes:
        raise MemoryError("full")

    dispatcher: Any = FakeDispatcher()
    maker = TaskMaker(dispatcher, FUNCTION, SINGLE, CallOptions())
    monkeypatch.setattr(pickle, "dumps", full)
    with pytest.raises(gridengine.OutOfMemory, match="no memory to pickle the call of train"):
        maker.pickled(["a" * 1000])


def test_the_dispatcher_is_told_once_of_the_results_that_a_call_and_its_function_need() -> None:
    future: Future[int] = Future()
    function = make_function(lambda x: (x, future))
    dispatcher: Any = FakeDispatcher()
    maker = TaskMaker(dispatcher, function, SINGLE, CallOptions())
    payload = maker.pickled([future])
    needed = maker.introduce(function.payload, payload)
    assert not awaited_in(payload)
    assert len({one.number for one in needed}) == 1
    assert maker.task(payload, needed=needed).after == (needed[0].number,)
    future.set_result(5)
    [(reference, data)] = dispatcher.results.items()
    assert (reference, pickling.load(data.payload)) == (needed[0].number, [5])


def test_calls_are_pickled_by_the_maker_of_tasks_alone() -> None:
    package = Path(gridengine.__file__).parent
    files = [*(package / "client").glob("*.py"), *(package / "api").glob("*.py")]
    found = {one.name for one in files if "pickling.dump_calls" in one.read_text()}
    assert found == {"hand_in.py", "job.py"}  # a job is pickled before there is a dispatcher


class Table(HandedTasks[HandedTask]):
    """A table that notes the outcomes, and the tasks that are left then."""

    def __init__(self) -> None:
        super().__init__(FakeDispatcher())  # type: ignore[arg-type]
        self.seen: list[tuple[int, list[int]]] = []

    def _take_outcome(self, one: HandedTask, event: CallsFinished) -> None:
        self.seen.append((one.unsettled, list(self._handed)))


def test_a_task_leaves_the_table_with_the_outcome_of_its_last_call() -> None:
    table = Table()
    table._handed.update({5: HandedTask(3, 3), 6: HandedTask(1, 1)})
    assert table.handed() == [(5, 0, 3), (6, 0, 1)]
    for start, stop in ((1, 3), (0, 1), (0, 1)):
        table.settled(CallsFinished(5, start, stop, [b"values"]))
    assert table.seen == [(1, [5, 6]), (0, [6])]  # an outcome that comes again is left out
