"""Figures of calls: how many there are, how long they take, how much memory they use."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from gridengine.wire.messages import RunnerFigures
from gridengine.wire.records import record

QUICK_SECONDS = 1e-3
"""The durations of calls that take less are not noted: that would cost as much as the calls."""
_STEPS, _LEAST, _MOST = 4, -40, 96
"""Durations are counted in `_STEPS` steps for each power of two, from step `_LEAST` (a millisecond)
to step `_MOST` (half a year).
"""
_BOUNDS = [2.0 ** (step / _STEPS) for step in range(_LEAST, _MOST + 1)]
"""The upper bound of each step in seconds; the last step has all longer calls too."""


@record
class FunctionCounts:
    """Counts of the calls of functions of one name, since the dispatcher began.

    calls, seconds: how many calls were measured, and how long they took together.
    lasting: how many of them were not quick, by steps of duration.
    unsettled, running: how many are left, and how many of these workers have.
    peak_memory, asked_memory: the most that was seen and that was requested, in bytes.
    grown_memory: by how many bytes a process grew from call to call.
    """

    name: str = ""
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    unsettled: int = 0
    running: int = 0
    calls: int = 0
    seconds: float = 0.0
    peak_memory: int = 0
    asked_memory: int = 0
    grown_memory: int = 0
    numbered: int = 0
    """Calls of maps have numbers below this; 0 when none has a number."""
    lasting: list[int] | None = None

    def note_seconds(self, seconds: float, calls: int, peak_memory: int = 0) -> None:
        """Note how long calls took each, and their peak memory."""
        if self.lasting is None:
            self.lasting = [0] * len(_BOUNDS)
        self.lasting[bisect_left(_BOUNDS, seconds, hi=_MOST - _LEAST)] += calls
        if peak_memory > self.peak_memory:
            self.peak_memory = peak_memory

    @property
    def waiting(self) -> int:
        """How many calls no worker has."""
        return self.unsettled - self.running

    @property
    def mean_seconds(self) -> float | None:
        """How long a call took on average; None while none has ended."""
        return self.seconds / self.calls if self.calls else None

    @property
    def p95_seconds(self) -> float | None:
        """The duration that 95 % of the calls did not exceed, to a tenth; None if unknown."""
        if not self.calls:
            return None
        lasting, longest = self.lasting or [], QUICK_SECONDS
        left = 0.95 * self.calls - (self.calls - sum(lasting))
        for step, count in enumerate(lasting, _LEAST):
            if left <= 0:
                break
            left -= count
            longest = max(longest, 2.0 ** ((step - 0.5) / _STEPS))
        return longest

    @property
    def histogram(self) -> list[tuple[float, int]]:
        """(upper bound in seconds, calls) for calls that were not quick."""
        found = zip(_BOUNDS, self.lasting or (), strict=False)
        return [(bound, count) for bound, count in found if count]


class DescribedCall(Struct, frozen=True, kw_only=True):
    """The part of a row on a call that describes the call.

    history: how earlier attempts ended.
    arguments, place: the pickled calls of its task, if they are short, and the index of the call
        in them.
    parameters: the names of the function's positional parameters, as far as they are known.
    """

    history: Sequence[str] = ()
    arguments: bytes = b""
    place: int = 0
    form: int = 0
    parameters: Sequence[str] = ()


class FailureStatus(DescribedCall, frozen=True):
    """Calls that ended without a value.

    error, hint: the kind of error with its words, and the remedy, if the dispatcher knows them.
        Otherwise `exception` is the beginning of the pickled exception.
    seconds_ago: how long ago the calls ended, set when a watcher asks. seconds: how long their last
        attempt took.
    cancelled: whether somebody ended them.
    """

    id: str
    call: str
    function: str
    calls: int
    seconds_ago: float
    error: str = ""
    exception: bytes = b""
    host: str = ""
    job: str = ""
    log: str = ""
    seconds: float | None = None
    attempts: int = 0
    peak_memory: int = 0
    cancelled: bool = False
    hint: str = ""


MOST_SAMPLED = 2000


class EndedCall(Struct, frozen=True, gc=False):
    """Calls of a run that have ended: their function and worker, how long ago they ended, how long
    they took together, how many they were, and whether the only one of them failed. id, call: of
    the first of them, as in `RunStatus`. host, job, log: of the worker. The core keeps the time
    beside the record; `seconds_ago` is set when a watcher asks. died: how the process of the call
    ended in the call, and another took its place; empty if it did not.
    """

    function: str
    worker: str
    seconds_ago: float
    seconds: float
    calls: int = 1
    failed: bool = False
    id: str = ""
    call: str = ""
    host: str = ""
    job: str = ""
    log: str = ""
    died: str = ""


class CallSample:
    """An even sample of ended calls that were not quick, each with the time when it ended: every
    `every`-th call. When there are too many, half of them are dropped and `every` doubles.
    """

    __slots__ = ("calls", "every", "left_out")

    def __init__(self) -> None:
        self.every = 1
        self.left_out = 0
        self.calls: list[tuple[float, EndedCall]] = []

    def add(self, one: EndedCall, now: float) -> None:
        """Add a call that has just ended."""
        self.left_out = 0
        self.calls.append((now, one))
        if len(self.calls) >= MOST_SAMPLED:
            del self.calls[::2]
            self.every *= 2


CALLS = 5
"""This many calls of a process are compared with as many of its first calls."""
GROWN = 1.5
LEAST_BYTES = 50_000_000
"""Growth of a process by less than this is taken for noise."""


class Growth(Struct):
    """The memory of a process over its measured calls: the most in the first calls, and the memory
    in each of the last ones. `call` is the last call.
    """

    call: tuple[int, int] = (0, 0)
    calls: int = 0
    first: int = 0
    last: deque[int] = field(default_factory=lambda: deque(maxlen=CALLS))

    def note(self, call: tuple[int, int], memory: int) -> int:
        """Note a measurement of a call. Return by how many bytes all of the last calls exceed the
        first ones; 0 if that is too little to be a leak.
        """
        if call == self.call:  # the last measurement in a call says most about what it leaves
            self.last[-1] = memory
        else:
            self.call, self.calls = call, self.calls + 1
            self.last.append(memory)
        if self.calls <= CALLS:
            self.first = max(self.first, memory)
        least = min(self.last)
        enough = self.calls >= 2 * CALLS and least > GROWN * self.first
        grown = least - self.first
        return grown if enough and grown > LEAST_BYTES else 0


def of_processes(
    known: Mapping[int, Growth], runners: Iterable[RunnerFigures]
) -> dict[int, Growth]:
    """Return the growth of the processes that a worker has now, by process id."""
    return {one.pid: known.get(one.pid) or Growth() for one in runners}
