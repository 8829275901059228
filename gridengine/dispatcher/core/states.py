"""The states of calls and of workers, and which may follow which: two literal tables."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from typing import Literal, TypeAlias

CallState: TypeAlias = Literal["waiting", "missing", "assigned", "settled"]
"""The state of one call. It is not stored: the place of a call is its state, and a million calls
that wait need no field for it. `Story` stores it while checks are on.

waiting: in a queue, in a span or a block. missing: in no queue, until results that it needs are
there, or until the worker that has them has room. assigned: a worker has it, in a run. settled: its
outcome has been told.
"""
CALL_MOVES: Mapping[CallState, Set[CallState]] = {
    # A call begins here.
    "waiting": {
        "assigned",  # a batch with it is sent to a worker
        "missing",  # it needs results that are not there, or are elsewhere
        "settled",  # cancelled, recalled, or no worker can be had
    },
    "missing": {
        "waiting",  # the last result is there
        "assigned",  # in one batch with the call that makes its input, behind it
        "settled",  # cancelled, recalled, or an input has failed
    },
    "assigned": {
        "assigned",  # the worker of an earlier dispatcher is back, and goes on with it
        "waiting",  # given back, lost, or to be tried again
        "missing",  # given back, and its input was not made there
        "settled",  # answered, failed for good, cancelled, or recalled
    },
    "settled": set(),
}


class Phase(enum.Enum):
    """The state of a worker that has connected. Whether it is given calls depends on more: see the
    fields `draining`, `withheld`, `floor` and `taken` of `Worker`.

    READY: it is heard. SILENT: it has missed three beats, or its job is suspended. STOPPING: it was
    told to leave, or has said that it does. GONE: it is forgotten, its calls are back in their
    queues or settled.
    """

    READY = "ready"
    SILENT = "silent"
    STOPPING = "stopping"
    GONE = "gone"


READY, SILENT = Phase.READY, Phase.SILENT
"""Looking up a member of an enumeration takes longer than comparing it, and both are done for each
message and, each tick, for each worker.
"""

NEXT_PHASES: Mapping[Phase, Set[Phase]] = {
    Phase.READY: {Phase.SILENT, Phase.STOPPING, Phase.GONE},
    Phase.SILENT: {Phase.READY, Phase.STOPPING, Phase.GONE},
    Phase.STOPPING: {Phase.GONE},
    Phase.GONE: set(),
}
