"""What calls hand in that make calls, and what comes of it, as it travels between their process
and its dispatcher.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from gridengine.dispatcher.core.tasks import Attempt, CallsFinished, Function, Task
from gridengine.resources.demand import ANY
from gridengine.resources.encoding import encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import (
    FinishedItem,
    FunctionItem,
    SharedItem,
    TaskItem,
)


def function_item(function: Function) -> FunctionItem:
    """Return a function as it travels, beside its payload."""
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
    """Return a task of this submitter as it travels, beside its payload."""
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
        [one.name for one in all_needed(task.needs)],
        submitter,
        task.after,
        task.kept,
        len(task.payload),
    )


def shared_item(shared: SharedObject) -> SharedItem:
    """Return a shared object as it travels, beside its payload."""
    needs = [one.name for one in all_needed(shared.needs)]
    return SharedItem(shared.name, needs, len(shared.payload))


def finished_calls(item: FinishedItem, buffers: Payload) -> CallsFinished:
    """Return the outcome of calls, and what came with it, as it is for clients."""
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
