"""The dispatcher as calls have it that make calls: what is asked of it goes to the one that runs
them, by the agent of their process.

A thread reads what comes back. Whoever asks for something sends it, and what others ask for in the
meantime: so nobody waits for a lock, not the garbage collector either.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gridengine.dispatcher.call_slot import CallSlot
from gridengine.dispatcher.core.snapshot import Snapshot
from gridengine.dispatcher.core.tasks import (
    Function,
    ResultData,
    Task,
    TaskMessage,
    TaskStarted,
)
from gridengine.dispatcher.interface import Listener
from gridengine.dispatcher.nested_encoding import (
    finished_calls,
    function_item,
    shared_item,
    task_item,
)
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import Cancelled, ConfigurationError, GridEngineError, NestingError
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.encoding import encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_objects import all_needed
from gridengine.wire.messages import (
    Allocate,
    Checked,
    ChildCancel,
    ChildCheck,
    ChildForget,
    ChildMessage,
    ChildRecall,
    ChildrenFinished,
    ChildrenHello,
    ChildrenWelcome,
    ChildResult,
    ChildStarted,
    ChildSupply,
    ChildTasks,
    ChildWant,
    EncodedDemand,
    Message,
    Resumed,
)
from gridengine.worker.call_context import GVAR
from gridengine.worker.calling_process import CallingProcess

log = logging.getLogger("gridengine")

MOST_TASKS = 1000
"""How many tasks travel in one message."""
MOST_DEMANDS = 1000
"""How many demands are known to be possible."""
MOST_FUNCTIONS = 64
"""How many functions the dispatcher is to know by their digests."""


class NestedDispatcher:
    """Runs tasks on the workers of the dispatcher that runs this process's calls. Its methods may
    be called from any thread.

    Tasks are children of the call that runs when they are submitted, and end with it at the latest.

    Raises:
        ConfigurationError: the agent of this process is gone.
    """

    at_once = False

    def __init__(self, process: CallingProcess) -> None:
        self._process = process
        try:
            self._channel = process.connect()
        except LookupError as error:
            raise ConfigurationError(f"this call can make no calls of others: {error}") from error
        self._outgoing: deque[Callable[[], object]] = deque()
        self._sending = threading.Lock()
        self._unsettled = UnsettledTasks()
        self._wanted: dict[int, Callable[[], object]] = {}
        self._possible: set[Demand] = set()
        self._functions: dict[bytes, None] = {}
        self._shared: set[bytes] = set()
        """The functions and shared objects that the dispatcher knows by their names."""
        self._submitters: dict[int, tuple[int, int]] = {}
        """Of each submitter the run that it submitted for last, and its number for that."""
        self._detached: set[int] = set()
        """The submitters whose tasks do not end with the call that submits them."""
        self._apart: set[int] = set()
        """Those of these tasks that may not have ended."""
        self._questions: dict[int, Question] = {}
        self._numbers = itertools.count(1)
        self._lost = False
        self.slots = 1
        self.new_id = self._numbers.__next__
        """Returns an id for a task, unique for the dispatcher."""
        self.call_slot = self._new_slot()
        welcome = self._questions[0] = Question()
        self._thread = threading.Thread(target=self._work, name="gridengine-nested", daemon=True)
        self._thread.start()
        self._send(ChildrenHello(process.number))
        welcome.wait()

    def _new_slot(self) -> CallSlot:
        process = self._process
        return CallSlot(process.number, lambda: process.run, self._send)

    # ---------------------------------------------------------------- for clients, from any thread

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        """Have tasks run; the listener receives the outcome of each of their calls once.

        Raises:
            ConfigurationError: this process was forked from that of the call; or no worker can hold
                what a task asks for.
        """
        if os.getpid() != self._process.pid or self._lost:
            raise ConfigurationError(
                "this scheduler is that of the call whose process this one was forked from, or is "
                "gone",
                hint="make a new scheduler after the fork",
            )
        for task in tasks:
            if task.demand is not ANY:
                self.check(task.demand)
        self._unsettled.add(tasks, listener)
        if tasks[0].submitter in self._detached:
            self._apart.update(task.id for task in tasks)
        GVAR.at_end = self.end_call
        run = self._process.run
        for start in range(0, len(tasks), MOST_TASKS):
            some = tasks[start : start + MOST_TASKS]
            self._ask(functools.partial(self._send_tasks, run, function, some))
        for one in all_needed(function.needs, *(task.needs for task in tasks)):
            one.used_by(self)

    def check(self, demand: Demand) -> None:
        """Check that a worker can hold what calls ask for.

        Raises:
            ConfigurationError: no worker can; or it is a resource of a user's own kind.
        """
        if demand not in self._possible:
            self._inquire(encode_demand(demand))
            if len(self._possible) >= MOST_DEMANDS:
                self._possible.clear()
            self._possible.add(demand)

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """End tasks, and of others these calls (a task, its first call, the one after the last):
        calls not started never run; those that run are sent the signal. The listener receives an
        outcome of each all the same.
        """
        self._send(ChildCancel(self._process.number, tuple(tasks), int(number), tuple(calls)))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Withdraw what has not begun of these calls (a task, its first call, the one after the
        last): it is settled as `recalled`.
        """
        self._send(ChildRecall(self._process.number, tuple(calls)))

    def catch_up(self) -> None:
        """Wait until all that this thread has asked for is decided."""
        if not self._lost and threading.current_thread() is not self._thread:
            self._inquire(None)

    def release(self, name: bytes) -> None:
        """Note that no new task can refer to this shared object."""
        self._ask(functools.partial(self._send_release, name))

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Have a reference stand for the result of a call that was handed in before. Should what
        came of it not be had there any more, `missing` is called, once, in the thread that reads.
        """
        self._wanted[reference] = missing
        self._send(ChildWant(self._process.number, task, index, reference))

    def supply(self, reference: int, data: ResultData) -> None:
        """Say what a reference stands for that no call of this dispatcher makes."""
        payload, raised = data.payload, data.raised
        if data.error is not None:
            payload, raised = pickling.dump_exception(data.error), True
        payload = payload or []
        message = ChildSupply(
            self._process.number,
            reference,
            data.item,
            raised,
            data.cancelled,
            data.path,
            len(payload),
        )
        self._send(message, payload)

    def release_references(self, references: Sequence[int]) -> None:
        """Note that no new task can refer to these results."""
        self._send(ChildForget(self._process.number, references=references))

    def detach(self, submitter: int) -> None:
        """Have tasks of this submitter not end with the call that submits them."""
        self._detached.add(submitter)

    def snapshot(self) -> Snapshot:
        """Return what is known of the state here: next to nothing."""
        return Snapshot(workers=1)

    def flush_output(self, seconds: float | None = None) -> None:
        """Return: what calls print goes to their caller."""

    def close(self, *, wait: bool = True) -> None:
        """End all calls that this process's calls have made. It can be used as before."""
        if open_tasks := self._unsettled.ids():
            self.cancel(open_tasks)

    def end_call(self) -> None:
        """Note that the call has ended that ran here: what it has made, and what waits for that,
        ends too.
        """
        GVAR.at_end = None
        slot, self.call_slot = self.call_slot, self._new_slot()
        slot.close()
        self._submitters.clear()
        if children := self._children():
            for listener in set(map(self._unsettled.listener, children)):
                if listener is not None:
                    listener.abandoned()
            self.cancel(children)

    def _children(self) -> list[int]:
        """Return the tasks that end with the call that runs."""
        open_tasks = self._unsettled.ids()
        self._apart.intersection_update(open_tasks)
        return [task for task in open_tasks if task not in self._apart]

    # ---------------------------------------------------------------- sending

    def _send(self, message: Message, buffers: Payload = ()) -> None:
        self._ask(functools.partial(self._channel.deliver, message, buffers))

    def _ask(self, send: Callable[[], object]) -> None:
        """Have something sent, after all that was asked for before: by this thread, unless another
        is at it, which then does that too.
        """
        outgoing = self._outgoing
        outgoing.append(send)
        while outgoing and os.getpid() == self._process.pid:
            if not self._sending.acquire(blocking=False):
                return
            try:
                while outgoing:
                    outgoing.popleft()()
            except EOFError:  # the thread that reads sees that, too, and tells all who wait
                outgoing.clear()
            finally:
                self._sending.release()

    def _send_tasks(self, run: int, function: Function, tasks: Sequence[Task]) -> None:
        """Send tasks, and what the dispatcher does not know yet of what they need."""
        number, digest, functions = self._process.number, function.digest, self._functions
        item, buffers = None, list[Any]()
        if digest not in functions:
            if len(functions) >= MOST_FUNCTIONS:
                oldest = next(iter(functions))
                self._channel.deliver(ChildForget(number, functions=[oldest]))
                del functions[oldest]
            item = function_item(function)
            buffers += function.payload
        functions.pop(digest, None)
        functions[digest] = None  # last
        needed = all_needed(function.needs, *(task.needs for task in tasks))
        shared = [one for one in needed if one.name not in self._shared]
        self._shared.update(one.name for one in shared)
        for one in shared:
            buffers += one.payload
        for task in tasks:
            buffers += task.payload
        items = [task_item(task, self._submitter(task.submitter, run)) for task in tasks]
        message = ChildTasks(
            number,
            run,
            digest,
            items,
            item,
            list(map(shared_item, shared)),
            tasks[0].submitter in self._detached,
        )
        try:
            self._channel.deliver(message, buffers)
        except (TypeError, ValueError) as error:  # a name may be none that can be encoded
            refused = ConfigurationError(f"{function.name!r} cannot be handed in: {error}")
            self._settle(refused, [task.id for task in tasks])

    def _submitter(self, number: int, run: int) -> int:
        """Return the number of a submitter for the children of this run: those of each have one of
        their own.
        """
        known = self._submitters.get(number)
        if known is None or known[0] != run:
            known = self._submitters[number] = run, self.new_id()
        return known[1]

    def _send_release(self, name: bytes) -> None:
        if name in self._shared:
            self._shared.discard(name)
            self._channel.deliver(ChildForget(self._process.number, shared=[name]))

    def _inquire(self, demand: EncodedDemand | None) -> None:
        """Wait until all that was asked for is decided, and it is known whether a worker can hold
        what calls ask for.

        Raises:
            GridEngineError: none can; or nobody answers any more.
        """
        number = next(self._numbers)
        question = self._questions[number] = Question()
        if self._lost:  # who answers them all at the end may not have seen this one
            raise Cancelled("the agent of this process is gone")
        self._send(ChildCheck(self._process.number, number, demand))
        question.wait()

    # ---------------------------------------------------------------- the thread that reads

    def _work(self) -> None:
        try:
            while True:
                for message, buffers in self._channel.wait():
                    HANDLERS[type(message)](self, message, buffers)
        except EOFError:
            self._fail("the agent of this process is gone")
        except BaseException as error:
            log.critical("the thread that reads failed; all that runs is ended", exc_info=True)
            self._fail(f"the thread that reads failed: {error!r}")

    def _fail(self, why: str) -> None:
        """Tell all who wait for something: nobody else will."""
        self._lost = True
        error = Cancelled(why)
        self._settle(error)
        for question in list(self._questions.values()):
            question.answer(error)
        self.call_slot.close()

    def _settle(self, error: GridEngineError, tasks: Iterable[int] | None = None) -> None:
        """Settle all calls, or those of these tasks, with an error."""
        for failure in self._unsettled.fail(error, tasks):
            log.critical("somebody could not be told of an outcome", exc_info=failure)

    def _welcome(self, message: ChildrenWelcome, buffers: Payload) -> None:
        self.slots = message.slots
        self.new_id = itertools.count((message.client << 40) + 1).__next__
        self._questions.pop(0).answer()

    def _checked(self, message: Checked, buffers: Payload) -> None:
        error = pickling.load_exception(buffers) if message.failed else None
        self._questions.pop(message.number).answer(error)

    def _finished(self, message: ChildrenFinished, buffers: Payload) -> None:
        offset = 0
        for item in message.outcomes:
            stop = offset + item.count_buffers()
            self._unsettled.settle(finished_calls(item, buffers[offset:stop]))
            offset = stop

    def _started(self, message: ChildStarted, buffers: Payload) -> None:
        if (listener := self._unsettled.listener(message.task)) is not None:
            listener.began(TaskStarted(message.task, message.pid, message.host, message.attempt))

    def _message(self, message: ChildMessage, buffers: Payload) -> None:
        if (listener := self._unsettled.listener(message.task)) is not None:
            listener.noted(TaskMessage(message.task, buffers))

    def _result(self, message: ChildResult, buffers: Payload) -> None:
        missing = self._wanted.pop(message.reference, None)
        if message.missing and missing is not None:
            missing()

    def _allocate(self, message: Allocate, buffers: Payload) -> None:
        """Keep to what the call is given that is resumed next."""
        try:
            self._process.allocate(message, buffers)
        except Exception as error:  # a kind may be a user's own
            self.call_slot.refuse(error)

    def _resumed(self, message: Resumed, buffers: Payload) -> None:
        slot = self.call_slot
        if message.run != slot.run:
            return
        if not message.refused:
            slot.resumed()
        elif slot.refuse(NestingError(message.refused)):
            children = self._children()
            self._settle(NestingError(message.refused), children)
            self.cancel(children)


class Question:
    """What a thread waits with for an answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error: BaseException | None = None

    def answer(self, error: BaseException | None = None) -> None:
        """End the waiting, once."""
        self._error = error
        self._lock.release()

    def wait(self) -> None:
        """Wait for the answer.

        Raises:
            GridEngineError: the answer is an error.
        """
        self._lock.acquire()
        if self._error is not None:
            raise self._error


HANDLERS: Mapping[type, Callable[[NestedDispatcher, Any, Payload], None]] = MappingProxyType(
    {
        ChildrenWelcome: NestedDispatcher._welcome,
        ChildrenFinished: NestedDispatcher._finished,
        ChildStarted: NestedDispatcher._started,
        ChildMessage: NestedDispatcher._message,
        ChildResult: NestedDispatcher._result,
        Checked: NestedDispatcher._checked,
        Allocate: NestedDispatcher._allocate,
        Resumed: NestedDispatcher._resumed,
    }
)
