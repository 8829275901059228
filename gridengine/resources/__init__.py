"""Resources, which calls request and workers have, such as `Cores(4) & Memory(8) &
WTime("2:00:00")`.

Users write requests. Schedulers translate them into options of the batch system. The core assigns
calls to holders, which keep account of what is free.

    request (a user's) -> Demand -> queue -> Packer.place -> Placed: a holder, and resources
                                                ^ holders come (open) and go (shut)

Read `base` first, then `kinds`. `demand` is the request of a group of calls, with limits that are
estimated from earlier calls, and `packing` decides which task goes to which holder.

The packer has one state machine for each holder: open, draining for one queue, or shut. The packer
knows about resources alone. It asks (`admits`) whether a task may go to a holder in other respects.
Keep in step: `_Holder.drains_for` with `_Queue.drained`, and `_Queue.listed` with the heap
`candidates`.

Rejected:

- A separate class for the holder of each kind. A user's own kind would then need two classes. One
  class has three roles: requested, held and given. Its arguments never change, and it is equal by
  kind and `expression`; a holder is a copy with an account of its own.
- Running a kind's code for calls that do not request it. The code may be a user's and raise. So a
  holder's account is kept kind by kind, and requests are compared by the text that `expression`
  returned once. The price: the packer chooses the holder to drain by a load that counts only
  requested kinds.
- A question for each waiting task. Tasks with equal requests wait in one queue, and only its head
  is tried; each queue remembers which holders may have room. So an ended task costs one question
  for each distinct request. A holder that drains is closed to tasks that came later, never to
  earlier ones: so nobody starves.
- Pinning every call. A call that does not say how many cores it needs is booked with one core but
  not bound to it, so that a laptop's calls are no slower than those of `multiprocessing`, and
  requests for memory alone do not run a hundred at a time on two cores.
"""

from __future__ import annotations

from gridengine.resources.base import ZERO, Combined, Resource
from gridengine.resources.kinds import (
    Capacity,
    Cores,
    GPUs,
    Memory,
    Node,
    Nodes,
    Ranks,
    Token,
    WTime,
)

__all__ = [
    "ZERO",
    "Capacity",
    "Combined",
    "Cores",
    "GPUs",
    "Memory",
    "Node",
    "Nodes",
    "Ranks",
    "Resource",
    "Token",
    "WTime",
]
