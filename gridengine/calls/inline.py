"""A dispatcher without workers: calls run at once, in the caller's own process and thread
(`inline_run`).
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gridengine.calls.inline_run import InlineRun
from gridengine.dispatcher.core.events import CancelRequested
from gridengine.dispatcher.core.tasks import Function, ResultData, Task
from gridengine.dispatcher.interface import DispatcherBase, Listener
from gridengine.errors import UNNUMBERED, ConfigurationError, call_words
from gridengine.resources.demand import Demand
from gridengine.serialize import pickling
from gridengine.serialize.shared_objects import register_result, unregister
from gridengine.wire.messages import input_name
from gridengine.worker.call_context import in_event_loop


class InlineDispatcher(DispatcherBase):
    """Runs tasks before `submit` returns. Arguments and results are pickled all the same, so that
    objects that cannot be pickled are noticed here too.

    No limit of time or memory is enforced; the first use of each is warned of. Nothing can end a
    call in the caller's own process, and a call in a debugger is not late.
    """

    at_once = True

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._runs: dict[int, InlineRun] = {}
        """The tasks that run now, by number. There may be several, because calls may submit others.
        """
        self.ignored: set[str] = set()
        """The kinds of limits that were warned of."""
        self._closed = False
        self.results: dict[int, ResultData] = {}
        """The results that calls may refer to, by reference."""
        self._arrived = threading.Condition()
        self._makers: dict[int, tuple[InlineRun, str]] = {}
        """The running tasks that make a result, by its reference, each with the name of the call
        for people.
        """
        self._awaited: dict[int, Iterable[int]] = {}
        """The references that each thread waits for now."""

    def new_id(self) -> int:
        return next(self._ids)

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
                self._arrived.wait_for(lambda: self._closed or self.results.keys() >= inputs)
            finally:
                del self._awaited[threading.get_ident()]
        if self._closed:
            raise ConfigurationError("this scheduler has been closed", hint="make a new one")
        run = InlineRun(self, function, tasks, listener)
        self._runs.update((task.id, run) for task in tasks)
        try:
            run.run(inputs)
        finally:
            for task in tasks:
                del self._runs[task.id]

    def _check_circle(self, inputs: Iterable[int]) -> None:
        """Refuse to wait for a call that this thread is inside of, or that waits, in another
        thread, for such a call.
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
        """Accept any demand: this process is taken to have exactly the resources that a call asks
        for.
        """

    def cancel(
        self,
        tasks: Iterable[int],
        number: int = signal.SIGTERM,
        calls: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """End these tasks and calls if they run now. A call cannot be interrupted: its request is
        handled when the call that runs has ended.
        """
        tasks, calls = tuple(tasks), tuple(calls)
        for run in {self._runs.get(task) for task in (*tasks, *(task for task, _, _ in calls))}:
            if run is not None:
                run.requests.append(CancelRequested(tasks, number, calls))

    def recall(self, calls: Iterable[tuple[int, int, int]]) -> None:
        """Do nothing: no calls wait here."""

    def catch_up(self) -> None:
        """Do nothing: every request is carried out at once."""

    def release(self, name: bytes) -> None:
        """Do nothing: shared objects are not stored here."""

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        """Call `missing`: results are not stored for later references. `missing` sees to it that
        `supply` is called, now or later.
        """
        run = self._runs.get(task)
        if run is not None:
            name = call_words(run.function.name, UNNUMBERED, index, run.tasks[task].name)
            self._makers[reference] = run, name
        missing()

    def supply(self, reference: int, data: ResultData) -> None:
        """Store a result, let calls in this process find it by its reference, and wake calls that
        wait.
        """
        with self._arrived:
            self._makers.pop(reference, None)
            if reference not in self.results:
                self.results[reference] = data
                # Copied: the buffers may belong to an array that the caller changes later.
                payload = [bytes(buffer) for buffer in data.payload or ()]
                load = partial(pickling.load_result, payload, data.item)
                register_result(input_name(reference), load)
            self._arrived.notify_all()

    def release_references(self, references: Sequence[int]) -> None:
        for reference in references:
            if self.results.pop(reference, None) is not None:
                unregister(input_name(reference))

    def close(self, *, wait: bool = True) -> None:
        """Accept nothing more. Calls that still wait for results are refused."""
        self._closed = True
        with self._arrived:
            self._arrived.notify_all()
