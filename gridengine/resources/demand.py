"""The resources that a call requests (`Demand`), and limits estimated from similar calls.

Demands also travel as plain data: a process that runs calls requests workers in that form without
unpickling anything.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import shlex
from collections.abc import Callable
from typing import Any

from gridengine.arguments import MOST, to_bytes
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.base import ZERO, R, Resource, key_of
from gridengine.resources.kinds import Capacity, Cores, GPUs, Memory, Ranks, Token, WTime

GROUP_RUNS = 8
GROUP_SECONDS = 10.0


def replaced(request: Resource, kind: type[R], new: Callable[[R], Resource]) -> Resource:
    """Return the request with its part of this kind replaced; itself if it has no such part."""
    old = request.get(kind)
    if old is None:
        return request
    return functools.reduce(
        operator.and_, (new(old) if part is old else part for part in request), ZERO
    )


def cores_of_rank(given: Resource) -> int:
    """Return how many cores each rank has of resources that were given: numbered cores are those of
    all ranks, on one node; others are of each rank. 0 if there are no ranks.
    """
    ranks, cores = given.get(Ranks), given.get(Cores)
    if ranks is None:
        return 0
    if cores is None:
        return 1
    return cores.N if cores.given is None else cores.N // ranks.ranks


def on_one_node(request: Resource, worker: str = "a worker that calls share") -> Resource:
    """Return the resources that a request wants of one node: with ranks, those of all ranks.

    Raises:
        ConfigurationError: the request is for several nodes, and `worker` is on one.
    """
    ranks = request.get(Ranks)
    if ranks is None:
        return request
    if ranks.nodes not in (None, 1):
        raise ConfigurationError(
            f"{safe_repr(request)} asks for {ranks.nodes} nodes, and {worker} is on one",
            hint="leave out the number of nodes, as in Ranks(4), to have all ranks on one node; "
            "SlurmScheduler starts calls on several",
        )
    count = ranks.ranks
    of_all = replaced(request, Memory, lambda part: Memory(part.M * count))
    if request.get(Cores) is None:
        return of_all & Cores(count)
    return replaced(of_all, Cores, lambda part: Cores(part.N * count))


class GroupTimes:
    """The limits of groups of similar tasks (`WTime(group="fold")`), estimated from their first 8
    runs of over 10 s.

    T is the mean plus 5 sample standard deviations, softT the mean plus 2. Until then only the
    request's own limits hold.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def record(self, group: str, seconds: float) -> None:
        """Record how long a completed run of the group took."""
        known = self._seconds.setdefault(group, [])
        if seconds > GROUP_SECONDS and len(known) < GROUP_RUNS:
            known.append(seconds)

    def limits(self, group: str) -> tuple[float, float] | None:
        """Return T and softT in seconds; None while they are unknown."""
        known = self._seconds.get(group, [])
        if len(known) < GROUP_RUNS:
            return None
        mean = math.fsum(known) / GROUP_RUNS
        deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in known) / (GROUP_RUNS - 1))
        return mean + 5 * deviation, mean + 2 * deviation

    def limited(self, request: Resource) -> Resource:
        """Return the request with its group's limits, if shorter; itself while they are unknown."""
        return replaced(request, WTime, self._limited)

    def _limited(self, time: WTime) -> WTime:
        limits = None if time.group is None else self.limits(time.group)
        if limits is None:
            return time
        hard, soft = (
            min(limit, MOST if own is None else own)
            for limit, own in zip(limits, (time.T, time.softT), strict=True)
        )
        return WTime(hard, softT=min(soft, hard), group=time.group)


class Demand:
    """The resources that a group of calls requests, and that workers are launched with. Calls of
    equal demands share workers.

    `resources` is the request of one call. The requested memory, here or in the scheduler's own
    options, is multiplied by `factor`: more than 1 when a call is run again after it ran out of
    memory.

    With a `function`, the calls are of a function of this name, which only workers that announce it
    have; then nothing else is requested.

    Demands compare by `key`, the `expression` of their resources from when they were made: later
    comparisons run no user's code.
    """

    # No dataclass and no struct: a local worker's process starts before those are imported.
    __slots__ = ("factor", "function", "key", "resources")

    def __init__(
        self, resources: Resource = ZERO, factor: float = 1.0, *, function: str = ""
    ) -> None:
        self.resources = resources
        self.factor = factor
        self.function = function
        self.key = (function, key_of(resources)) if function else key_of(resources)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Demand):
            return NotImplemented
        return self.factor == other.factor and self.key == other.key

    def __hash__(self) -> int:
        return hash((self.factor, self.key))

    def __repr__(self) -> str:
        return f"Demand({self.resources!r}, factor={self.factor!r})"

    def with_factor(self, factor: float) -> Demand:
        """Return the same demand with another factor."""
        other = copy.copy(self)
        other.factor = factor
        return other

    @property
    def request(self) -> Resource:
        """The present request of one call; `resources` itself when it has no memory."""
        return replaced(self.resources, Memory, lambda part: Memory(part.M * self.factor))

    @property
    def memory_limit(self) -> int:
        """The memory limit of one call in bytes, 0 when there is none."""
        memory = self.resources.get(Memory)
        return 0 if memory is None else int(to_bytes(memory.M) * self.factor)


ANY = Demand()
"""The demand of calls that request nothing."""

MOST_REMEMBERED = 1000
"""About how many demands facts are remembered."""


class RememberedDemands(set[Demand]):
    """Demands about which something is known. Forgets all when there are too many."""

    def add(self, demand: Demand) -> None:
        if len(self) >= MOST_REMEMBERED:
            self.clear()
        super().add(demand)


_ARGUMENTS: dict[type[Resource], Callable[[Any], list[Any]]] = {
    Cores: lambda part: [part.N, part.given],
    GPUs: lambda part: [len(part.g), part.given],
    Memory: lambda part: [part.M],
    Capacity: lambda part: [part.count],
    Ranks: lambda part: [part.ranks, part.nodes],
    Token: lambda part: [part.name],
    WTime: lambda part: [part.T, part.softT, part.group, part.countdown],
}
_MAKERS: dict[str, Callable[..., Resource]] = {
    **{kind.__name__: kind for kind in _ARGUMENTS},
    WTime.__name__: lambda time, soft, group, countdown: WTime(
        time, softT=soft, group=group, countdown=countdown
    ),
}


NAME = "NAME"
"""Stands for a dispatcher's name."""
_OPTIONS: dict[type[Resource], Callable[[Any], str]] = {
    Cores: lambda part: f"--cores {part.N}",
    Memory: lambda part: f"--memory {part.M:.15g}",
    GPUs: lambda part: f"--gpus {len(part.g)}",
    Token: lambda part: f"--token {shlex.quote(part.name)}",
    WTime: lambda part: "",
    Ranks: lambda part: "",
}


def worker_command(request: Resource) -> str:
    """Return the command that starts a worker with these resources, for the dispatcher `NAME`;
    empty when the command has no option for one of them. Such a worker stays, so a walltime needs
    no option.
    """
    request = on_one_node(request)
    if any(type(part) not in _OPTIONS for part in request):
        return ""
    words = (_OPTIONS[type(part)](part) for part in request)
    return " ".join([f"gridengine worker {NAME}", *filter(None, words)])


def encode_demand(demand: Demand) -> tuple[list[tuple[str, list[Any]]], float]:
    """Return a demand as plain data: the name and arguments of each kind, and the factor.

    Raises:
        ConfigurationError: one of the kinds is a user's own.
    """
    parts = []
    for part in demand.resources:
        arguments = _ARGUMENTS.get(type(part))
        if arguments is None:
            raise ConfigurationError(
                f"a call cannot request {safe_repr(part)} for its nested calls: "
                f"{type(part).__qualname__} is a kind of your own",
                hint="request it where the outermost calls are made, or make the nested calls with "
                "a scheduler= of their own",
            )
        parts.append((type(part).__name__, arguments(part)))
    return parts, demand.factor


def decode_demand(parts: list[tuple[str, list[Any]]], factor: float) -> Demand:
    """Return the demand that `encode_demand` encoded.

    Raises:
        TypeError, ValueError, LookupError: the data is not an encoded demand.
    """
    resources = (_MAKERS[name](*arguments) for name, arguments in parts)
    return Demand(functools.reduce(operator.and_, resources, ZERO), factor)
