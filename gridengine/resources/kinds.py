"""The kinds of resources, for requests and workers: `Cores(4) & Memory(8) & WTime("2:00:00")`. See
`base` for their common part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, NoReturn, Self

from gridengine.arguments import (
    Seconds,
    flag,
    format_seconds,
    parse_gigabytes,
    parse_seconds,
    text,
    to_bytes,
    to_gigabytes,
    whole,
)
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource, not_given

NONE_OF_A_KIND = "leave this kind out, or say ZERO, to ask for none"


class _Numbered(Resource):
    """Numbered or named things, each given to one task at a time, in order."""

    _named_by: ClassVar[tuple[type, ...]] = (int,)

    def __init__(self, N: int, listed: Sequence[Any] | None) -> None:
        count = whole("N", N, hint=NONE_OF_A_KIND)
        self._listed = listed is not None
        self._numbers: Sequence[Any] = range(count) if listed is None else tuple(listed)
        if listed is not None and (
            len(set(self._numbers)) != count
            or count != len(listed)
            or not all(isinstance(one, self._named_by) for one in listed)
        ):
            raise ConfigurationError(
                f"{type(self).__name__}({count}, {listed!r}): not {count} different numbers"
            )
        self._used: set[Any] = set()

    def can_allocate(self, res: Any) -> bool:
        return type(res) is type(self) and len(res._numbers) <= len(self._numbers) - len(self._used)

    def allocate(self, res: Any) -> Resource:
        self._must_have(res)
        numbers = list(
            islice(
                (number for number in self._numbers if number not in self._used), len(res._numbers)
            )
        )
        self._used.update(numbers)
        return type(self)(len(numbers), numbers)

    def deallocate(self, res: Any) -> None:
        if type(res) is not type(self) or not self._used.issuperset(res._numbers):
            raise not_given(self, res)
        self._used.difference_update(res._numbers)

    def expression(self) -> str:
        listed = f", {list(self._numbers)}" if self._listed else ""
        return f"{type(self).__name__}({len(self._numbers)}{listed})"

    def usage(self) -> tuple[int, int]:
        return len(self._used), len(self._numbers)

    @property
    def given(self) -> list[Any] | None:
        """The numbers or names that were given, or that a holder was made with; None of a request
        that leaves them open.
        """
        return list(self._numbers) if self._listed else None


class Cores(_Numbered):
    """`N` cores of one machine. When given, `c` lists their numbers. When held, `c=` lists the
    cores that there are (default 0, 1, ...).
    """

    def __init__(self, N: int, c: Sequence[int] | None = None) -> None:
        super().__init__(N, c)
        self.N = len(self._numbers)

    @property
    def c(self) -> list[int]:
        """The numbers of the cores."""
        return list(self._numbers)


class GPUs(_Numbered):
    """`N` GPUs of one machine. When given, `g` lists their numbers or names. When held, `g=` lists
    the GPUs that there are (default 0, 1, ...).
    """

    _named_by = (int, str)

    def __init__(self, N: int, g: Sequence[int | str] | None = None) -> None:
        super().__init__(N, g)

    @property
    def g(self) -> list[int | str]:
        """The numbers or names of the GPUs."""
        return list(self._numbers)


class _Amount(Resource):
    """An amount of something, in whole units, so that giving back restores it exactly."""

    _units: int
    _used: int

    def can_allocate(self, res: Any) -> bool:
        return type(res) is type(self) and res._units <= self._units - self._used

    def allocate(self, res: Any) -> Resource:
        self._must_have(res)
        self._used += res._units
        return res  # type: ignore[no-any-return]

    def deallocate(self, res: Any) -> None:
        if type(res) is not type(self) or res._units > self._used:
            raise not_given(self, res)
        self._used -= res._units

    def usage(self) -> tuple[float, float]:
        return self._used, self._units


class Memory(_Amount):
    """`M` GB of memory (1 GB is 2**30 bytes), or a text such as `"4G"` or `"512M"`."""

    def __init__(self, M: float | str) -> None:
        self.M = parse_gigabytes("M", M)
        self._units, self._used = to_bytes(self.M), 0

    def expression(self) -> str:
        return f"{type(self).__name__}({self.M!r})"

    def usage(self) -> tuple[float, float]:
        return to_gigabytes(self._used), self.M


class Capacity(_Amount):
    """A limit on how many calls run at a time: a worker with `Capacity(10)` runs ten calls that
    each request `Capacity(1)`. A subclass counts whatever its name says.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = whole("count", count, hint=NONE_OF_A_KIND)
        self._units, self._used = self.count, 0

    def expression(self) -> str:
        return f"{type(self).__name__}({self.count})"


class _Shared(Resource):
    """A property that a holder has or lacks, and that it can give to any number of tasks."""

    def allocate(self, res: Any) -> Resource:
        self._must_have(res)
        return res  # type: ignore[no-any-return]

    def deallocate(self, res: Any) -> None:
        pass

    def usage(self) -> tuple[float, float]:
        return 0, 0


class Token(_Shared):
    """A label: a call that requests it runs on workers with a token of the same name, any number of
    calls at a time.
    """

    def __init__(self, name: str) -> None:
        self.name = text("name", name)

    @property
    def token(self) -> NoReturn:
        """The former name of `name`."""
        raise AttributeError(f"{self!r} has no attribute 'token'; it is name")

    def can_allocate(self, res: Any) -> bool:
        return type(res) is type(self) and bool(res.name == self.name)

    def expression(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class WTime(_Shared):
    """Walltime: a call is killed after `T`, and not begun on a worker that has less than `softT`
    left.

    Args:
        T: the hard limit: seconds, a text such as `"2h"` or `[d-]hh:mm:ss`, or a `timedelta`
            (default: none).
        softT: how long the call is expected to take (default `T`).
        group: a name for calls that take about equally long: the limits are estimated from the
            first of them (`docs/resources.md`).
        countdown: whether the time runs out, as a worker's walltime does. Then `left` is the time
            that is left at the latest `set_time`, counted from the first `set_time`.
    """

    granted_anyway = True

    def __init__(
        self,
        T: Seconds | None = None,
        *,
        softT: Seconds | None = None,
        group: str | None = None,
        countdown: bool = False,
    ) -> None:
        self.T = None if T is None else parse_seconds("T", T)
        self.softT = self.T if softT is None else parse_seconds("softT", softT)
        self.group = None if group is None else text("group", group)
        self.countdown = flag("countdown", countdown)
        if self.T is not None and self.softT is not None and self.softT > self.T:
            raise ConfigurationError(f"softT={softT!r} is longer than T={T!r}")
        self._began: float | None = None
        self._elapsed = 0.0

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return math.inf if self.T is None else max(0.0, self.T - self._elapsed)

    def set_time(self, now: float) -> None:
        if self.countdown:
            self._began = now if self._began is None else self._began
            self._elapsed = now - self._began

    def _held(self) -> Self:
        return type(self)(self.T, softT=self.softT, group=self.group, countdown=True)

    def can_allocate(self, res: Any) -> bool:
        return type(res) is type(self) and bool(res.softT is None or res.softT <= self.left)

    def expression(self) -> str:
        arguments = [] if self.T is None else [_time_repr(self.T)]
        if self.softT is not None and self.softT != self.T:
            arguments.append(f"softT={_time_repr(self.softT)}")
        arguments += [
            f"{name}={value!r}"
            for name, value in (("group", self.group), ("countdown", self.countdown))
            if value
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"


class Ranks(_Shared):
    """The processes of one parallel program, numbered from 0 by MPI. One call holds the cores of
    all ranks. `Cores` and `Memory` in the same request are those of each rank (default: one core).

    Args:
        ranks: how many.
        nodes: on how many nodes (default: on as few or many as the batch system finds).
    """

    granted_anyway = True

    def __init__(self, ranks: int, nodes: int | None = None) -> None:
        self.ranks = whole("ranks", ranks, hint=NONE_OF_A_KIND)
        self.nodes = None if nodes is None else whole("nodes", nodes, hint=NONE_OF_A_KIND)
        if self.nodes is not None and self.nodes > self.ranks:
            raise ConfigurationError(
                f"{self!r}: fewer ranks than nodes", hint="ask for a rank on each node at least"
            )

    def can_allocate(self, res: Any) -> bool:
        return type(res) is type(self) and bool(res.ranks <= self.ranks)

    def expression(self) -> str:
        nodes = "" if self.nodes is None else f", nodes={self.nodes}"
        return f"{type(self).__name__}({self.ranks}{nodes})"


def Nodes(nodes: int) -> Ranks:
    """Return `Ranks(nodes, nodes=nodes)`: a rank on each of this many nodes. `Cores` and `Memory`
    in the same request are those of each node.
    """
    return Ranks(whole("nodes", nodes, hint=NONE_OF_A_KIND), nodes)


def Node(N: int, M: float) -> Resource:
    """Return `Cores(N) & Memory(M)`."""
    return Cores(N) & Memory(M)


def _time_repr(seconds: float) -> str:
    return repr(format_seconds(seconds) if isinstance(seconds, int) and seconds >= 60 else seconds)
