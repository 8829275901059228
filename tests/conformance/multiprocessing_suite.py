"""CPython's `_test_multiprocessing.py`, executed here, with `Job` in the place of `Process` and our
`Pool` in that of its own.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.pool

import gridengine
from tests.conformance.cpython import MULTIPROCESSING, Substitute, run_source
from tests.conformance.standard import Pool, Process, from_manager

ours = {"Process": Process, "Pool": Pool, "active_children": gridengine.active_children}
tracebacks = Substitute(multiprocessing.pool, RemoteTraceback=gridengine.RemoteTraceback)
run_source(
    MULTIPROCESSING,
    globals(),
    {"multiprocessing": Substitute(multiprocessing, pool=tracebacks, **ours)},
)

for _name in (
    "Queue",
    "JoinableQueue",
    "Lock",
    "RLock",
    "Semaphore",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "Barrier",
):
    # A job inherits nothing; a manager's are for processes that do not.
    setattr(globals()["ProcessesMixin"], _name, staticmethod(from_manager(_name)))
