"""`Demand`: the resources a call requests, and the factor its memory is scaled by on a retry."""

from __future__ import annotations

import copy

from gridengine.resources.base import ZERO, Resource, key_of
from gridengine.resources.estimates import replaced
from gridengine.resources.kinds import Memory
from gridengine.resources.units import to_bytes


class Demand:
    """The resources that a group of calls requests, and that workers are launched with. Calls of
    equal demands share workers.

    `resources` is the request of one call. The requested memory, here or in the scheduler's own
    options, is multiplied by `factor`: more than 1 when a call is run again after it ran out of
    memory.

    With a `function`, the calls are of a function of this name, which only workers that announce it
    have; then nothing else is requested.

    Demands compare by `key`, the `_repr` of their resources from when they were made: later
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
