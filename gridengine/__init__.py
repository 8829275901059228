"""Map a Python function over arguments on this machine's processes today and, unchanged, on a batch
cluster tomorrow.

    import gridengine
    squares = gridengine.map(lambda x: x * x, range(1000))

The names below are all there is to know. Those that need sockets are imported at first use, so that
`import gridengine` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gridengine._version import __version__
from gridengine.errors import (
    CallError,
    Cancelled,
    ClusterError,
    ConfigurationError,
    GridEngineError,
    JobDeleted,
    OutOfMemory,
    PicklingError,
    ProtocolError,
    RemoteTraceback,
    SchedulerUnavailable,
    SubmissionRefused,
    TimeoutError,
    VersionMismatch,
    WorkerCrashed,
    WorkerLost,
    WorkerNotStarted,
)

if TYPE_CHECKING:
    from gridengine import resources, schedulers
    from gridengine.api.executor import Executor
    from gridengine.api.job import Job, active_children
    from gridengine.api.job_dispatcher import JobDispatcher
    from gridengine.api.map import imap, imap_unordered, map, partial, starmap
    from gridengine.api.pool import Pool
    from gridengine.api.share import share
    from gridengine.dispatcher.core.tasks import Attempt
    from gridengine.resources.base import ZERO, Resource
    from gridengine.resources.kinds import Capacity, Cores, GPUs, Memory, Node, Token, WTime
    from gridengine.schedulers import (
        GridEngineScheduler,
        InlineScheduler,
        ProcessScheduler,
        SlurmScheduler,
        best_available,
    )
    from gridengine.serialize.shared_objects import Shared
    from gridengine.worker.call_context import GVAR, current_job

__all__ = [
    "GVAR",
    "ZERO",
    "Attempt",
    "CallError",
    "Cancelled",
    "Capacity",
    "ClusterError",
    "ConfigurationError",
    "Cores",
    "Executor",
    "GPUs",
    "GridEngineError",
    "GridEngineScheduler",
    "InlineScheduler",
    "Job",
    "JobDeleted",
    "JobDispatcher",
    "Memory",
    "Node",
    "OutOfMemory",
    "PicklingError",
    "Pool",
    "ProcessScheduler",
    "ProtocolError",
    "RemoteTraceback",
    "Resource",
    "SchedulerUnavailable",
    "Shared",
    "SlurmScheduler",
    "SubmissionRefused",
    "TimeoutError",
    "Token",
    "VersionMismatch",
    "WTime",
    "WorkerCrashed",
    "WorkerLost",
    "WorkerNotStarted",
    "__version__",
    "active_children",
    "best_available",
    "current_job",
    "imap",
    "imap_unordered",
    "map",
    "partial",
    "resources",
    "schedulers",
    "share",
    "starmap",
]

_HOMES = {
    **dict.fromkeys(("imap", "imap_unordered", "map", "partial", "starmap"), "gridengine.api.map"),
    **dict.fromkeys(
        (
            "GridEngineScheduler",
            "InlineScheduler",
            "ProcessScheduler",
            "SlurmScheduler",
            "best_available",
        ),
        "gridengine.schedulers",
    ),
    **dict.fromkeys(
        ("Capacity", "Cores", "GPUs", "Memory", "Node", "Resource", "Token", "WTime", "ZERO"),
        "gridengine.resources",
    ),
    **dict.fromkeys(("GVAR", "current_job"), "gridengine.worker.call_context"),
    "Attempt": "gridengine.dispatcher.core.events",
    "Executor": "gridengine.api.executor",
    **dict.fromkeys(("Job", "active_children"), "gridengine.api.job"),
    "JobDispatcher": "gridengine.api.job_dispatcher",
    "Pool": "gridengine.api.pool",
    "Shared": "gridengine.serialize.shared_objects",
    "share": "gridengine.api.share",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, and keep it."""
    if name in ("resources", "schedulers"):
        return importlib.import_module(f"gridengine.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
