"""Define every setting (name, type, default), and convert and check given values."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct, field

from gridengine.arguments import MOST
from gridengine.errors import ConfigurationError

# An error message quotes the description: "GRIDENGINE_X='y' is not a positive number, ...".
WholeNumber: TypeAlias = Annotated[
    int, Meta(gt=0, le=MOST, description=f"a positive whole number, at most {MOST:,}")
]
Number: TypeAlias = Annotated[
    float, Meta(gt=0, le=MOST, description=f"a positive number, at most {MOST:,}")
]
Count: TypeAlias = Annotated[
    int, Meta(ge=0, le=MOST, description=f"a whole number, at most {MOST:,}")
]
MOST_BYTES = 2**50
Bytes: TypeAlias = Annotated[
    int, Meta(ge=0, le=MOST_BYTES, description=f"a whole number, at most {MOST_BYTES:,}")
]
Switch: TypeAlias = Annotated[bool, Meta(description="true or false")]
Line: TypeAlias = Annotated[str, Meta(pattern=r"\A[^\n\0]*\Z", description="a line of text")]
Ports: TypeAlias = Annotated[
    str,
    Meta(pattern=r"\A(\d{1,5}-\d{1,5})?\Z", description="two ports, as 42000-42099"),
]
Folder: TypeAlias = Annotated[Path, Meta(description="a line of text")]
_Schedulers: TypeAlias = Literal[
    "", "processes", "grid_engine", "slurm", "htcondor", "oar", "pbs", "lsf", "flux", "inline"
]
SchedulerName: TypeAlias = Annotated[
    _Schedulers,
    Meta(description=f"the name of a scheduler: {', '.join(get_args(_Schedulers)[1:])}"),
]
OF_SITES = "gridengine.schedulers"
"""The group of entry points by which a site adds schedulers of its own: each a `CommandScheduler`,
under the name by which it is asked for.
"""
Names: TypeAlias = Annotated[Mapping[str, str], Meta(description="a table of texts")]


def is_interactive() -> bool:
    """Return whether this Python is interactive: a prompt, IPython, a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


class GridEngineSite(Struct, frozen=True):
    """The names at a Grid Engine site, in the table `[grid_engine]`.

    queue: where workers run when the scheduler does not say (default: the batch system decides).
    parallel_environment: the parallel environment for `Cores(n)` (default: the first of `qconf
        -spl` whose allocation_rule is $pe_slots).
    memory: the resource, or resources with commas between, that `Memory(m)` requests (default
        `h_vmem`).
    memory_per_slot: whether memory is counted for each slot, as Grid Engine does except for
        consumables of the kind JOB (default yes).
    gpus: the options that request GPUs; {n} is their number, {per_slot} the number for each slot
        (default `-l gpu={n}`).
    native: options for every submission.
    tokens: for each name of a `Token`, the options that request it, as `big = "-q big.q"`.
    """

    queue: Line = ""
    parallel_environment: Line = ""
    memory: Line = "h_vmem"
    memory_per_slot: Switch = True
    gpus: Line = "-l gpu={n}"
    native: Line = ""
    tokens: Names = field(default_factory=dict)


class BatchSite(Struct, frozen=True):
    """The names of a site whose batch system is used by its commands; a table for each system.

    account: for workers when the scheduler does not say (default: the batch system's own).
    gpus: the options that request GPUs; {n} is their number (default: the system's usual ones).
    native: options for every submission.
    tokens: for each name of a `Token`, the options that request it.
    """

    account: Line = ""
    gpus: Line = ""
    native: Line = ""
    tokens: Names = field(default_factory=dict)


class QueueSite(BatchSite, frozen=True):
    """The names of a site with queues.

    queue: for workers when the scheduler does not say (default: the batch system's own).
    """

    queue: Line = ""


class SlurmSite(BatchSite, frozen=True):
    """A Slurm site's names, the table `[slurm]`.

    partition, qos: for workers when the scheduler does not say (default: Slurm's own).
    gpus: the options that request GPUs (default `--gres=gpu:{n}`).
    srun: whether the first workers are started by `srun`, at once, where there is room (default
        yes).
    tokens: for each name of a `Token`, the options that request it (default for any name:
        `--constraint=` and the name).
    """

    partition: Line = ""
    qos: Line = ""
    gpus: Line = "--gres=gpu:{n}"
    srun: Switch = True


class Settings(Struct, frozen=True):
    """How this process uses `gridengine`. Each field is also an environment variable:
    `GRIDENGINE_RUN_DIRECTORY`, ...

    scheduler: where calls run when nobody says `scheduler=`: "processes", "grid_engine", "slurm" or
        "inline" (default: the best that is here).
    run_directory: folder, on a file system that the cluster's nodes share, below which each
        dispatcher makes one of its own (default `~/.gridengine/runs`).
    host: the address or name at which workers reach this machine (default: they try all of its
        addresses).
    ports: the first and the last port that dispatchers may listen at, as 42000-42099 (default: any
        free port).
    max_workers: the most cluster tasks at a time for one scheduler (default 1000).
    progress: show the progress of maps and executors that take over two seconds: bars on a terminal
        and in a notebook, else lines on standard error; see docs/watching.md (default yes).
    forward_logging: pass log records and warnings of calls on to their caller's own loggers; see
        docs/watching.md (default no).
    output_bytes: how much of a job's standard output, and of its standard error, is recorded
        (default 1,000,000).
    log_bytes: about how large a worker's log may become; the middle of a larger one is cut out
        (default 10,000,000).
    kept_bytes: how much memory a worker may have for large results that other calls need, and the
        dispatcher for those that have come to it; when there are more, the oldest go to files in
        the run directory (0, the default: a quarter of the machine's memory).
    keep_runs: after how many days the folder of an ended run is deleted, if there are logs in it;
        after four times as many if the run failed (default 14).
    keep_reports: of how many runs that took over ten seconds, or in which a call failed, a report
        is stored, for `gridengine report`, below XDG_STATE_HOME or `~/.local/state` (default 50; 0
        stores none).
    metrics_file: file for a dispatcher's metrics, as OpenMetrics text, written every ten seconds;
        `{pid}` in it is the process's id (default: none).
    watch_directory: folder of this user alone (mode 0700) on this machine, with the sockets by
        which runs are watched (default: `gridengine` in XDG_RUNTIME_DIR, else a folder in /tmp).
    idle_seconds: how long a cluster's idle worker stays (default 5; 60 in an interactive session,
        such as a notebook).
    beat_seconds: the time between two signs of life of a worker (default 2).
    lease_seconds: how long a worker works on without a word from its dispatcher, and after how long
        a silence the dispatcher takes the worker for lost (default 60).
    start_seconds: within which a cluster task must connect once the batch system says that it runs
        (default 30).
    start_timeout: how long calls may wait for their first worker before they fail (default: for
        ever).
    client_grace: after how long a stand-alone dispatcher ends the calls of a client that is known
        to be gone (default 60).
    client_lease: after how long a silence a client and its stand-alone dispatcher take each other
        for gone, where neither can look whether the other's process exists (default 900).
    retention: for how many days a stand-alone dispatcher stores the calls of a named run, and their
        outcomes, when nobody has the run any more (default 30).
    max_nesting: how many calls of one worker at a time may wait for their nested calls (default
        100).
    grace_seconds: between SIGTERM and SIGKILL when a call is ended (default 5).
    poll_seconds: the time between two questions to the batch system (default 2).
    command_timeout: how long one command of a batch system may take (default 20).
    check: after each event a dispatcher checks that its tables agree, and fails when they do not:
        for who looks for a fault of this package. It takes the longer the more calls wait (default
        no).
    drmaa_library: the DRMAA library that `GridEngineScheduler` loads (default: what
        DRMAA_LIBRARY_PATH says, else Grid Engine's own). It is code, so it may be set in the
        environment or the user's own file, never in a project's.
    grid_engine, slurm, htcondor, oar, pbs, lsf, flux: the names that a site's batch system has for
        things.
    """

    scheduler: SchedulerName = ""
    run_directory: Folder = Path("~/.gridengine/runs")
    host: Line = ""
    ports: Ports = ""
    max_workers: WholeNumber = 1000
    progress: Switch = True
    forward_logging: Switch = False
    output_bytes: WholeNumber = 1_000_000
    log_bytes: WholeNumber = 10_000_000
    kept_bytes: Bytes = 0
    keep_runs: Number = 14.0
    keep_reports: Count = 50
    metrics_file: Line = ""
    watch_directory: Folder = Path()
    idle_seconds: Number = field(default_factory=lambda: 60.0 if is_interactive() else 5.0)
    beat_seconds: Number = 2.0
    lease_seconds: Number = 60.0
    start_seconds: Number = 30.0
    start_timeout: Number = math.inf
    client_grace: Number = 60.0
    client_lease: Number = 900.0
    retention: Number = 30.0
    max_nesting: WholeNumber = 100
    grace_seconds: Number = 5.0
    poll_seconds: Number = 2.0
    command_timeout: Number = 20.0
    check: Switch = False
    drmaa_library: Line = ""
    grid_engine: GridEngineSite = field(default_factory=GridEngineSite)
    slurm: SlurmSite = field(default_factory=SlurmSite)
    htcondor: BatchSite = field(default_factory=BatchSite)
    oar: QueueSite = field(default_factory=QueueSite)
    pbs: QueueSite = field(default_factory=QueueSite)
    lsf: QueueSite = field(default_factory=QueueSite)
    flux: QueueSite = field(default_factory=QueueSite)

    @property
    def port_range(self) -> range:
        """The ports in `ports`; an empty range when any port will do.

        Raises:
            ConfigurationError: `ports` is no range of ports.
        """
        if not self.ports:
            return range(0)
        first, last = map(int, self.ports.split("-"))
        if not 0 < first <= last < 1 << 16:
            raise ConfigurationError(
                f"ports={self.ports!r} is no range of ports: the first is 1 at least, the last "
                "65535 at most, and not before the first"
            )
        return range(first, last + 1)

    @property
    def runs(self) -> Path:
        """`run_directory` as an absolute path.

        Raises:
            ConfigurationError: it is below the home of a user who has none.
        """
        try:
            return self.run_directory.expanduser().absolute()
        except RuntimeError as error:
            raise ConfigurationError(
                f"this user has no home folder, and {self.run_directory} is below it",
                hint="set GRIDENGINE_RUN_DIRECTORY to a folder that the nodes share, or HOME",
            ) from error


SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
TABLES: Mapping[str, type[Struct]] = {
    "grid_engine": GridEngineSite,
    "slurm": SlurmSite,
    "htcondor": BatchSite,
    "oar": QueueSite,
    "pbs": QueueSite,
    "lsf": QueueSite,
    "flux": QueueSite,
}
"""The tables of a settings file, and the settings in them."""


class Setting(Struct, frozen=True):
    """A value and its source: a file and its line, an environment variable, or the default."""

    value: Any
    by: str


@functools.cache
def setting_types() -> Mapping[str, Any]:
    """Return the annotated type of each setting by its full name, such as `grid_engine.queue`."""
    kinds: dict[str, type[Struct]] = {"": Settings, **TABLES}
    return {
        f"{table}.{one.name}".lstrip("."): one.type
        for table, kind in kinds.items()
        for one in msgspec.structs.fields(kind)
        if one.name not in TABLES
    }


def description(kind: Any) -> str:
    """Return the description of a type's values, for messages."""
    text: str = kind.__metadata__[0].description
    return text


def choices(kind: Any) -> tuple[str, ...]:
    """Return the words that a setting of this type must be one of; empty when it is free."""
    return get_args(_Schedulers) if kind is SchedulerName else ()


def is_of_site(name: str) -> bool:
    """Return whether a package that is installed here has a scheduler of this name, by its entry
    point.
    """
    from importlib.metadata import entry_points  # here, since most name one of this package's

    return bool(entry_points(group=OF_SITES, name=name))


def convert(value: Any, kind: Any) -> Any:
    """Convert a TOML value to a setting of this type.

    Raises:
        ValueError: the value does not fit; the text says what it must be.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=_folder)
    except msgspec.ValidationError:
        if kind is SchedulerName and isinstance(value, str) and is_of_site(value):
            return value
        raise ValueError(description(kind)) from None


def from_text(text: str, kind: Any) -> Any:
    """Convert a text without quotes to a setting of this type.

    Raises:
        ValueError: the text does not fit; the text of the error says what it must be.
    """
    if kind is Switch:
        if text.lower() not in SWITCHES:
            raise ValueError("yes or no")
        return SWITCHES[text.lower()]
    number = kind.__origin__ if kind.__origin__ in (int, float) else None
    try:
        return convert(text if number is None else number(text), kind)
    except ValueError:
        raise ValueError(description(kind)) from None


def _folder(kind: type[Path], value: Any) -> Path:
    return kind(msgspec.convert(value, Line))


def build(values: Mapping[str, Any]) -> Settings:
    """Return the defaults overridden by these values, which have full names."""
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    fields = tables.pop("")
    fields.update((name, TABLES[name](**table)) for name, table in tables.items())
    return Settings(**fields)
