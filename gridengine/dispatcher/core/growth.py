"""Whether processes that call a function have more and more memory, call by call: a leak."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gridengine.wire.messages import RunnerFigures

CALLS = 5
"""So many calls of a process are compared with as many before."""
GROWN = 1.5
LEAST_BYTES = 50_000_000
"""By how much a process's memory must have grown to be told of: what is less is in the noise."""


class Growth(Struct):
    """The memory of a process in the calls in which it was measured: the most of the first ones,
    and that of the last ones. `call` is the last of these.
    """

    call: tuple[int, int] = (0, 0)
    calls: int = 0
    first: int = 0
    last: deque[int] = field(default_factory=lambda: deque(maxlen=CALLS))

    def note(self, call: tuple[int, int], memory: int) -> int:
        """Note what was measured in a call; return how many bytes more than in the first calls all
        of the last ones had, 0 when that is no leak.
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
    """Return what is known of the processes that a worker has now, by their ids."""
    return {one.pid: known.get(one.pid) or Growth() for one in runners}
