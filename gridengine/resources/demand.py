"""`Demand`: the resources a call requests, and the factor its memory is scaled by on a retry."""

from __future__ import annotations

import copy

from gridengine.resources.base import ZERO, Resource, key_of
from gridengine.resources.estimates import replaced
from gridengine.resources.kinds import Memory
from gridengine.resources.units import to_bytes


class Demand:
    """What calls ask for, and what workers are asked for: calls of equal demands share workers.

    `resources` is what one call asks for. `factor` is by how much the memory that was asked for,
    here or in the scheduler's own options, is multiplied: more than 1 when a call is run again
    after it ran out of memory.

    `function`: the calls are of a function of this name, which only workers have that announce it;
    then nothing else is asked for.

    Demands are equal by what the `_repr` of their resources returns when they are made (`key`): to
    compare them afterwards runs no user's code.
    """

    # Not a dataclass, nor a struct: a local worker's process is started before those are imported.
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
        """Return the same with another factor."""
        other = copy.copy(self)
        other.factor = factor
        return other

    @property
    def request(self) -> Resource:
        """What one call asks for by now; `resources` itself when there is no memory in it."""
        return replaced(self.resources, Memory, lambda part: Memory(part.M * self.factor))

    @property
    def memory_limit(self) -> int:
        """The limit of one call in bytes, 0 when there is none."""
        memory = self.resources.get(Memory)
        return 0 if memory is None else int(to_bytes(memory.M) * self.factor)


ANY = Demand()
"""The demand of calls that request nothing."""

MOST_REMEMBERED = 1000
"""Of how many demands it is remembered what was found out about them."""


class RememberedDemands(set[Demand]):
    """Some demands that have something in common; forgets all of them when they are too many."""

    def add(self, demand: Demand) -> None:
        if len(self) >= MOST_REMEMBERED:
            self.clear()
        super().add(demand)
