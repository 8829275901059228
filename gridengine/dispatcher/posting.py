"""`PostingDispatcher`: a dispatcher as seen by the threads of its own process. Their requests
become events for the I/O thread.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from gridengine.dispatcher.core.events import (
    CancelRequested,
    Event,
    RecallRequested,
    ReferencesReleased,
    Released,
    ResultAsked,
    ResultWanted,
    Submitted,
    Supplied,
)
from gridengine.dispatcher.core.policy import Policy, can_hold
from gridengine.dispatcher.core.tasks import Function, ResultData, Task
from gridengine.dispatcher.interface import DispatcherBase, Listener, UnsettledTasks
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.errors import ConfigurationError
from gridengine.resources.demand import ANY, Demand, RememberedDemands
from gridengine.serialize import pickling
from gridengine.serialize.shared_objects import all_needed
from gridengine.serialize.users_modules import own_modules

MOST_TASKS = 1000
"""One event submits at most this many tasks, because no message is handled meanwhile."""


class PostingDispatcher(DispatcherBase):
    """Posts events. For the methods see `Dispatcher`."""

    _policy: Policy
    _thread: threading.Thread
    """The I/O thread."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.new_id = itertools.count(1).__next__
        """Returns an id for a task, unique for this dispatcher."""
        self._queue = EventQueue[Event]()
        self._unsettled = UnsettledTasks()
        self._possible = RememberedDemands()
        self._wanted: dict[int, Callable[[], object]] = {}
        # Reentrant: the garbage collector may close this in a thread that is submitting.
        self._closing = threading.RLock()
        self._closed = False

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        # Calls must run the present code of edited modules: the core has runners replaced when
        # `generation` has changed.
        modules = own_modules()
        if time.monotonic() > modules.due:
            modules.check()
        with self._closing:  # nobody would read an event that is posted after `Closing`
            if self._closed or os.getpid() != self._owner:
                self._refuse()
            shared = function.needs
            for task in tasks:
                if task.demand is not ANY:
                    self.check(task.demand)
                if task.needs:
                    shared = (*shared, *task.needs)
            self._unsettled.add(tasks, listener)
            generation = modules.generation
            if len(tasks) <= MOST_TASKS:
                self._queue.post(Submitted(function, tasks, generation))
            else:
                # The core handles one event at a time, and no message of a worker meanwhile.
                self._queue.extend(
                    [
                        Submitted(function, tasks[start : start + MOST_TASKS], generation)
                        for start in range(0, len(tasks), MOST_TASKS)
                    ]
                )
            for one in all_needed(shared) if shared else ():
                one.used_by(self)

    def check(self, demand: Demand) -> None:
        if demand not in self._possible:
            can_hold(self._policy, demand.request)
            pickling.dump(demand.resources)
            self._possible.add(demand)

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        self._post(CancelRequested(tuple(tasks), number, tuple(calls)))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        self._post(RecallRequested(tuple(calls)))

    def catch_up(self) -> None:
        if os.getpid() != self._owner or threading.current_thread() is self._thread:
            return
        with self._closing:
            if self._closed:
                return
            done = self._queue.barrier()
        done.wait()

    def release(self, name: bytes) -> None:
        self._post(Released(name))

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        if not self._closed:
            self._wanted[reference] = missing
        self._post(ResultWanted(((task, index, reference),)))

    def supply(self, reference: int, data: ResultData) -> None:
        self._post(Supplied(reference, data))

    def release_references(self, references: Sequence[int]) -> None:
        self._post(ReferencesReleased(references))

    def _ask(self, reference: int) -> None:
        """Fetch a result that lies at a worker. A dispatcher that is closing fetches it by
        itself.
        """
        if os.getpid() != self._owner:
            self._refuse()
        self._post(ResultAsked(reference))

    def _in_thread(self, make: Callable[[], Any]) -> Any:
        """Return the value of `make`, called in the I/O thread.

        Raises:
            ConfigurationError: the dispatcher has been closed, or belongs to another process.
        """
        coming = Future[Any]()

        def answer() -> None:
            try:
                coming.set_result(make())
            except Exception as error:  # an exception here would end the I/O thread
                coming.set_exception(error)

        with self._closing:
            if self._closed or os.getpid() != self._owner:
                self._refuse()
            self._queue.ask(answer)
        return coming.result()

    def _post(self, event: Event) -> None:
        if os.getpid() == self._owner and not self._closed:
            self._queue.post(event)

    def _refuse(self) -> None:
        if os.getpid() != self._owner:
            raise ConfigurationError(
                "this scheduler's workers belong to the process that this one was forked from",
                hint="make a new scheduler after the fork",
            )
        raise ConfigurationError("this scheduler has been closed", hint="make a new one")
