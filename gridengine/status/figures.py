"""Figures of calls: how many there are, how long they take, how much memory they use."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gridengine.wire.messages import RunnerFigures
from gridengine.wire.records import record

QUICK_SECONDS = 1e-3
"""Of calls that take less it is not noted how long each took, which would cost as much as they."""
_STEPS, _LEAST, _MOST = 4, -40, 96
"""Durations are told apart by so many steps for each power of two, of which these are the first and
the last: from a millisecond to half a year.
"""
_BOUNDS = [2.0 ** (step / _STEPS) for step in range(_LEAST, _MOST + 1)]
"""Up to how many seconds each of them is; the last is of all that take longer, too."""


@record
class FunctionCounts:
    """What became of the calls of functions of one name since the dispatcher began.

    `calls` were measured and took `seconds`; `lasting` counts, by steps of duration, those that
    were not quick. `unsettled` ones are left, `running` ones at workers. `peak_memory` was seen at
    most, `asked_memory` asked for at most, in bytes; by `grown_memory` bytes a process grew from
    call to call.
    """

    name: str = ""
    done: int = 0
    failed: int = 0
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

    def histogram(self) -> list[tuple[float, int]]:
        """Return (upper bound in seconds, calls) for calls that were not quick."""
        found = zip(_BOUNDS, self.lasting or (), strict=False)
        return [(bound, count) for bound, count in found if count]

    def quantile(self, part: float) -> float | None:
        """Return the duration that this part of the calls took at most, to a tenth; None if
        unknown.
        """
        if not self.calls:
            return None
        lasting, longest = self.lasting or [], QUICK_SECONDS
        left = part * self.calls - (self.calls - sum(lasting))
        for step, count in enumerate(lasting, _LEAST):
            if left <= 0:
                break
            left -= count
            longest = max(longest, 2.0 ** ((step - 0.5) / _STEPS))
        return longest


MOST_SAMPLED = 2000


class EndedCall(Struct, frozen=True, gc=False):
    """Calls of a run that have ended: the id and words of the first (as in `RunStatus`), where they
    ran, when they ended, and how long they took together. `failed`: the attempt of the only one
    failed.
    """

    id: str
    call: str
    function: str
    host: str
    job: str
    pid: int
    log: str
    ended: float
    seconds: float
    calls: int
    failed: bool


class CallSample:
    """An even sample of ended calls that were not quick: each `every`-th, a number that doubles
    when there are too many.
    """

    __slots__ = ("calls", "every", "left_out")

    def __init__(self) -> None:
        self.every = 1
        self.left_out = 0
        self.calls: list[EndedCall] = []

    def add(self, one: EndedCall) -> None:
        """Keep this one."""
        self.left_out = 0
        self.calls.append(one)
        if len(self.calls) >= MOST_SAMPLED:
            del self.calls[::2]
            self.every *= 2


CALLS = 5
"""So many calls of a process are compared with as many before."""
GROWN = 1.5
LEAST_BYTES = 50_000_000
"""By how much a process's memory must have grown to be told of: what is less is in the noise."""


class Growth(Struct):
    """The memory of a process over its measured calls: the most in the first ones, and each of the
    last ones. `call` is the last of these.
    """

    call: tuple[int, int] = (0, 0)
    calls: int = 0
    first: int = 0
    last: deque[int] = field(default_factory=lambda: deque(maxlen=CALLS))

    def note(self, call: tuple[int, int], memory: int) -> int:
        """Note a measurement of a call. Return by how many bytes all of the last calls exceed the
        first ones, or 0 if that is no leak.
        """
        if call == self.call:  # the last that is measured of a call says most of what it leaves
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
