"""A dispatcher without sockets or processes: runs calls here, through real pickling, when and in
the order that a test says.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gridengine.call_context.current_call import process_name
from gridengine.errors import Cancelled, GridEngineError
from gridengine.requests import CallsFinished, Function, ResultData, Task, TaskBegan, TaskMessage
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import LaunchContext
from gridengine.serialize import pickling, shared_objects
from gridengine.serialize.payload import FULL, SINGLE, Payload
from gridengine.status.snapshot import Snapshot


@dataclass(frozen=True)
class Entry:
    function: Function
    task: Task
    listener: Any


@dataclass
class FakeController:
    entry: Entry
    job_id: int
    attempt: int = 1
    cancelled: bool = False

    def push(self, value: Any) -> None:
        self.entry.listener.noted(TaskMessage(self.entry.task.id, pickling.dump(value)))


@dataclass
class FakeDispatcher:
    """Runs what is submitted at once, or calls `on_submit(dispatcher)` instead, once for each
    task.
    """

    slots: int = 2
    at_once: bool = False
    call_slot: None = None
    check_room: None = None
    on_submit: Callable[[FakeDispatcher], None] | None = None
    entries: list[Entry] = field(default_factory=list)
    departures: list[int] = field(default_factory=list)
    cancelled: dict[int, int] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    given_back: dict[int, set[int]] = field(default_factory=dict)
    seconds: float = 1e-6
    closed: bool = False
    wanted: dict[int, tuple[int, int, Callable[[], object]]] = field(default_factory=dict)
    results: dict[int, ResultData] = field(default_factory=dict)
    released: list[int] = field(default_factory=list)
    named: dict[int, tuple[str, str]] = field(default_factory=dict)
    told: list[tuple[int, Payload]] = field(default_factory=list)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_id(self) -> int:
        return next(self.ids)

    def check(self, demand: object) -> None:
        """Take any request."""

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Give back what has not begun: of the tasks that are not settled all but the first
        `slots`.
        """
        open_tasks = [entry for entry in self.entries if entry.task.id not in self.settled]
        waiting = {entry.task.id: entry for entry in open_tasks[self.slots :]}
        for task, start, stop in calls:
            if task in waiting:
                gone = self.given_back.setdefault(task, set())
                for index in sorted(set(range(start, stop)) - gone):
                    gone.add(index)
                    error = Cancelled("it was taken back")
                    waiting[task].listener.settled(
                        CallsFinished(
                            task, index, index + 1, None, error=error, exitcode=1, recalled=True
                        )
                    )
                if len(gone) == waiting[task].task.count:
                    self.settled.add(task)

    def tell(self, task: int, payload: Payload) -> None:
        self.told.append((task, payload))

    def catch_up(self) -> None:
        """All is done at once."""

    def release(self, name: bytes) -> None:
        """Keep nothing."""

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        self.wanted[reference] = task, index, missing

    def supply(self, reference: int, data: ResultData) -> None:
        self.results.setdefault(reference, data)

    def release_references(self, references: Sequence[int]) -> None:
        self.released += references

    def is_durable(self, task: int) -> bool:
        return False

    def detach(self, submitter: int) -> None:
        """No call submits here."""

    def note_run(self, name: str, file: str, submitter: int) -> None:
        self.named[submitter] = name, file

    def snapshot(self) -> Snapshot:
        return Snapshot(running=3, workers=2, batches=dict.fromkeys(range(1000), 3))

    def submit(self, function: Function, tasks: Sequence[Task], listener: Any) -> None:
        self.departures.append(len(tasks))
        for task in tasks:
            self.entries.append(Entry(function, task, listener))
            if self.on_submit is not None:
                self.on_submit(self)
            else:
                self.run(self.entries[-1])

    def run(self, entry: Entry) -> None:
        """Run a task's calls, one after the other, and settle each."""
        task = entry.task
        for reference in task.after:
            data = self.results[reference]
            load = functools.partial(pickling.load_result, data.payload, data.item)
            shared_objects.register_result(reference.to_bytes(8, "big"), load)
        if task.options.watched:
            entry.listener.began(TaskBegan(task.id, 4711, "here", 1))
        for index, call in enumerate(pickling.load(task.payload)):
            if index not in self.given_back.get(task.id, ()):
                self.settle(entry, self._outcome(entry, index, call))

    def settle(self, entry: Entry, event: CallsFinished) -> None:
        self.settled.add(entry.task.id)
        for index, reference in entry.task.kept:
            if event.start <= index < event.stop:
                data = ResultData(event.payload, index - event.start, event.raised, event.error)
                self.results[reference] = data
        entry.listener.settled(event)

    def fail(self, entry: Entry, error: GridEngineError, exitcode: int = 1) -> None:
        """Settle all of a task's calls with an error."""
        self.settle(
            entry,
            CallsFinished(entry.task.id, 0, entry.task.count, None, error=error, exitcode=exitcode),
        )

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = 15,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        for task, start, stop in calls:
            self.cancelled[task] = number
            for entry in self.entries:
                if entry.task.id == task and task not in self.settled:
                    self._cancel_calls(entry, range(start, stop), -number)
        for task in tasks:
            self.cancelled[task] = number
            for entry in self.entries:
                if entry.task.id == task and task not in self.settled:
                    self.fail(entry, Cancelled("the call was cancelled"), -number)

    def _cancel_calls(self, entry: Entry, calls: range, exitcode: int) -> None:
        gone = self.given_back.setdefault(entry.task.id, set())
        for index in sorted(set(calls) - gone):
            gone.add(index)
            error = Cancelled("the call was cancelled")
            entry.listener.settled(
                CallsFinished(entry.task.id, index, index + 1, None, error=error, exitcode=exitcode)
            )
        if len(gone) == entry.task.count:
            self.settled.add(entry.task.id)

    def flush_output(self, seconds: float | None = None) -> None:
        """Return: nothing is printed."""

    def close(self, *, wait: bool = True) -> None:
        self.closed = True
        self.cancel([entry.task.id for entry in self.entries if entry.task.id not in self.settled])

    def _outcome(self, entry: Entry, index: int, call: Any) -> CallsFinished:
        task, options = entry.task, entry.task.options
        args, kwargs = (
            ((call,), {})
            if options.form == SINGLE
            else call
            if options.form == FULL
            else (call, {})
        )
        extra = {"controller": FakeController(entry, task.id)} if options.controlled else {}
        stderr = io.StringIO()
        function = pickling.load_function(entry.function.payload)[0]
        try:
            named = process_name(options.name) if options.watched else contextlib.nullcontext()
            with contextlib.redirect_stderr(stderr), named:
                value = function(*args, **kwargs, **extra)
            return CallsFinished(
                task.id,
                index,
                index + 1,
                pickling.dump_values([value]),
                stderr=stderr.getvalue().encode(),
                seconds=self.seconds,
            )
        except BaseException as error:
            payload = pickling.dump_exception(error)
            outcome = {
                "raised": True,
                "exitcode": 1,
                "stderr": stderr.getvalue().encode(),
                "seconds": self.seconds,
            }
            return CallsFinished(task.id, index, index + 1, payload, **outcome)


class FakeScheduler(Scheduler):
    """A scheduler whose dispatcher is a fake one."""

    def __init__(self, dispatcher: FakeDispatcher | None = None) -> None:
        super().__init__(max_workers=1)
        self.dispatcher = dispatcher or FakeDispatcher()
        self._share(lambda: self.dispatcher)

    def launcher(self, run: LaunchContext) -> NoReturn:
        raise NotImplementedError
