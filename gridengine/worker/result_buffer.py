"""A runner's outcomes on their way to the agent: small values are joined, none waits for long."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from time import monotonic, sleep
from typing import Any, Protocol

from gridengine.call_context import process_resources
from gridengine.errors import UNNUMBERED, OutOfMemory, PicklingError
from gridengine.serialize import pickling
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.unpicklable import reason
from gridengine.wire.channel import Channel
from gridengine.wire.messages import RAISED, VALUES, Message, Result, Results

_HOLD_SECONDS = 0.01
"""How long an outcome may wait for others, and the time between two looks of the backstop thread:
together under 20 ms.
"""
_LOOP_SECONDS = 0.03
"""After this time the loop sends results itself. Normally the backstop thread has sent them before,
without holding up calls.
"""
_IDLE_LOOKS = 10
"""The backstop thread goes to sleep after this many consecutive looks outside a batch."""


class Form(Protocol):
    """An encoder of values and exceptions: `pickling`, or a codec."""

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
    """Collects outcomes and sends them to the agent.

    The loop that makes calls appends each return value to `values` and, after some calls, sets
    `ended` (monotonic seconds). That is all that a call costs.

    During a batch of several calls, a *backstop* thread sends the collected outcomes from time to
    time while the next calls run. Sending takes half a millisecond, because the woken receiver
    wants a processor. The thread polls, because waking it for each batch would cost more than a
    quick batch; it sleeps when there has been no batch for a while. If the thread does not get to
    run, the loop calls `flush` once `due` has passed. At each look it calls `on_look`, too.
    """

    def __init__(self, channel: Channel, on_look: Callable[[], object] = lambda: None) -> None:
        self.values: list[object] = []
        self.due = self.ended = 0.0
        self._due = 0.0
        """When the backstop thread sends: sooner than `due`, when the loop does."""
        self.form: Form = pickling
        """The encoder of values and exceptions, until the next run begins."""
        self._channel = channel
        self._on_look = on_look
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
        """Results that later runs of the same batch need, by run; empty until the result exists."""
        self.threads = 0
        """How many daemon threads this buffer has started."""
        self._in_batch = self._looking = False
        self._wanted = threading.Event()
        self._stuck = False
        """Whether values cannot be pickled: the loop, not the backstop thread, finds which."""
        os.register_at_fork(after_in_child=partial(setattr, self, "due", float("-inf")))

    def is_forked(self) -> bool:
        """Return whether user code forked this process from the runner, which alone may send."""
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
        """Begin a run whose first call has the index `start`.

        named: the label of the call with index 0. job: the name of the job, if it is one. measured:
        report the peak memory of this process. once: the loop must `flush` whenever it looks at the
        clock. apart: pickle each value on its own, so that any process can load it.
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
        """Add the pickled exception of call `index`, after the values of the calls before it.
        `status` is as in `Result`.
        """
        with self._lock:
            self._join_values()
            self._first = index
            self._add(1, status, payload, monotonic(), peak_memory)

    def end(self) -> None:
        """Pickle the remaining values while the status block still names their run, because
        pickling may end the process. From here on the backstop thread takes none of these values.
        """
        with self._lock:
            self._join_values()

    def flush(self) -> None:
        """Send all outcomes."""
        with self._lock:
            if self.values:
                self._join_values()
            self._send()

    def deliver(self, message: Message, payload: Payload = ()) -> None:
        """Send all outcomes, then this message."""
        with self._lock:
            self._join_values()
            self._send()
            self._channel.deliver(message, payload)

    def tell(self, message: Message, payload: Payload) -> None:
        """Send a message before all outcomes that are not sent yet; at once if nothing else is
        being sent. Any thread may call this, and so may code that runs while a value is pickled.
        """
        self._told.append((message, payload))
        if self._lock.acquire(timeout=_HOLD_SECONDS):  # else the lock's owner sends it soon
            try:
                self._send_told()
            finally:
                self._lock.release()

    def _send_told(self) -> None:
        while self._told:
            self._channel.deliver(*self._told.popleft())

    def begin_batch(self) -> None:
        """Let the backstop thread send outcomes until `end_batch`: none waits for a call's end."""
        if not self.threads:
            threading.Thread(target=self._watch, name="gridengine-results", daemon=True).start()
            self.threads = 1
        self._in_batch = True
        self.due = monotonic() + self._loop_seconds
        if not self._looking:
            self._wanted.set()

    def end_batch(self) -> None:
        """Stop the backstop thread's sending."""
        self._in_batch = False

    def _watch(self) -> None:
        while True:
            self._wanted.clear()
            self._looking = False
            # A batch that begins after this line sees `_looking` as False, and sets `_wanted`.
            if not self._in_batch:
                self._wanted.wait()
            self._looking = True
            fruitless = 0
            while fruitless < _IDLE_LOOKS:
                sleep(_HOLD_SECONDS)
                fruitless = 0 if self._in_batch else fruitless + 1
                self._on_look()
                with self._lock:
                    if (
                        self._in_batch
                        and not self._stuck
                        and monotonic() >= self._due
                        and (self.values or self._results)
                    ):
                        self._send_for_a_long_call()

    def _send_for_a_long_call(self) -> None:
        """Send the present values. The time since the end of the last of them belongs to the call
        in progress.
        """
        try:
            ended, began = self.ended, monotonic()
            if ended <= self._began:  # the loop is just about to set `ended`
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
            # Values cannot be pickled: leave them to the loop, which finds the one at fault.
            self._stuck = True
            self.due = 0.0

    def _join_values(self) -> None:
        """Pickle the waiting values as one result."""
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
        """Pickle each value on its own. A value that cannot be pickled becomes an exception of its
        call; the others are not affected. The time that they took together is divided among them.
        """
        values = self.values[:]
        del self.values[: len(values)]
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
                # A new error, without the traceback, which shows only this package.
                problem = (
                    type(error)(error.message, hint=error.hint)
                    if isinstance(error, OutOfMemory | PicklingError)
                    else PicklingError(
                        f"{what} (a {type(value).__qualname__}) cannot be pickled: {reason(error)}"
                    )
                )
                payload = self.form.dump_exception(problem, origin=error.__cause__)
                self._add(1, RAISED, payload, self._began + each)

    def _add(
        self, calls: int, status: int, payload: Payload, ended: float, peak_memory: int = 0
    ) -> None:
        """Add the outcome of the next `calls` calls, the last of which ended at this time."""
        if self._measured:
            peak_memory = max(peak_memory, process_resources.peak_memory())
        if self._run in self.passed_on and status == VALUES:
            # The call that gets the value may write to it, so copy its buffers.
            self.passed_on[self._run] = [payload[0], *map(bytearray, payload[1:])]
        start, stop, seconds = self._first, self._first + calls, max(0.0, ended - self._began)
        self._results.append(
            Result(
                run=self._run,
                start=start,
                stop=stop,
                status=status,
                seconds=seconds,
                buffers=len(payload),
                peak_memory=peak_memory,
            )
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
