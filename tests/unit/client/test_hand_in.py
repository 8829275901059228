"""How calls become tasks, and what is kept of the tasks that were handed over."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.client.functions import make_function
from gridengine.client.hand_in import HandedTask, HandedTasks, TaskMaker
from gridengine.client.options import CallOptions
from gridengine.errors import PicklingError
from gridengine.requests import CallsFinished, Function
from gridengine.resources import Memory
from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import CallSnapshot
from gridengine.serialize.encoding import OUT_OF_BAND
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.serialize.references import awaited_in
from gridengine.serialize.shared_objects import shared_object_of
from tests.support.fake_dispatcher import FakeDispatcher


def maker_of(
    form: int = SINGLE, options: CallOptions | None = None, submitter: int = 0
) -> TaskMaker:
    function = Function(b"", (), (), b"", "train")
    dispatcher: Any = FakeDispatcher()
    return TaskMaker(dispatcher, function, form, options or CallOptions(), submitter)


def test_a_task_travels_with_its_limits() -> None:
    maker = maker_of(options=CallOptions(1, 2.0, OSError, 3, Memory(1)), submitter=9)
    task = maker.task([b"calls"], 4, 7)
    assert (task.id, task.count, task.first, task.submitter) == (1, 4, 7, 9)
    limits = task.retries, task.timeout, task.escalate_memory, task.demand.memory_limit
    assert limits == (1, 2.0, 3.0, 2**30)


@pytest.mark.parametrize(
    ("call", "form"), [(3, SINGLE), ((3, "a"), STAR), (((3,), {"key": "a"}), FULL)]
)
def test_a_call_of_constants_waits_as_it_is(call: Any, form: int) -> None:
    assert maker_of(form).snapshot(call) is call


@pytest.mark.parametrize(("arguments", "named"), [(([1],), {}), ((1,), {"key": [1]})])
def test_a_call_of_what_may_change_arrives_as_it_was(arguments: Any, named: Any) -> None:
    maker = maker_of(FULL)
    taken = maker.snapshot((arguments, named))
    for one in (*arguments, *named.values()):
        if isinstance(one, list):
            one.append("later")
    assert isinstance(taken, CallSnapshot)
    (back,) = pickling.load(maker.joined([taken]))
    assert "later" not in repr(back)


def test_the_large_buffers_of_a_waiting_call_are_not_pickled_again() -> None:
    maker = maker_of()
    taken = maker.snapshot(pickle.PickleBuffer(bytearray(OUT_OF_BAND)))
    payload = maker.joined([taken, 3])
    assert memoryview(payload[1]).obj is taken.payload[1]
    assert taken.size > OUT_OF_BAND


def test_a_call_that_cannot_be_pickled_is_an_error_that_names_it() -> None:
    with pytest.raises(PicklingError, match="argument 2 of the call of train"):
        maker_of(STAR).snapshot((1, threading.Lock()))


def test_a_call_for_which_there_is_no_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bytes:
        raise MemoryError("full")

    maker = maker_of()
    monkeypatch.setattr(pickle, "dumps", full)
    with pytest.raises(gridengine.OutOfMemory, match="no memory to pickle the call of train"):
        maker.pickled(["a" * 1000])


def test_an_object_that_several_calls_need_is_named_once_for_all() -> None:
    maker, shared = maker_of(), gridengine.share([1])
    payload = maker.joined([maker.snapshot([shared]), 2, maker.snapshot([shared])])
    assert maker.task(payload, 3).needs == (shared_object_of(shared),)


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
