"""What the workers of one kind of calls are asked for: their resources, times a factor for more
memory.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from gridengine.resources.base import ZERO, Resource, ResourceKey, key_of
from gridengine.resources.estimates import scaled
from gridengine.resources.kinds import Memory
from gridengine.resources.units import to_bytes


@dataclass(frozen=True, slots=True)
class Demand:
    """What calls ask for, and what workers are asked for: calls of equal demands share workers.

    `resources` is what one call asks for. `factor` is by how much the memory that was asked for,
    here or in the scheduler's own words, is to be multiplied: more than 1 when a call is run again
    after it ran out of memory.

    Demands are equal by what their resources say when the first of them is made (`key`): to compare
    them afterwards is no user's code.
    """

    resources: Resource = field(default=ZERO, compare=False)
    factor: float = 1.0
    key: ResourceKey = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_of(self.resources))

    def with_factor(self, factor: float) -> Demand:
        """Return the same with another factor."""
        other = copy.copy(self)
        object.__setattr__(other, "factor", factor)
        return other

    @property
    def request(self) -> Resource:
        """What one call asks for by now."""
        return scaled(self.resources, memory=self.factor)

    @property
    def memory_limit(self) -> int:
        """The limit of one call in bytes, 0 when there is none."""
        memory = self.resources.get(Memory)
        return 0 if memory is None else int(to_bytes(memory.M) * self.factor)


ANY = Demand()
"""No demand."""
