"""Translate between the core's structs and the messages of clients: submissions, and the outcomes
of calls. Both ends use this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from gridengine.dispatcher.core.tasks import Attempt, CallsFinished, Function, Task
from gridengine.resources.demand import ANY, encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import MOST_FAILURES, FinishedItem, FunctionItem, SharedItem, TaskItem


class KnownFailures:
    """The failures that this end was told of, by number."""

    def __init__(self) -> None:
        self._known: dict[int, CallsFinished] = {}

    def same(self, number: int, event: CallsFinished) -> CallsFinished:
        """Return a failed call's event with the very object that the first call with this number
        failed with.
        """
        known = self._known.setdefault(number, event)
        if known is event:
            if len(self._known) > MOST_FAILURES:
                del self._known[next(iter(self._known))]
            return event
        return replace(event, payload=known.payload, error=known.error)


def function_item(function: Function) -> FunctionItem:
    """Return the message item of a function, without its payload."""
    return FunctionItem(
        function.name,
        list(function.path),
        function.directory,
        [one.name for one in all_needed(function.needs)],
        function.after,
        function.caller,
        len(function.payload),
    )


def task_item(task: Task, submitter: int) -> TaskItem:
    """Return the message item of a task of this submitter, without its payload."""
    return TaskItem(
        task.id,
        task.count,
        task.form,
        task.retries,
        task.timeout,
        task.watched,
        task.controlled,
        task.name,
        task.first,
        None if task.demand is ANY else encode_demand(task.demand),
        task.escalate_memory,
        [one.name for one in all_needed(task.needs)] if task.needs else [],
        submitter,
        task.after,
        task.kept,
        len(task.payload),
        task.priority,
    )


def shared_item(shared: SharedObject) -> SharedItem:
    """Return the message item of a shared object, without its payload."""
    needs = [one.name for one in all_needed(shared.needs)]
    return SharedItem(shared.name, needs, len(shared.payload))


def part_of_calls(event: CallsFinished, start: int, stop: int, *, last: bool) -> CallsFinished:
    """Return the outcome of some of the calls of an event."""
    payload = event.payload
    if payload is not None and not event.raised:
        payload = pickling.part_of_values(payload, start - event.start, stop - event.start)
    return replace(event, start=start, stop=stop, payload=payload, last=last, seconds=None)


def unsettled_parts(
    event: CallsFinished, left: Sequence[tuple[int, int]]
) -> Iterator[CallsFinished]:
    """Yield the outcomes of those calls of an event that have none yet. `left` are the ranges of
    unsettled calls of the task. A restarted dispatcher may tell of calls again, in other groups,
    because it could not record all that it had told.
    """
    new = [
        (max(first, event.start), min(stop, event.stop))
        for first, stop in left
        if first < event.stop and event.start < stop
    ]
    for first, stop in new:
        last = (first, stop) == new[-1] and (event.last or left == new)
        if (first, stop) == (event.start, event.stop):
            yield replace(event, last=last)
        else:
            yield part_of_calls(event, first, stop, last=last)


def finished_calls(item: FinishedItem, buffers: Payload) -> CallsFinished:
    """Decode the outcome of calls, for a client."""
    error: Any = None
    if item.failed:
        error = pickling.load_exception(buffers[item.buffers : item.buffers + 1])
    out, err = map(bytes, buffers[len(buffers) - 2 :]) if item.output else (b"", b"")
    return CallsFinished(
        item.task,
        item.start,
        item.stop,
        buffers[: item.buffers] if item.buffers else None,
        item.raised,
        error,
        item.exitcode,
        out,
        err,
        tuple(Attempt(**asdict(one)) for one in item.attempts),
        item.last,
        item.recalled,
        item.seconds,
        tuple(item.path),
    )
