"""What is measured, what is wanted of it, and what came out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.peers.base import Peer

Measured = dict[str, float]
"""What one measurement gives: a value for each column's key."""
Medians = Mapping[str, float]
"""A peer's name, or that of a row and a peer (`grid-engine-first/gridengine`), to the median of a
column.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One kind of figure; less is better. `factor` is what it is multiplied by to be shown in
    `unit`.

    `want` says what we want of our own, and `limit` works it out of what the peers took; it raises
    KeyError where one of them is missing. `scaled`: the figure grows with the number of calls, and
    one that was taken with fewer is multiplied.
    """

    key: str
    title: str
    unit: str
    factor: float = 1.0
    want: str = ""
    limit: Callable[[Medians], float] | None = None
    scaled: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One measure. `measure(peer, calls)` is called in a process of its own that has made the peer.

    warm: with how many calls it is called before (of 100 and more a tenth of those measured at
        most), and its answer dropped; 0: a few calls that need NumPy and little else instead.
    first: `measure` is not used: what is taken is the time from the interpreter's start to the
        results of so many calls.
    sampled: the memory of all processes is looked at, in runs that are not timed, and stands in the
        column `pss`.
    on: where it runs: here, or as a plain user on a batch system, `grid-engine` or `slurm`.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    calls: int
    peers: tuple[str, ...]
    measure: Callable[[Peer, int], Measured] | None = None
    warm: int = 0
    first: bool = False
    sampled: bool = False
    on: str = "here"
    plotted: bool = False
    remark: str = ""


@dataclass
class Outcome:
    """What came of one peer in one row: its figures, or why there are none; and the seconds that
    its last turn took.
    """

    row: Row
    peer: str
    calls: int = 1
    figures: list[Measured] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0

    def values(self, column: Column) -> list[float]:
        """Return what was measured in this column, scaled up where fewer calls were made."""
        factor = self.row.calls / self.calls if column.scaled else 1
        return [
            measured[column.key] * factor for measured in self.figures if column.key in measured
        ]

    def median(self, column: Column) -> float | None:
        values = self.values(column)
        return statistics.median(values) if values else None


@dataclass
class Table:
    """A row's outcomes."""

    row: Row
    outcomes: list[Outcome]

    @cached_property
    def sorted(self) -> list[Outcome]:
        """Those with figures, the best first, then those without."""
        column = self.row.columns[-1 if self.row.plotted else 0]
        return sorted(
            self.outcomes,
            key=lambda outcome: (not outcome.figures, outcome.median(column) or float("inf")),
        )

    def medians(self, column: Column) -> dict[str, float]:
        pairs = ((outcome.peer, outcome.median(column)) for outcome in self.outcomes)
        return {peer: median for peer, median in pairs if median is not None}


def shown(value: float, column: Column) -> str:
    """Return a figure as text with three digits that count, without its unit."""
    value *= column.factor
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 0.001 else f"{value:.2g}"
