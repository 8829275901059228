"""Translate between the structs of the core and the messages of a dispatcher in another process:
requests, and the outcomes of calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec.structs import asdict, replace

from gridengine.requests import (
    CallsFinished,
    CallsRecalled,
    Function,
    NamesForgotten,
    Request,
    ResultData,
    ResultWanted,
    Submitted,
    Supplied,
    Task,
    TasksCancelled,
    Told,
)
from gridengine.resources.demand import ANY, encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload, size_of
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import (
    MOST_FAILURES,
    ClientCancel,
    ClientForget,
    ClientRecall,
    Finished,
    FinishedItem,
    FunctionItem,
    Message,
    SharedItem,
    Submit,
    Supply,
    TaskItem,
    Tell,
    Want,
)

Outgoing: TypeAlias = Request | Message
"""A request, or another message of a client."""
WITHOUT_PAYLOAD: dict[type, Callable[..., Message]] = {
    TasksCancelled: ClientCancel,
    CallsRecalled: ClientRecall,
    ResultWanted: Want,
}
"""The messages of requests whose fields they have, besides the sender's number."""
MOST_TASKS = 1000
"""One message has at most this many tasks."""
MOST_BYTES = 256 * 1024
"""A submission is joined with no more others once these have this many bytes."""
MOST_FUNCTIONS = 64
"""The dispatcher's end is asked to remember at most this many functions of a client."""


class RequestEncoder:
    """Turns a client's requests into messages for a dispatcher in another process. Each definition
    that tasks need is sent once. For one thread at a time.

    Args:
        runner: the number of this process at its agent; 0 for other clients.
        submitter: returns the dispatcher's number for a submitter that submits from a given run.
    """

    def __init__(self, runner: int, submitter: Callable[[int, int], int]) -> None:
        self._runner = runner
        self._submitter = submitter
        self._functions: dict[bytes, None] = {}
        self._shared: set[bytes] = set()
        """`_functions`, oldest use first, and `_shared`: the definitions that the dispatcher has
        from this client.
        """

    def encode(self, request: Outgoing) -> list[tuple[Message, Payload]]:
        """Return the messages of a request, each with its payload."""
        if isinstance(request, Submitted):
            return self._encode_tasks(request)
        if isinstance(request, Supplied):
            return [self._encode_result(request.reference, request.data)]
        if isinstance(request, Told):
            count = len(request.payload)
            return [(Tell(self._runner, request.task, count), request.payload)]
        if isinstance(request, NamesForgotten):
            shared = [name for name in request.shared if name in self._shared]
            self._shared.difference_update(shared)
            names = (), shared, request.references
            return [(ClientForget(self._runner, *names), ())] if any(names) else []
        if isinstance(request, TasksCancelled | CallsRecalled | ResultWanted):
            message = WITHOUT_PAYLOAD[type(request)](runner=self._runner, **asdict(request))
            return [(message, ())]
        return [(request, ())]

    def _encode_tasks(self, request: Submitted) -> list[tuple[Message, Payload]]:
        """Return tasks, with the definitions that they need and the dispatcher does not have."""
        messages = list[tuple[Message, Payload]]()
        function, tasks, run = request.function, request.tasks, request.parent
        functions, digest = self._functions, function.digest
        item, buffers = None, list[Any]()
        if digest not in functions:
            if len(functions) >= MOST_FUNCTIONS:
                oldest = next(iter(functions))
                del functions[oldest]
                messages.append((ClientForget(self._runner, [oldest]), ()))
            item = function_item(function)
            buffers += function.payload
        functions.pop(digest, None)
        functions[digest] = None  # moved to the end: used last
        shared = [one for one in needed(function, tasks) if one.name not in self._shared]
        self._shared.update(one.name for one in shared)
        for one in shared:
            buffers += one.payload
        for task in tasks:
            buffers += task.payload
        items = [task_item(task, self._submitter(task.options.submitter, run)) for task in tasks]
        message = Submit(
            runner=self._runner,
            run=run,
            digest=digest,
            tasks=items,
            function=item,
            shared=list(map(shared_item, shared)),
            detached=request.detached,
        )
        return [*messages, (message, buffers)]

    def _encode_result(self, reference: int, data: ResultData) -> tuple[Message, Payload]:
        """Return the result of a reference. An error of the package travels pickled."""
        payload, raised = data.payload or [], data.raised
        if data.error is not None:
            payload, raised = pickling.dump_exception(data.error), True
        count = len(payload)
        message = Supply(
            self._runner,
            reference=reference,
            item=data.item,
            raised=raised,
            cancelled=data.cancelled,
            path=data.path,
            buffers=count,
        )
        return message, payload


def take_joinable(first: Submitted, coming: deque[Any]) -> Submitted:
    """Remove from the front of a queue the submissions that can travel with this one, and return
    all as one.
    """
    tasks, size = list(first.tasks), 0
    while coming and size < MOST_BYTES:
        more = coming[0]
        if not (
            type(more) is Submitted
            and more.function.digest == first.function.digest
            and len(tasks) + len(more.tasks) <= MOST_TASKS
        ):
            break
        size += sum(size_of(task.payload) for task in more.tasks)
        tasks += more.tasks
        coming.popleft()
    return replace(first, tasks=tasks) if len(tasks) > len(first.tasks) else first


def needed(function: Function, tasks: Sequence[Task]) -> tuple[SharedObject, ...]:
    """Return the shared objects that tasks and their function need."""
    needs = [task.needs for task in tasks if task.needs]
    return all_needed(function.needs, *needs) if needs or function.needs else ()


def tasks_apart(message: Submit, buffers: Payload) -> Iterator[tuple[Submit, Payload]]:
    """Split a message: first its definitions, if it has any, then each task by itself."""
    empty = replace(message, tasks=[])
    offset = empty.count_buffers()
    if message.function is not None or message.shared:
        yield empty, buffers[:offset]
    for task in message.tasks:
        stop = offset + task.buffers
        yield replace(empty, function=None, shared=(), tasks=[task]), buffers[offset:stop]
        offset = stop


def outcomes_of(message: Finished, buffers: Payload) -> Iterator[tuple[int, CallsFinished]]:
    """Yield the outcomes of a message, each with the number of its failure."""
    offset = 0
    for item in message.outcomes:
        stop = offset + item.count_buffers()
        yield item.failure, finished_calls(item, buffers[offset:stop])
        offset = stop


def function_item(function: Function) -> FunctionItem:
    """Return the message item of a function, without its payload."""
    return FunctionItem(
        name=function.name,
        path=list(function.path),
        directory=function.directory,
        needs=[one.name for one in all_needed(function.needs)],
        after=function.after,
        caller=function.caller,
        buffers=len(function.payload),
        parameters=function.parameters,
    )


def task_item(task: Task, submitter: int) -> TaskItem:
    """Return the message item of a task of this submitter, without its payload."""
    options = task.options
    return TaskItem(
        id=task.id,
        count=task.count,
        form=options.form,
        retries=options.retries,
        timeout=options.timeout,
        watched=options.watched,
        controlled=options.controlled,
        name=options.name,
        first=task.first,
        demand=None if options.demand is ANY else encode_demand(options.demand),
        escalate_memory=options.escalate_memory,
        needs=[one.name for one in all_needed(task.needs)] if task.needs else [],
        submitter=submitter,
        after=task.after,
        kept=task.kept,
        buffers=len(task.payload),
        priority=options.priority,
    )


def shared_item(shared: SharedObject) -> SharedItem:
    """Return the message item of a shared object, without its payload."""
    needs = [one.name for one in all_needed(shared.needs)]
    return SharedItem(shared.name, needs, len(shared.payload))


class KnownFailures:
    """The failures that this end was told of, by number."""

    def __init__(self) -> None:
        self._known: dict[int, CallsFinished] = {}

    def same(self, number: int, event: CallsFinished) -> CallsFinished:
        """Return the event of a failed call with the failure object of the first call that failed
        by the same number.
        """
        known = self._known.setdefault(number, event)
        if known is event:
            if len(self._known) > MOST_FAILURES:
                del self._known[next(iter(self._known))]
            return event
        return replace(event, payload=known.payload, error=known.error)


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
    unsettled calls of the task. A restarted dispatcher may report calls again, in other groups,
    because it could not record all its reports.
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
        task=item.task,
        start=item.start,
        stop=item.stop,
        payload=buffers[: item.buffers] if item.buffers else None,
        raised=item.raised,
        error=error,
        exitcode=item.exitcode,
        stdout=out,
        stderr=err,
        attempts=tuple(item.attempts),
        last=item.last,
        recalled=item.recalled,
        seconds=item.seconds,
        path=tuple(item.path),
    )
