"""`RequestingDispatcher`: a dispatcher in another process, as seen by its clients. Nested calls
reach it through their agent, other clients over TCP.

One thread reads the answers. A thread that requests something sends its own message, and those that
other threads have queued meanwhile. So no thread waits for a lock, not even one in which the
garbage collector runs.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gridengine.calls.encoding import (
    KnownFailures,
    finished_calls,
    function_item,
    shared_item,
    task_item,
    unsettled_parts,
)
from gridengine.calls.interface import DispatcherBase
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    Function,
    ResultData,
    Task,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.unsettled import Listener, UnsettledTasks
from gridengine.errors import Cancelled, ConfigurationError, DispatcherGone, GridEngineError
from gridengine.resources.demand import ANY, NAME, Demand, RememberedDemands, encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.channel import Received
from gridengine.wire.messages import (
    CheckDemand,
    Checked,
    ClientCancel,
    ClientForget,
    ClientRecall,
    ClientWelcome,
    EncodedDemand,
    Finished,
    Message,
    Submit,
    Supply,
    TaskBegan,
    TaskItem,
    TaskPushed,
    Want,
    WantAnswer,
)

log = logging.getLogger("gridengine")

MOST_TASKS = 1000
"""One message has at most this many tasks."""
MOST_FUNCTIONS = 64
"""The dispatcher's end is asked to remember at most this many functions of a client."""


class Question(Future[Any]):
    """The future that a thread waits for until an answer arrives; `message` is the question, to be
    asked again if need be.
    """

    def __init__(self, message: Message | None = None) -> None:
        super().__init__()
        self.message = message


class RequestingDispatcher(DispatcherBase, ABC):
    """Has a dispatcher in another process run tasks. For the methods see `Dispatcher`.

    Args:
        runner: the number of this process at its agent; 0 for other clients.
    """

    _repeats = False
    """Whether outcomes may arrive a second time."""
    _handlers: Mapping[type, Callable[..., None]]
    """The handlers of messages, by type."""

    name = NAME
    """The name of the dispatcher, where it is known; otherwise a placeholder."""

    def __init__(self, runner: int) -> None:
        self._runner = runner
        self._pid = os.getpid()
        self._outgoing: deque[Callable[[], object]] = deque()
        self._sending = threading.Lock()
        self._unsettled = UnsettledTasks()
        self._wanted: dict[int, tuple[Want, Callable[[], object]]] = {}
        """The results that were asked for by `want` and have no answer yet, by reference."""
        self._possible = RememberedDemands()
        self._unserved = False
        """Whether no worker exists before somebody starts one, so that even calls without demands
        are worth a warning.
        """
        self._detached: set[int] = set()
        """The submitters whose tasks do not end with the call that submits them."""
        self._functions: dict[bytes, None] = {}
        self._shared: set[bytes] = set()
        """`_functions`, oldest use first, and `_shared`: the definitions that the dispatcher has
        from this client.
        """
        self._failures = KnownFailures()
        self._questions: dict[int, Question] = {}
        self._numbers = itertools.count(1)
        self._lost: GridEngineError | None = None
        """Why there are no requests and answers any more; None while there are."""
        self.new_id = self._numbers.__next__
        """Returns an id for a task, unique for the dispatcher."""

    def _begin(self, hello: Message, name: str) -> None:
        """Start the thread that reads, introduce this process, and wait for the welcome.

        Raises:
            GridEngineError: this process was refused, or nobody answered.
        """
        welcome = self._questions[0] = Question()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._send(hello)
        self._thread.start()
        welcome.result()

    @abstractmethod
    def _deliver(self, message: Message, buffers: Payload = ()) -> None:
        """Send a message. One thread at a time calls this.

        Raises:
            EOFError: the connection is closed.
        """

    @abstractmethod
    def _receive(self) -> Received:
        """Wait for messages, and return them. For the thread that reads.

        Raises:
            EOFError: there will be no more messages.
        """

    @abstractmethod
    def _submitter(self, number: int, run: int) -> int:
        """Return the number of a submitter at the dispatcher."""

    def _admit(self, tasks: Sequence[Task]) -> None:  # optional
        """Called before tasks are submitted. Raises an error if they cannot be."""

    def _note(self, tasks: Sequence[Task]) -> None:  # optional
        """Called before tasks are sent, so that a subclass can prepare for them."""

    def _sendable(self, function: Function, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks that may be sent; settle the others with an error."""
        return tasks

    def _present_run(self) -> int:
        """Return the run whose call submits now; 0 if there is none."""
        return 0

    # ---------------------------------------------------------------- for clients, from any thread

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        self._check_usable()
        for task in tasks:
            if task.demand is not ANY or self._unserved:
                self.check(task.demand)
        self._admit(tasks)
        self._unsettled.add(tasks, listener)
        self._note(tasks)
        run = self._present_run()
        for start in range(0, len(tasks), MOST_TASKS):
            some = tasks[start : start + MOST_TASKS]
            self._ask(functools.partial(self._send_tasks, run, function, some))
        for one in _needed(function, tasks):
            one.used_by(self)
        if self._lost:  # `_fail` may have settled all tasks before these were added
            self._settle(self._lost, [task.id for task in tasks])

    def _check_usable(self) -> None:
        """Raise an error if nothing can be submitted any more."""
        if os.getpid() != self._pid:
            raise ConfigurationError(
                "this scheduler belongs to the process that this one was forked from",
                hint="make a new scheduler after the fork",
            )
        # The same error that open calls were settled with.
        if isinstance(self._lost, DispatcherGone):
            raise DispatcherGone(self._lost.message, hint=self._lost.hint)
        if self._lost:
            raise ConfigurationError(
                f"this scheduler is closed, or gone: {self._lost.message}", hint="make a new one"
            )

    def check(self, demand: Demand) -> None:
        """Check that a worker can hold a demand. If somebody must first start such a worker, warn
        once.

        Raises:
            ConfigurationError: no worker can hold it; or it has a resource of a user's own kind.
        """
        if demand not in self._possible:
            command = self._inquire(encode_demand(demand))
            self._possible.add(demand)
            if command is not None:
                step = f"; start one: {command.replace(NAME, self.name)}" if command else ""
                why = (
                    "there is no worker" if demand == ANY else f"no worker holds {demand.request!r}"
                )
                log.warning("calls wait: %s%s", why, step)

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        self._send(ClientCancel(self._runner, tuple(tasks), int(number), tuple(calls)))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        self._send(ClientRecall(self._runner, tuple(calls)))

    def catch_up(self) -> None:
        if not self._lost and threading.current_thread() is not self._thread:
            self._inquire(None)

    def release(self, name: bytes) -> None:
        self._ask(functools.partial(self._send_release, name))

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Let a reference stand for the result of a call that was submitted before. If the
        dispatcher no longer has the result, `missing` is called, once, in the thread that reads.
        """
        message = Want(self._runner, task, index, reference)
        self._wanted[reference] = message, missing
        self._send(message)

    def supply(self, reference: int, data: ResultData) -> None:
        """Give the result that a reference stands for. An error of the package travels pickled."""
        payload, raised = data.payload, data.raised
        if data.error is not None:
            payload, raised = pickling.dump_exception(data.error), True
        payload = payload or []
        message = Supply(
            self._runner,
            reference,
            data.item,
            raised,
            data.cancelled,
            data.path,
            len(payload),
        )
        self._send(message, payload)

    def release_references(self, references: Sequence[int]) -> None:
        self._send(ClientForget(self._runner, references=references))

    @abstractmethod
    def close(self, *, wait: bool = True) -> None:
        """End all calls that were submitted here."""

    # ---------------------------------------------------------------- sending

    def _send(self, message: Message, buffers: Payload = ()) -> None:
        self._ask(functools.partial(self._deliver, message, buffers))

    def _ask(self, send: Callable[[], object]) -> None:
        """Send something, after everything that was queued before. If another thread is sending, it
        sends this too.
        """
        outgoing = self._outgoing
        outgoing.append(send)
        while outgoing and os.getpid() == self._pid:
            if not self._sending.acquire(blocking=False):
                return
            try:
                while outgoing:
                    outgoing.popleft()()
            # The thread that reads notices it too, and fails everything that waits.
            except EOFError:
                outgoing.clear()
            finally:
                self._sending.release()

    def _send_tasks(self, run: int, function: Function, tasks: Sequence[Task]) -> None:
        """Send tasks, with the definitions that they need and the dispatcher does not have."""
        tasks = self._sendable(function, tasks)
        if not tasks:
            return
        number, digest, functions = self._runner, function.digest, self._functions
        item, buffers = None, list[Any]()
        if digest not in functions:
            if len(functions) >= MOST_FUNCTIONS:
                oldest = next(iter(functions))
                self._deliver(ClientForget(number, functions=[oldest]))
                del functions[oldest]
            item = function_item(function)
            buffers += function.payload
        functions.pop(digest, None)
        functions[digest] = None  # moved to the end: used last
        shared = [one for one in _needed(function, tasks) if one.name not in self._shared]
        self._shared.update(one.name for one in shared)
        for one in shared:
            buffers += one.payload
        for task in tasks:
            buffers += task.payload
        items = [task_item(task, self._submitter(task.submitter, run)) for task in tasks]
        message = Submit(
            number,
            run,
            digest,
            items,
            item,
            list(map(shared_item, shared)),
            tasks[0].submitter in self._detached,
        )
        try:
            self._deliver(message, buffers)
        except (TypeError, ValueError) as error:  # such as a name that UTF-8 cannot encode
            refused = ConfigurationError(f"{function.name!r} cannot be submitted: {error}")
            for task in tasks:
                self._refuse_task(task, refused)
            for own in definitions_of(message, buffers):
                self._deliver(*own)

    def _refuse_task(self, task: Task | TaskItem, error: GridEngineError) -> None:
        """Settle a task that is not sent, and fail the calls that need its results."""
        self._settle(error, [task.id])
        for index, reference in task.kept:
            self.supply(reference, ResultData(error=error, item=index))

    def _send_release(self, name: bytes) -> None:
        if name in self._shared:
            self._shared.discard(name)
            self._deliver(ClientForget(self._runner, shared=[name]))

    def _inquire(self, demand: EncodedDemand | None) -> str | None:
        """Wait until all earlier requests are decided. With a demand, also learn whether a worker
        can hold it; if somebody must first start such a worker, return the command that starts one.

        Raises:
            GridEngineError: no worker can ever hold it; or nobody answers any more.
        """
        number = next(self._numbers)
        message = CheckDemand(self._runner, number, demand)
        question = self._questions[number] = Question(message)
        if self._lost:  # `_fail` may have answered all questions before this one was added
            raise self._lost
        self._send(message)
        command: str | None = question.result()
        return command

    # ---------------------------------------------------------------- the thread that reads

    def _work(self) -> None:
        """Read messages until the connection ends, then fail everything that waits."""
        handlers = self._handlers
        try:
            while True:
                for message, buffers in self._receive():
                    handlers[type(message)](self, message, buffers)
        except EOFError as error:
            self._fail(Cancelled(str(error)))
        except GridEngineError as error:
            self._fail(error)
        except BaseException as error:
            log.critical("the thread that reads failed; all calls are ended", exc_info=True)
            self._fail(Cancelled(f"the thread that reads failed: {error!r}"))

    def _fail(self, error: GridEngineError) -> None:
        """Settle all calls and answer all questions with an error: nobody else will."""
        self._lost = error
        self._settle(error)
        for question in list(self._questions.values()):
            question.set_exception(error)

    def _settle(self, error: GridEngineError, tasks: Iterable[int] | None = None) -> None:
        """Settle all calls, or the calls of these tasks, with an error."""
        for failure in self._unsettled.fail(error, tasks):
            log.critical("a listener failed when it was told of an outcome", exc_info=failure)

    def _welcome(self, message: ClientWelcome, buffers: Payload) -> None:
        self.slots, self._unserved = message.slots, message.unserved
        self.new_id = itertools.count((message.client << 40) + 1).__next__
        self._questions.pop(0).set_result(None)

    def _checked(self, message: Checked, buffers: Payload) -> None:
        error = pickling.load_exception(buffers) if message.failed else None
        self._answer(message.number, message.command, error=error)

    def _answer(
        self, number: int, told: object = None, *, error: BaseException | None = None
    ) -> None:
        """Set the answer of a question."""
        question = self._questions.pop(number, None)
        if question is None:  # it was asked twice, and has been answered
            return
        if error is not None:
            question.set_exception(error)
        else:
            question.set_result(told)

    def _finished(self, message: Finished, buffers: Payload) -> None:
        """Settle calls. After a resumption, outcomes may arrive a second time, in other groups:
        only calls without an outcome are settled.
        """
        offset = 0
        for item in message.outcomes:
            stop = offset + item.count_buffers()
            event = finished_calls(item, buffers[offset:stop])
            if item.failure:
                event = self._failures.same(item.failure, event)
            repeats = self._repeats
            left = self._unsettled.left(event.task) if repeats else []
            for one in unsettled_parts(event, left) if repeats else (event,):
                self._settle_calls(one)
            offset = stop

    def _settle_calls(self, event: CallsFinished) -> None:
        self._unsettled.settle(event)

    def _started(self, message: TaskBegan, buffers: Payload) -> None:
        self._unsettled.began(TaskStarted(message.task, message.pid, message.host, message.attempt))

    def _message(self, message: TaskPushed, buffers: Payload) -> None:
        self._unsettled.noted(TaskMessage(message.task, buffers, message.log))

    def _result(self, message: WantAnswer, buffers: Payload) -> None:
        wanted = self._wanted.pop(message.reference, None)
        if message.missing and wanted is not None:
            wanted[1]()


def definitions_of(message: Submit, buffers: Payload) -> list[tuple[Submit, Payload]]:
    """Return a message with only the definitions of this one, which later tasks need; an empty list
    if it defines nothing.
    """
    own = replace(message, tasks=[])
    defines = own.function is not None or own.shared
    return [(own, buffers[: own.count_buffers()])] if defines else []


def _needed(function: Function, tasks: Sequence[Task]) -> tuple[SharedObject, ...]:
    """Return the shared objects that tasks and their function need."""
    needs = [task.needs for task in tasks if task.needs]
    return all_needed(function.needs, *needs) if needs or function.needs else ()


HANDLERS: Mapping[type, Callable[..., None]] = MappingProxyType(
    {
        ClientWelcome: RequestingDispatcher._welcome,
        Finished: RequestingDispatcher._finished,
        TaskBegan: RequestingDispatcher._started,
        TaskPushed: RequestingDispatcher._message,
        WantAnswer: RequestingDispatcher._result,
        Checked: RequestingDispatcher._checked,
    }
)
