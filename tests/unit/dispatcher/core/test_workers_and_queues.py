"""What queues assign next and to whom, and which runs of a worker are under way."""

from __future__ import annotations

from gridengine.dispatcher.core.calls import (
    CoreClient,
    CoreSubmitter,
    OpenTask,
    Pace,
    RemoteObject,
    Span,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.provisioner import Provisioner
from gridengine.dispatcher.core.workers_and_queues import Batch, Run, SlotGroup, TaskQueue, Worker
from gridengine.requests import TaskOptions
from gridengine.resources.demand import ANY
from gridengine.wire.messages import Hello
from tests.support.core_play import SQUARE


def queue_with(
    *slots: int, jobs_per_worker: int | None = None
) -> tuple[TaskQueue, list[SlotGroup]]:
    """Return a queue, and the slot groups it has of a worker each."""
    provisioner = Provisioner(Policy(jobs_per_worker=jobs_per_worker))
    queue = TaskQueue(provisioner)
    hello = Hello(1, "", "", "run", "node", 1, 1, "")
    groups = []
    for number, count in enumerate(slots):
        worker = Worker(b"%d" % number, hello, 0.0, 0.0, provisioner)
        groups.append(SlotGroup(worker, queue, count))
        queue.add(groups[-1])
    return queue, groups


def span_of(count: int = 1, seconds: float | None = None) -> Span:
    function, pace = RemoteObject(SQUARE, 1), Pace(seconds)
    submitter = CoreSubmitter(0, function, pace, CoreClient(0))
    one = OpenTask(1, (b"",), count, TaskOptions(), 0, function, submitter, pace, count)
    return Span(one, 0, count, ANY)


def run_of(number: int, group: SlotGroup, batch: Batch, span: Span) -> Run:
    run = group.worker.runs[number] = Run(number, span, group, batch, span.start, 0.0, 0.0)
    return run


def test_only_the_first_calls_of_a_submitter_give_something_new_to_assign() -> None:
    queue, _ = queue_with()
    span = span_of()
    assert [queue.put(span), queue.put(span), queue.put(span_of())] == [True, False, True]
    assert queue.calls == 3


def test_the_newest_worker_is_assigned_work_first_and_each_once() -> None:
    queue, groups = queue_with(1, 1, 1)
    queue.put(span_of())
    assert [queue.take_slot_group() for _ in range(4)] == [*reversed(groups), None]


def test_under_way_is_the_first_run_of_each_batch_of_as_many_as_there_are_slots() -> None:
    _, [group] = queue_with(2)
    span = span_of(9)
    waiting, first, second = Batch(), Batch(answered_at=1.0), Batch(answered_at=2.0)
    for number, batch in enumerate([waiting, first, first, second]):
        run_of(number, group, batch, span)
    assert group.worker.under_way() == {1, 3}


def test_all_calls_but_one_of_a_run_under_way_can_be_spared() -> None:
    _, [group] = queue_with(1)
    at_it, next_one = (
        run_of(number, group, Batch(answered_at=answered), span_of(1))
        for number, answered in [(1, 1.0), (2, None)]
    )
    assert group.worker.spare() == [next_one]
    at_it.span = span_of(2)
    assert group.worker.spare() == [at_it, next_one]
