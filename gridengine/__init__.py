"""Map a Python function over arguments on this machine's processes today and, unchanged, on a batch
cluster tomorrow.

    import gridengine
    squares = gridengine.map(lambda x: x * x, range(1000))

The names below are the whole public interface. All but the errors are imported at their first use,
so that `import gridengine` is quick.
"""
# ruff: noqa: I001 - isort would give each renaming import a statement of its own

from __future__ import annotations

import gc
import importlib
from gridengine._version import __version__ as __version__
from gridengine.errors import (
    ActorLost as ActorLost,
    CallError as CallError,
    ClusterError as ClusterError,
    ConfigurationError as ConfigurationError,
    DispatcherGone as DispatcherGone,
    GridEngineError as GridEngineError,
    JobDeleted as JobDeleted,
    JournalError as JournalError,
    NestingError as NestingError,
    OutOfMemory as OutOfMemory,
    Pending as Pending,
    PicklingError as PicklingError,
    ProtocolError as ProtocolError,
    RemoteTraceback as RemoteTraceback,
    SchedulerUnavailable as SchedulerUnavailable,
    SubmissionRefused as SubmissionRefused,
    TimeoutError as TimeoutError,
    VersionMismatch as VersionMismatch,
    WorkerCrashed as WorkerCrashed,
    WorkerLost as WorkerLost,
    WorkerNotStarted as WorkerNotStarted,
)

TYPE_CHECKING = False  # not that of `typing`, which takes as long to import as all else here
if TYPE_CHECKING:  # for type checkers; `_MODULES` says the same when it runs
    from gridengine import resources as resources, schedulers as schedulers
    from gridengine.api.actor import Actor as Actor
    from gridengine.api.async_programs import (
        WaitGroup as WaitGroup,
        exec1 as exec1,
        load_cache_or_exec1 as load_cache_or_exec1,
        open_waitgroup as open_waitgroup,
        run as run,
    )
    from gridengine.api.carry import Carrying as Carrying, carry as carry
    from gridengine.api.client import Client as Client
    from gridengine.api.dask_scheduler import dask_get as dask_get
    from gridengine.api.delayed import delayed as delayed, delayedval as delayedval, each as each
    from gridengine.api.executor import Executor as Executor
    from gridengine.api.job import Job as Job, active_children as active_children
    from gridengine.api.job_dispatcher import JobDispatcher as JobDispatcher
    from gridengine.api.local_dispatcher import LocalDispatcher as LocalDispatcher
    from gridengine.api.map import (
        aimap as aimap,
        imap as imap,
        imap_unordered as imap_unordered,
        map as map,
        partial as partial,
        starmap as starmap,
    )
    from gridengine.api.named_runs import run_named as run_named, runs as runs
    from gridengine.api.pool import Pool as Pool
    from gridengine.api.program import (
        LineProgram as LineProgram,
        Program as Program,
        ProgramFailed as ProgramFailed,
        run_program as run_program,
    )
    from gridengine.api.share import share as share
    from gridengine.api.watch import watch as watch
    from gridengine.status.rows import Status as Status
    from gridengine.wire.messages import Attempt as Attempt
    from gridengine.errors import Cancelled as Cancelled
    from gridengine.resources import (
        ZERO as ZERO,
        Capacity as Capacity,
        Cores as Cores,
        GPUs as GPUs,
        Memory as Memory,
        Node as Node,
        Nodes as Nodes,
        Ranks as Ranks,
        Resource as Resource,
        Token as Token,
        WTime as WTime,
    )
    from gridengine.schedulers.ranks import (
        RankAllocation as RankAllocation,
        allocation as allocation,
    )
    from gridengine.schedulers import (
        FluxScheduler as FluxScheduler,
        GridEngineScheduler as GridEngineScheduler,
        HTCondorScheduler as HTCondorScheduler,
        InlineScheduler as InlineScheduler,
        LSFScheduler as LSFScheduler,
        OARScheduler as OARScheduler,
        PBSScheduler as PBSScheduler,
        ProcessScheduler as ProcessScheduler,
        SlurmScheduler as SlurmScheduler,
        best_available as best_available,
        current_scheduler as current_scheduler,
    )
    from gridengine.serialize.shared_objects import Shared as Shared
    from gridengine.call_context.current_call import (
        GVAR as GVAR,
        Interrupted as Interrupted,
        current_job as current_job,
    )
    from gridengine.call_context.checkpoints import (
        MustStop as MustStop,
        checkpoint as checkpoint,
        save as save,
        saved as saved,
    )
    from gridengine.call_context.random_streams import rng as rng

_MODULES = {
    name: module
    for module, names in {
        "api.actor": "Actor",
        "api.async_programs": "WaitGroup exec1 load_cache_or_exec1 open_waitgroup run",
        "api.carry": "Carrying carry",
        "api.client": "Client",
        "api.dask_scheduler": "dask_get",
        "api.delayed": "delayed delayedval each",
        "api.executor": "Executor",
        "api.job": "Job active_children",
        "api.job_dispatcher": "JobDispatcher",
        "api.local_dispatcher": "LocalDispatcher",
        "api.map": "aimap imap imap_unordered map partial starmap",
        "api.named_runs": "run_named runs",
        "api.pool": "Pool",
        "api.program": "LineProgram Program ProgramFailed run_program",
        "api.share": "share",
        "api.watch": "watch",
        "status.rows": "Status",
        "wire.messages": "Attempt",
        "errors": "Cancelled",
        "resources": "ZERO Capacity Cores GPUs Memory Node Nodes Ranks Resource Token WTime",
        "schedulers": "FluxScheduler GridEngineScheduler HTCondorScheduler InlineScheduler "
        "LSFScheduler OARScheduler PBSScheduler ProcessScheduler SlurmScheduler best_available "
        "current_scheduler",
        "schedulers.ranks": "RankAllocation allocation",
        "serialize.shared_objects": "Shared",
        "call_context.current_call": "GVAR Interrupted current_job",
        "call_context.checkpoints": "MustStop checkpoint save saved",
        "call_context.random_streams": "rng",
    }.items()
    for name in names.split()
}
"""Where each name that is imported at its first use lives, below this package."""
_PACKAGES = ("resources", "schedulers")
_ERRORS = [
    name
    for name, value in globals().items()
    if getattr(value, "__module__", "") == "gridengine.errors"
]
__all__ = sorted([*_MODULES, *_PACKAGES, *_ERRORS, "__version__"])


def __getattr__(name: str) -> object:
    """Import a public name at its first use, and keep it."""
    if name in _PACKAGES:
        return importlib.import_module(f"gridengine.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collects = gc.isenabled()
    try:
        gc.disable()  # importing makes no garbage, and looking for it takes a tenth of the time
        value = getattr(importlib.import_module(f"gridengine.{_MODULES[name]}"), name)
    finally:
        if collects:
            gc.enable()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names that a completion offers: the public ones, and those of every module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
