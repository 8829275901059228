"""`RequestingDispatcher`: a dispatcher in another process, as seen by its clients. Nested calls
reach it through their agent, other clients over TCP. One thread reads the answers.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from gridengine.calls.interface import Dispatcher
from gridengine.calls.translation import (
    MOST_TASKS,
    KnownFailures,
    Outgoing,
    RequestEncoder,
    needed,
    outcomes_of,
    tasks_apart,
    unsettled_parts,
)
from gridengine.dispatcher.unsettled import Listener, UnsettledTasks, Wanted
from gridengine.errors import Cancelled, ConfigurationError, DispatcherGone, GridEngineError
from gridengine.requests import (
    CallsFinished,
    Function,
    ResultData,
    Submitted,
    Task,
    TaskBegan,
    TaskMessage,
)
from gridengine.resources.demand import ANY, NAME, Demand, RememberedDemands, encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.threads import result_of
from gridengine.wire.channel import Received
from gridengine.wire.messages import (
    CheckDemand,
    Checked,
    ClientWelcome,
    Control,
    EncodedDemand,
    Finished,
    Message,
    Submit,
    TaskItem,
    TaskPushed,
    TaskStarted,
    WantAnswer,
)

log = logging.getLogger("gridengine")


class Question(Future[Any]):
    """A future that a thread waits for; `message` is the question, to be asked again if need be."""

    def __init__(self, message: Message | None = None) -> None:
        super().__init__()
        self.message = message


class RequestingDispatcher(Dispatcher, ABC):
    """Has a dispatcher in another process run tasks. For the methods see `Dispatcher`.

    Args:
        runner: the number of this process at its agent; 0 for other clients.
    """

    _repeats = False
    """Whether outcomes may arrive a second time."""
    name = NAME
    """The name of the dispatcher, where it is known; otherwise a placeholder."""

    def __init__(self, runner: int) -> None:
        self._runner = runner
        self._pid = os.getpid()
        self._outgoing: deque[Outgoing] = deque()
        self._sending = threading.Lock()
        self._unsettled = UnsettledTasks()
        self._wanted: dict[int, Wanted] = {}
        self._possible = RememberedDemands()
        self._unserved = False
        """Whether no worker exists before somebody starts one, so that even calls without demands
        are worth a warning.
        """
        self._detached: set[int] = set()
        """The submitters whose tasks do not end with the call that submits them."""
        self._encoder = RequestEncoder(runner, self._submitter)
        self._failures = KnownFailures()
        self._questions: dict[int, Question] = {}
        self._numbers = itertools.count(1)
        self._lost: GridEngineError | None = None
        """Why there are no requests and answers any more; None while there are."""
        self.new_id = self._numbers.__next__
        """Returns an id for a task, unique for the dispatcher."""
        self._handlers: dict[type, Callable[..., None]] = {
            ClientWelcome: self._welcome,
            Finished: self._finished,
            TaskStarted: self._started,
            TaskPushed: self._message,
            WantAnswer: self._result,
            Checked: self._checked,
        }
        """The handlers of messages, by type."""

    def _begin(self, hello: Message, name: str) -> None:
        """Start the thread that reads, introduce this process, and wait for the welcome.

        Raises:
            GridEngineError: this process was refused, or nobody answered.
        """
        welcome = self._questions[0] = Question()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._request(hello)
        self._thread.start()
        result_of(welcome)

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
            if (demand := task.options.demand) is not ANY or self._unserved:
                self.check(demand)
        self._admit(tasks)
        self._unsettled.add(tasks, listener)
        self._note(tasks)
        run, detached = self._present_run(), tasks[0].options.submitter in self._detached
        for start in range(0, len(tasks), MOST_TASKS):
            some = tasks[start : start + MOST_TASKS]
            self._request(Submitted(function, some, parent=run, detached=detached))
        for one in needed(function, tasks):
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

    @property
    def closed(self) -> bool:
        return isinstance(self._lost, Cancelled)

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

    def catch_up(self) -> None:
        if not self._lost and threading.current_thread() is not self._thread:
            self._inquire(None)

    @abstractmethod
    def close(self, *, wait: bool = True) -> None:
        """End all calls that were submitted here."""

    # ---------------------------------------------------------------- sending, one thread at a time

    def _request(self, request: Outgoing, /) -> None:
        """Send a request in this thread; or, if another thread is sending, have that thread send
        it too. So no thread waits for a lock, not even one in which the garbage collector runs.
        """
        outgoing = self._outgoing
        outgoing.append(request)
        while outgoing and os.getpid() == self._pid:
            if not self._sending.acquire(blocking=False):
                return
            try:
                while outgoing:
                    self._send(outgoing.popleft())
            # The thread that reads notices it too, and fails everything that waits.
            except EOFError:
                outgoing.clear()
            finally:
                self._sending.release()

    def _send(self, request: Outgoing) -> None:
        """Send a request."""
        if isinstance(request, Submitted):
            tasks = self._sendable(request.function, request.tasks)
            if not tasks:
                return
            if len(tasks) < len(request.tasks):
                request = replace(request, tasks=tasks)
        for message, buffers in self._encoder.encode(request):
            try:
                self._deliver(message, buffers)
            except (TypeError, ValueError) as error:  # such as a name that UTF-8 cannot encode
                self._send_apart(message, buffers, error)

    def _send_apart(self, message: Message, buffers: Payload, cause: Exception) -> None:
        """Send each part of a message that cannot be encoded by itself, and refuse the parts at
        fault. Later tasks need the definitions.
        """
        refused = ConfigurationError(f"the request cannot be sent: {cause}")
        if not isinstance(message, Submit):
            self._refuse(message, refused)
            return
        for part, its in tasks_apart(message, buffers):
            try:
                self._deliver(part, its)
            except (TypeError, ValueError):
                for task in part.tasks or message.tasks:
                    self._refuse_task(task, refused)
                if not part.tasks:
                    return

    def _refuse(self, message: Message, error: GridEngineError) -> None:
        """Report a message that cannot be encoded to its sender."""
        if isinstance(message, CheckDemand | Control):
            self._answer(message.number, error=error)
        else:
            log.error("%s: %s", type(message).__name__, error)

    def _refuse_task(self, task: Task | TaskItem, error: GridEngineError) -> None:
        """Settle a task that is not sent, and fail the calls that need its results."""
        self._settle(error, [task.id])
        for index, reference in task.kept:
            self.supply(reference, ResultData(error=error, item=index))

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
        self._request(message)
        command: str | None = result_of(question)
        return command

    # ---------------------------------------------------------------- the thread that reads

    def _work(self) -> None:
        """Read messages until the connection ends, then fail everything that waits."""
        handlers = self._handlers
        try:
            while True:
                for message, buffers in self._receive():
                    handlers[type(message)](message, buffers)
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
        for failure, event in outcomes_of(message, buffers):
            if failure:
                event = self._failures.same(failure, event)
            repeats = self._repeats
            left = self._unsettled.left(event.task) if repeats else []
            for one in unsettled_parts(event, left) if repeats else (event,):
                self._settle_calls(one)

    def _settle_calls(self, event: CallsFinished) -> None:
        self._unsettled.settle(event)

    def _started(self, message: TaskStarted, buffers: Payload) -> None:
        began = TaskBegan(message.task, message.pid, message.host, message.attempt)
        self._unsettled.began(began)

    def _message(self, message: TaskPushed, buffers: Payload) -> None:
        self._unsettled.noted(TaskMessage(message.task, buffers, message.log))

    def _result(self, message: WantAnswer, buffers: Payload) -> None:
        wanted = self._wanted.pop(message.reference, None)
        if message.missing and wanted is not None:
            wanted[1]()
