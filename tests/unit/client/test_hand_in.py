"""How calls become tasks, and what is kept of the tasks that were handed over."""

from __future__ import annotations

from gridengine.client.hand_in import HandedTask, HandedTasks, TaskMaker
from gridengine.client.options import CallOptions
from gridengine.requests import CallsFinished, Function
from gridengine.resources import Memory
from tests.support.fake_dispatcher import FakeDispatcher


def test_a_task_travels_with_its_limits() -> None:
    function, options = Function(b"", (), (), b"", "f"), CallOptions(1, 2.0, OSError, 3, Memory(1))
    maker = TaskMaker(FakeDispatcher(), function, 0, options, 9)  # type: ignore[arg-type]
    task = maker.task([b"calls"], 4, 7)
    assert (task.id, task.count, task.first, task.submitter) == (1, 4, 7, 9)
    limits = task.retries, task.timeout, task.escalate_memory, task.demand.memory_limit
    assert limits == (1, 2.0, 3.0, 2**30)


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
