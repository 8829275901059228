"""What calls ask for and workers hold: `Cores(4) & Memory(8) & WTime("2:00:00")`.

In: what users write. Out: requests, which schedulers translate into their own options, and holders,
from which the core assigns. Read `base` first, then `kinds`. `units` checks what users give,
`estimates` changes requests by what earlier runs took, `demand` is what calls of one kind ask of
workers, `packing` decides which task goes to which holder.
"""

from __future__ import annotations

from gridengine.resources.base import ZERO, Combined, Resource
from gridengine.resources.kinds import Capacity, Cores, GPUs, Memory, Node, Token, WTime

__all__ = [
    "ZERO",
    "Capacity",
    "Combined",
    "Cores",
    "GPUs",
    "Memory",
    "Node",
    "Resource",
    "Token",
    "WTime",
]
