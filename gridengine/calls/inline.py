"""A dispatcher without workers: calls run at once, in the caller's own process and thread.

Each submission has a core of its own. The same core as elsewhere decides what runs, what is
repeated, and how calls fail; here it has one worker, this thread, and messages reach the worker by
a function call. The output of jobs is copied on its way to the caller's streams.
"""

from __future__ import annotations

import bdb
import contextlib
import io
import itertools
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TextIO

from gridengine._version import __version__
from gridengine.call_context.current_call import (
    CARRIED,
    GVAR,
    Controller,
    CurrentJob,
    in_event_loop,
    process_name,
)
from gridengine.call_context.shown_arguments import arguments_text
from gridengine.calls.interface import Dispatcher
from gridengine.dispatcher.core import objects
from gridengine.dispatcher.core.events import Event, Inform, Received, Send
from gridengine.dispatcher.core.outcomes import has_failed
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.io_loop import inform
from gridengine.dispatcher.unsettled import Listener, UnsettledTasks
from gridengine.errors import UNNUMBERED, Cancelled, ConfigurationError, call_words
from gridengine.requests import (
    CallsFinished,
    Function,
    NamesForgotten,
    Request,
    ResultData,
    Submitted,
    Supplied,
    Task,
    TaskBegan,
    TaskMessage,
    TasksCancelled,
)
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import Demand, on_one_node
from gridengine.serialize import pickling
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.namespaces import SHARED, Namespaces, Table
from gridengine.serialize.payload import SINGLE, STAR, Payload
from gridengine.serialize.shared_objects import register_result, resolving_locally, unregister
from gridengine.settings.values import settings
from gridengine.threads import in_pieces
from gridengine.wire.messages import (
    CANCELLED,
    NO_INPUT,
    RAISED,
    RETRYABLE,
    VALUES,
    Assign,
    Assignment,
    Cancel,
    Crashed,
    Message,
    Pushed,
    Result,
    Results,
    Returned,
    Started,
    input_name,
)
from gridengine.wire.processes import make_hello

PASSING = (KeyboardInterrupt, bdb.BdbQuit, GeneratorExit)
"""Exceptions that end the caller's own script, not only the call."""
WORKER = b"inline"
IGNORED = (
    "InlineScheduler does not enforce a %s limit (%s), which would end this very process; "
    "ProcessScheduler(1) does"
)

log = logging.getLogger("gridengine")


_STREAMS = threading.RLock()


@contextlib.contextmanager
def copied(wanted: bool) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Copy the text that is written to `sys.stdout` and `sys.stderr`, which still get it too."""
    copies = io.StringIO(), io.StringIO()
    if not wanted:
        yield copies
        return
    with _copying("stdout", copies[0]), _copying("stderr", copies[1]):
        yield copies


@contextlib.contextmanager
def _copying(name: str, copy: io.StringIO) -> Iterator[None]:
    """Copy one stream's text. Calls in several threads may enter and leave in any order."""
    with _STREAMS:
        present = getattr(sys, name)
        tee = present if isinstance(present, _Tee) else _Tee(present)
        tee.copies.append(copy)
        setattr(sys, name, tee)
    try:
        yield
    finally:
        with _STREAMS:
            tee.copies.remove(copy)
            setattr(sys, name, tee if tee.copies else tee.stream)


class _Tee:
    """A stream that also writes to copies. There is one for all calls that copy the stream at the
    same time.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.copies: list[io.StringIO] = []

    def write(self, text: str) -> int:
        """Write to the stream and to all copies."""
        for copy in tuple(self.copies):
            copy.write(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class InlineRun:
    """Tasks that were submitted together, a core of their own, and its one worker: this thread.

    Raises:
        Exception: loading the function raises it.
    """

    def __init__(
        self,
        dispatcher: InlineDispatcher,
        function: Function,
        tasks: Sequence[Task],
        listener: Listener,
        namespaces: Namespaces,
    ) -> None:
        self._dispatcher = dispatcher
        self._namespaces, self._table = namespaces, Table()
        self._f: Callable[..., Any] | None = None
        self._retry_on: tuple[type[BaseException], ...] = ()
        if not any(has_failed(dispatcher.results[one]) for one in function.after):
            with self._loading(), namespaces.recording() as self._table:
                self._f, self._retry_on = pickling.load_function(function.payload)
        self.thread = threading.get_ident()
        self.function = function
        self.tasks = {task.id: task for task in tasks}
        self._attempt: tuple[int, int] = 0, 0
        """The task and attempt whose calls are loaded: `_calls` are the calls, and `_given` the
        resources of each of them.
        """
        self._calls: Sequence[Any] = ()
        self._given: Resource = ZERO
        self._is_set = False
        """Whether the pairs of carried state were set for these calls."""
        policy = Policy(version=__version__, python=PYTHON)
        self._core = StateMachine(policy, checked=settings().check)
        # Threads that a call has started may push values. The lock is reentrant because a listener
        # may submit calls.
        self._handling = threading.RLock()
        self._unsettled = UnsettledTasks()
        self._unsettled.add(tasks, listener)
        self._assigned: deque[Assignment] = deque()
        self._performers: dict[type, Callable[[Any], None]] = {
            Send: self._receive,
            CallsFinished: self._settle,
            TaskBegan: listener.began,
            TaskMessage: listener.noted,
            Inform: inform,
        }
        self._cancelled: dict[int, int] = {}
        """The runs to be ended, by number, each with the signal."""
        self.requests: deque[TasksCancelled] = deque()
        """Cancellations that wait. Any thread may add one; they are handled between two calls."""

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        token = SHARED.set(self._namespaces)
        try:
            with resolving_locally():
                yield
        finally:
            SHARED.reset(token)

    def run(self, inputs: Iterable[int]) -> None:
        """Run all calls. `inputs` are the references of other calls' results that they need. If an
        exception ends the caller, the remaining calls are settled as cancelled.
        """
        try:
            for reference in inputs:
                self._handle(Supplied(reference, self._dispatcher.results[reference]))
            self._send(make_hello(run_id="", slots=1, pid=os.getpid(), log=""))
            self._handle(Submitted(self.function, list(self.tasks.values())))
            while self._assigned:
                self._run(self._assigned.popleft())
        except BaseException:
            error = Cancelled(f"{self.function.name} was ended before it was done")
            for failure in list(self._unsettled.fail(error)):
                raise failure from None
            raise
        finally:
            # Release functions and arguments now: the core's objects form cycles, which would keep
            # them until the garbage collector runs.
            with self._handling:
                self._performers.clear()
                objects.clear(self._core.state)

    def _handle(self, event: Event) -> None:
        with self._handling:
            for effect in self._core.handle(event, time.monotonic()) if self._performers else ():
                self._performers[type(effect)](effect)

    def _send(self, message: Message, buffers: Payload = ()) -> None:
        self._handle(Received(WORKER, message, buffers))

    def _receive(self, effect: Send) -> None:
        """Handle a message from the core to its worker. `Define` and the like need no handling:
        functions and shared objects are already in this process.
        """
        message = effect.message
        if isinstance(message, Assign):
            self._assigned.extend(message.assignments)
            for assignment in message.assignments:
                if assignment.timeout is not None:
                    self._ignore("time", "timeout=, WTime")
                if assignment.memory:
                    self._ignore("memory", "Memory")
        elif isinstance(message, Cancel):
            self._cancelled.update(dict.fromkeys(message.runs, message.signal))

    def _ignore(self, kind: str, asked_by: str) -> None:
        """Warn that a kind of limit is not enforced here, once for each dispatcher."""
        if kind not in self._dispatcher.ignored:
            self._dispatcher.ignored.add(kind)
            log.warning(IGNORED, kind, asked_by)

    def _run(self, assignment: Assignment) -> None:
        """Run the calls of an assignment until it is cancelled."""
        made = self._dispatcher.results
        followed = [made.get(one.reference) for one in assignment.inputs if one.run]
        if any(one is None or has_failed(one) for one in followed):
            self._send(Returned([assignment.run], NO_INPUT))
            return
        index = assignment.start
        while index < assignment.stop and assignment.run not in self._cancelled:
            if index == assignment.start and assignment.watched:
                self._send(Started(assignment.run, os.getpid()))
            index = self._run_some(assignment, index)
            while self.requests:
                self._handle(self.requests.popleft())
        if index < assignment.stop:
            number = self._cancelled[assignment.run]
            crashed = Crashed(
                run=assignment.run, index=-1, exitcode=-number, reason=CANCELLED, pid=0
            )
            self._send(crashed, [b"", b""])

    def _run_some(self, assignment: Assignment, index: int) -> int:
        """Run calls from this one on until a cancellation waits; return the next call's index."""
        self._load(assignment)
        results: list[Result] = []
        buffers: list[Any] = []
        try:
            while index < assignment.stop and not self.requests:
                result, payload = self._call(assignment, index, self._calls[index])
                buffers += payload
                results.append(result)  # last: Ctrl-C may come between the two
                index += 1
        finally:  # calls that have ended get their outcomes even if an exception ends the rest
            if results:
                self._send(Results(results), buffers)
        return index

    def _load(self, assignment: Assignment) -> None:
        """Load the calls of an assignment, as they were submitted. Each attempt loads them anew,
        because calls may have changed their arguments.
        """
        if self._attempt != (assignment.task, assignment.attempt):
            task = self.tasks[assignment.task]
            with self._loading():
                self._namespaces.enter(self._table)
                self._calls, _ = pickling.load_items(task.payload)
                self._namespaces.enter_again()
            asked = on_one_node(task.options.demand.request, "a call in its caller's process")
            self._given = asked.holder().allocate(asked)
            self._attempt = assignment.task, assignment.attempt

    def _settle(self, event: CallsFinished) -> None:
        for _, reference in self.tasks[event.task].kept:
            awaited = self._core.state.awaited.get(reference)
            if awaited is not None and awaited.data is not None:
                self._dispatcher.supply(reference, awaited.data)
        self._unsettled.settle(event)

    def _call(self, assignment: Assignment, index: int, call: Any) -> tuple[Result, Payload]:
        """Make one call; return its result, and the pickled value or exception."""
        watched, number = assignment.watched, partial(int, max(assignment.first, 0) + index)
        job = CurrentJob(assignment.task, assignment.attempt, self._given, number)
        named = process_name(assignment.name) if watched else contextlib.nullcontext()
        began = time.monotonic()
        with copied(watched) as copies, GVAR.running(job), named:
            payload, status = self._outcome(assignment, call)
        seconds = time.monotonic() - began
        if watched:
            payload = [*payload, *(copy.getvalue().encode() for copy in copies)]
        result = Result(
            run=assignment.run,
            start=index,
            stop=index + 1,
            status=status,
            seconds=seconds,
            buffers=len(payload),
            output=watched,
        )
        return result, payload

    def _outcome(self, assignment: Assignment, call: Any) -> tuple[Payload, int]:
        """Make one call; return the pickled value or exception, and its status. Exceptions in
        `PASSING` are raised.
        """
        f, keywords = self._f, {}
        # It is None only if an input of the function has failed, and then its calls never run.
        assert f is not None
        if assignment.controlled:
            keywords["controller"] = Controller(
                job_id=assignment.task,
                attempt=assignment.attempt,
                push=partial(self._push, assignment.run),
            )
        try:
            if type(call) is Unloadable:
                raise call.error
            if CARRIED and not self._is_set:
                self._set_carried()
            if assignment.form == SINGLE:
                value = f(call, **keywords)
            elif assignment.form == STAR:
                value = f(*call, **keywords)
            else:
                value = f(*call[0], **call[1], **keywords)
            return pickling.dump_values([value]), VALUES
        except PASSING:
            raise
        except BaseException as error:
            status = RETRYABLE if isinstance(error, self._retry_on) else RAISED
            given = arguments_text(call, assignment, f)
            return pickling.dump_exception(error, given), status

    def _set_carried(self) -> None:
        from gridengine.call_context import carried_state  # few need it

        carried_state.set_pairs()
        self._is_set = True

    def _push(self, run: int, value: Any) -> None:
        payload = pickling.dump(value)
        self._send(Pushed(run, len(payload)), payload)


class InlineDispatcher(Dispatcher):
    """Runs tasks before `submit` returns. Arguments and results are pickled nevertheless, so that
    objects that cannot be pickled are noticed here too.

    No limit of time or memory is enforced; a warning says so at the first limit of each kind.
    Nothing can end a call in the caller's own process, and a call in a debugger is not late.
    """

    at_once = True

    def __init__(self) -> None:
        self.new_id = itertools.count(1).__next__
        self._runs: dict[int, InlineRun] = {}
        """The tasks that run now, by number. There may be several, because calls may submit others.
        """
        self.ignored: set[str] = set()
        """The kinds of limits for which a warning was logged."""
        self._closed = False
        self._namespaces: list[Namespaces] = []
        """The global variables of the calls' functions. Calls within a call, and of another thread,
        have others, because they may have another version of a variable.
        """
        self.results: dict[int, ResultData] = {}
        """The results that calls may refer to, by reference."""
        self._arrived = threading.Condition()
        self._makers: dict[int, tuple[InlineRun, str]] = {}
        """The running tasks that make a result, by its reference, each with the call's name."""
        self._awaited: dict[int, Iterable[int]] = {}
        """The references that each thread waits for now."""

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Run these tasks now.

        Raises:
            ConfigurationError: the scheduler has been closed. Or the tasks need a result that is
                not there yet and waiting for it would never end: the caller is in an event loop
                that may have to make the result, or inside the call that makes it.
            KeyboardInterrupt: Ctrl-C in a call ends the caller too; so does quitting `pdb`.
        """
        made = {reference for task in tasks for _, reference in task.kept}
        inputs = {reference for task in tasks for reference in task.after} - made
        if not (self._closed or self.results.keys() >= inputs) and in_event_loop():
            raise ConfigurationError(
                "an InlineScheduler makes calls at once, and this one needs a result that is not "
                "there yet",
                hint="await that result first, or take a ProcessScheduler",
            )
        with self._arrived:  # other threads, or futures of other schedulers, may supply inputs
            self._check_circle(inputs)
            self._awaited[threading.get_ident()] = inputs
            try:
                in_pieces(
                    partial(
                        self._arrived.wait_for,
                        lambda: self._closed or self.results.keys() >= inputs,
                    )
                )
            finally:
                del self._awaited[threading.get_ident()]
        if self._closed:
            raise ConfigurationError("this scheduler has been closed", hint="make a new one")
        namespaces = self._namespaces.pop() if self._namespaces else Namespaces()
        try:
            run = InlineRun(self, function, tasks, listener, namespaces)
            self._runs.update((task.id, run) for task in tasks)
            run.run(inputs)
        finally:
            namespaces.forget(())
            self._namespaces.append(namespaces)
            for task in tasks:
                self._runs.pop(task.id, None)

    def _check_circle(self, inputs: Iterable[int]) -> None:
        """Refuse to wait for a call that this thread is running, or for a call in another thread
        that itself waits for such a call.
        """
        needed = deque[tuple[int, tuple[str, ...]]]((reference, ()) for reference in inputs)
        while needed:
            reference, path = needed.popleft()
            maker = self._makers.get(reference)
            if maker is None:
                continue
            run, name = maker
            if run.thread == threading.get_ident():
                way = f" by way of {', '.join(path)}" if path else ""
                raise ConfigurationError(
                    "an InlineScheduler makes calls at once, and this one would wait for ever: it "
                    f"is made inside {name}, whose result it needs{way}",
                    hint="leave that result out of the call's arguments",
                )
            needed.extend((one, (*path, name)) for one in self._awaited.get(run.thread, ()))

    def check(self, demand: Demand) -> None:
        """Accept any demand: this process counts as having exactly what a call requests."""

    def _request(self, request: Request, /) -> None:
        """Carry out a request that concerns this process. A call cannot be interrupted: its
        cancellation is handled when the call that runs has ended.
        """
        if isinstance(request, TasksCancelled):
            tasks = (*request.tasks, *(task for task, _, _ in request.calls))
            for run in {self._runs.get(task) for task in tasks}:
                if run is not None:
                    run.requests.append(request)
        elif isinstance(request, NamesForgotten):
            for reference in request.references:
                if self.results.pop(reference, None) is not None:
                    unregister(input_name(reference))

    def catch_up(self) -> None:
        """Do nothing: every request is carried out at once."""

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Call `missing`: results are not stored for later references. `missing` sees to it that
        `supply` is called, now or later.
        """
        run = self._runs.get(task)
        if run is not None:
            name = call_words(run.function.name, UNNUMBERED, index, run.tasks[task].options.name)
            self._makers[reference] = run, name
        missing()

    def supply(self, reference: int, data: ResultData) -> None:
        """Store a result, let calls here find it by its reference, and wake calls that wait."""
        with self._arrived:
            self._makers.pop(reference, None)
            if reference not in self.results:
                self.results[reference] = data
                # Copied: the buffers may belong to an array that the caller changes later.
                payload = [bytes(buffer) for buffer in data.payload or ()]
                load = partial(pickling.load_result, payload, data.item)
                register_result(input_name(reference), load)
            self._arrived.notify_all()

    def close(self, *, wait: bool = True) -> None:
        """Accept nothing more. Calls that still wait for results are refused."""
        self._closed = True
        with self._arrived:
            self._arrived.notify_all()
