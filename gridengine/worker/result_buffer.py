"""What a runner has to report, in order: values joined while they are small and many, and never
held back for long.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from time import monotonic, sleep
from typing import Any, Protocol

from gridengine.errors import UNNUMBERED, PicklingError
from gridengine.serialize import pickling
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.unpicklable import reason
from gridengine.wire.channel import Channel
from gridengine.wire.messages import RAISED, VALUES, Message, Result, Results
from gridengine.worker import memory_limit

_HOLD_SECONDS = 0.01
"""How long the outcome of an ended call may wait for others, and the time between two looks of the
backstop: together under 20 ms.
"""
_LOOP_SECONDS = 0.03
"""After how long the loop sends what the backstop, which needs not keep calls waiting for it, has
not.
"""
_IDLE_LOOKS = 10
"""After how many looks in a row that found no batch the backstop goes to sleep."""


class Form(Protocol):
    """What makes bytes of values and exceptions: `pickling`, or a codec."""

    def dump_values(
        self,
        values: Sequence[Any],
        *,
        describe: Callable[[int], str] = ...,
        whole_classes: bool = False,
    ) -> list[Buffer]: ...
    def dump_exception(
        self, error: BaseException, arguments: str = "", *, origin: BaseException | None = None
    ) -> list[Buffer]: ...


class ResultBuffer:
    """Outcomes on their way to the agent.

    The loop that makes calls appends to `values` what they return and, after some, notes when that
    was (`ended`, monotonic seconds): that is all that a call costs. In batches of several calls a
    thread, the backstop, sends what there is, from time to time, while the next calls are made: to
    send takes half a millisecond, for whoever is woken wants a processor. It looks, rather than
    being told of each batch, since to wake it costs more than quick batches do; it sleeps when
    there has been none for a while. Where it does not get to it, the loop calls `flush` when `due`
    has come.
    """

    def __init__(self, channel: Channel) -> None:
        self.values: list[object] = []
        self.due = self.ended = 0.0
        self._due = 0.0
        self.form: Form = pickling
        """What makes bytes of values and exceptions; until the next run begins."""
        self._channel = channel
        self._lock = threading.Lock()
        self._results: list[Result] = []
        self._told: deque[tuple[Message, Payload]] = deque()
        self._buffers: list[Payload] = []
        self._run = self._first = self._named = 0
        self._job = ""
        self._measured = self._apart = False
        self._began = 0.0
        self._loop_seconds = _LOOP_SECONDS
        self._pid = os.getpid()
        self.passed_on: dict[int, Payload] = {}
        """The results of runs that later ones of their batch need; empty until they are there."""
        self.threads = 0
        """How many threads it has started, daemons."""
        self._in_batch = self._looking = False
        self._wanted = threading.Event()
        self._stuck = False
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self.due = float("-inf")

    def is_forked(self) -> bool:
        """Return whether this is a process that user code has forked from the runner: only the
        runner may send.
        """
        return os.getpid() != self._pid

    def begin(
        self,
        run: int,
        start: int,
        *,
        named: int = 0,
        job: str = "",
        measured: bool = False,
        once: bool = False,
        apart: bool = False,
    ) -> None:
        """Note whose calls follow, and the index of the first.

        named: what people call the call with index 0. job: the name of the job that it is, if any.
        measured: whether to tell how much memory this process has had. once: have the loop `flush`
        whenever it looks. apart: whether each value is pickled on its own, for any process.
        """
        self._run, self._first, self._named, self._began = run, start, named, monotonic()
        self._job = job
        self.form = pickling
        self.ended = self._began
        self._measured, self._apart = measured, apart
        self._loop_seconds = 0.0 if once else _LOOP_SECONDS
        if once:
            self.due = 0.0

    def add_raised(
        self, index: int, payload: Payload, status: int = RAISED, peak_memory: int = 0
    ) -> None:
        """Add the pickled exception of call `index`, after the values of the calls before it;
        `status` is as that of `protocol.Result`.
        """
        with self._lock:
            self._join_values()
            self._first = index
            self._add(1, status, payload, monotonic(), peak_memory)

    def end(self) -> None:
        """Pickle what is left of these calls, while the status block still names them: that may end
        the process. From here on the backstop takes none of their values, either.
        """
        with self._lock:
            self._join_values()

    def flush(self) -> None:
        """Send all there is."""
        with self._lock:
            if self.values:
                self._join_values()
            self._send()

    def deliver(self, message: Message, payload: Payload = ()) -> None:
        """Send a message at once, after all there is."""
        with self._lock:
            self._join_values()
            self._send()
            self._channel.deliver(message, payload)

    def tell(self, message: Message, payload: Payload) -> None:
        """Send a message before all outcomes that are not sent yet, at once if nothing else is
        being sent. May be called by any thread, and by code that pickling a value runs.
        """
        self._told.append((message, payload))
        if self._lock.acquire(timeout=_HOLD_SECONDS):  # else whoever has it sends something soon
            try:
                self._send_told()
            finally:
                self._lock.release()

    def _send_told(self) -> None:
        while self._told:
            self._channel.deliver(*self._told.popleft())

    def begin_batch(self) -> None:
        """Until `end_batch` no outcome waits for the end of the call after it."""
        if not self.threads:
            threading.Thread(target=self._watch, name="gridengine-results", daemon=True).start()
            self.threads = 1
        self._in_batch = True
        self.due = monotonic() + self._loop_seconds
        if not self._looking:
            self._wanted.set()

    def end_batch(self) -> None:
        """Send no more by the backstop."""
        self._in_batch = False

    def _watch(self) -> None:
        while True:
            self._wanted.clear()
            self._looking = False
            if (
                not self._in_batch
            ):  # a batch that begins after this line sees that nobody is looking
                self._wanted.wait()
            self._looking = True
            fruitless = 0
            while fruitless < _IDLE_LOOKS:
                sleep(_HOLD_SECONDS)
                fruitless = 0 if self._in_batch else fruitless + 1
                with self._lock:
                    if (
                        self._in_batch
                        and not self._stuck
                        and monotonic() >= self._due
                        and (self.values or self._results)
                    ):
                        self._send_for_a_long_call()

    def _send_for_a_long_call(self) -> None:
        """Send the values that there are; the time from the end of the last of them on is that of
        the call which is being made.
        """
        try:
            ended, began = self.ended, monotonic()
            if ended <= self._began:  # the loop is just about to note it
                ended = began
            if values := self.values[:]:
                groups = [[value] for value in values] if self._apart else [values]
                dump = partial(self.form.dump_values, whole_classes=self._apart)
                payloads = list(map(dump, groups))
                del self.values[: len(values)]  # the loop may have appended more meanwhile
                each = (ended + monotonic() - began - self._began) / len(values)
                for group, payload in zip(groups, payloads, strict=True):
                    self._add(len(group), VALUES, payload, self._began + each * len(group))
                self._began = ended
            self._send()
        except BaseException:
            # values that do not pickle while user code runs are left to the loop, which names the
            # one at fault
            self._stuck = True
            self.due = 0.0

    def _join_values(self) -> None:
        """Pickle the values that wait as one result."""
        if not self.values:
            return
        if self._apart:
            self._join_one_by_one()
            return
        try:
            values = self.values[:]
            payload = self.form.dump_values(values)
            del self.values[: len(values)]
            self._add(len(values), VALUES, payload, monotonic())
        except BaseException:  # a value's own code may do anything
            self._join_one_by_one()

    def _join_one_by_one(self) -> None:
        """Find the values that cannot be pickled: each becomes an exception of its call, and the
        others are as good as ever. What they took together is shared among them.
        """
        values, self.values[:] = self.values[:], []
        each = (monotonic() - self._began) / len(values)
        for index, value in enumerate(values, self._first):
            number = "the call" if self._named == UNNUMBERED else f"call {self._named + index}"
            what = f"the result of {f'job {self._job}' if self._job else number}"
            try:
                payload = self.form.dump_values(
                    [value], describe=[what].__getitem__, whole_classes=self._apart
                )
                self._add(1, VALUES, payload, self._began + each)
            except BaseException as error:
                # Without its traceback, which is of this package alone.
                problem = (
                    PicklingError(error.message, hint=error.hint)
                    if isinstance(error, PicklingError)
                    else PicklingError(
                        f"{what} (a {type(value).__qualname__}) cannot be pickled: {reason(error)}"
                    )
                )
                payload = self.form.dump_exception(problem, origin=error.__cause__)
                self._add(1, RAISED, payload, self._began + each)

    def _add(
        self, calls: int, status: int, payload: Payload, ended: float, peak_memory: int = 0
    ) -> None:
        """Add the outcome of the next so many calls, the last of which ended then."""
        if self._measured:
            peak_memory = max(peak_memory, memory_limit.peak_memory())
        if self._run in self.passed_on and status == VALUES:
            # whoever gets it may write to it
            self.passed_on[self._run] = [payload[0], *map(bytearray, payload[1:])]
        start, stop, seconds = self._first, self._first + calls, max(0.0, ended - self._began)
        self._results.append(
            Result(self._run, start, stop, status, seconds, len(payload), peak_memory=peak_memory)
        )
        self._buffers.append(payload)
        self._first, self._began = stop, ended

    def _send(self) -> None:
        if self._told:
            self._send_told()
        results, payloads = self._results, self._buffers
        self._results, self._buffers = [], []
        now = monotonic()
        self._due, self.due = now + _HOLD_SECONDS, now + self._loop_seconds
        self._stuck = False
        if results:
            buffers = payloads[0] if len(payloads) == 1 else list(chain.from_iterable(payloads))
            self._channel.deliver(Results(results), buffers)
