"""The definition of each setting (name, type, default), and the checks and conversions of given
values. docs/settings.md says what each means; a test checks that it names all.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct, field

from gridengine.arguments import DAY, MOST, parse_gigabytes, parse_seconds, to_bytes
from gridengine.errors import ConfigurationError
from gridengine.settings.systems import SYSTEMS

# An error message quotes the description: "GRIDENGINE_X='y' is not a positive number, ...".
WholeNumber: TypeAlias = Annotated[
    int, Meta(gt=0, le=MOST, description=f"a positive whole number, at most {MOST:,}")
]
_NUMBER = f"a positive number, at most {MOST:,}"
Time: TypeAlias = Annotated[
    float, Meta(gt=0, le=MOST, description=f"{_NUMBER}, or a time such as 30 min or 1:30:00")
]
Days: TypeAlias = Annotated[
    float, Meta(gt=0, le=MOST, description=f"{_NUMBER}, of days, or a time such as 12h or 30d")
]
Count: TypeAlias = Annotated[
    int, Meta(ge=0, le=MOST, description=f"a whole number, at most {MOST:,}")
]
MOST_BYTES = 2**50
Bytes: TypeAlias = Annotated[
    int,
    Meta(ge=0, le=MOST_BYTES, description=f"a whole number, at most {MOST_BYTES:,}, or a size"),
]
Size: TypeAlias = Annotated[
    int,
    Meta(gt=0, le=MOST, description=f"a positive whole number, at most {MOST:,}, or a size: 10 MB"),
]
_READ: Mapping[Any, Callable[[str], float]] = {
    Time: lambda text: parse_seconds("", text),
    Days: lambda text: parse_seconds("", text) / DAY,
    Bytes: lambda text: to_bytes(parse_gigabytes("", text)),
    Size: lambda text: to_bytes(parse_gigabytes("", text)),
}
"""How a text is read that is no number, by the type of the setting."""
Switch: TypeAlias = Annotated[bool, Meta(description="true or false")]
Line: TypeAlias = Annotated[str, Meta(pattern=r"\A[^\n\0]*\Z", description="a line of text")]
Ports: TypeAlias = Annotated[
    str,
    Meta(pattern=r"\A(\d{1,5}-\d{1,5})?\Z", description="two ports, such as 42000-42099"),
]
Folder: TypeAlias = Annotated[Path, Meta(description="a line of text")]
SCHEDULERS = ("processes", *(one.name for one in SYSTEMS), "inline")
SchedulerName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=rf"\A({'|'.join(SCHEDULERS)}|)\Z",
        description=f"the name of a scheduler: {', '.join(SCHEDULERS)}",
    ),
]
_Transports: TypeAlias = Literal["tcp", "files"]
TransportName: TypeAlias = Annotated[_Transports, Meta(description="tcp or files")]
OF_SITES = "gridengine.schedulers"
"""The group of entry points by which a site adds schedulers of its own: each a `CommandScheduler`,
under the name by which it is asked for.
"""
Names: TypeAlias = Annotated[Mapping[str, str], Meta(description="a table of texts")]


def is_interactive() -> bool:
    """Return whether this Python is interactive: a prompt, IPython, a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


class GridEngineSite(Struct, frozen=True):
    """The names at a Grid Engine site: the table `[grid_engine]`."""

    queue: Line = ""
    parallel_environment: Line = ""
    mpi_environment: Line = ""
    memory: Line = "h_vmem"
    memory_per_slot: Switch = True
    gpus: Line = "-l gpu={n}"
    exclude_hosts: Line = ""
    native: Line = ""
    tokens: Names = field(default_factory=dict)


class BatchSite(Struct, frozen=True):
    """The names at the site of a batch system with commands; a table for each system."""

    account: Line = ""
    gpus: Line = ""
    exclude_hosts: Line = ""
    native: Line = ""
    tokens: Names = field(default_factory=dict)


class QueueSite(BatchSite, frozen=True):
    """The names at a site with queues."""

    queue: Line = ""


class SlurmSite(BatchSite, frozen=True):
    """The names at a Slurm site: the table `[slurm]`."""

    partition: Line = ""
    qos: Line = ""
    gpus: Line = "--gres=gpu:{n}"
    srun: Switch = True


TABLES: Mapping[str, type[Struct]] = {
    **{one.name: QueueSite for one in SYSTEMS},
    "grid_engine": GridEngineSite,
    "slurm": SlurmSite,
    "htcondor": BatchSite,
}
"""The tables of a settings file, one for each batch system, and the settings in them."""


class Settings(Struct, frozen=True):
    """How this process uses `gridengine`. docs/settings.md says what each field means.

    Times are in seconds, except `keep_runs` and `retention`, which are in days.
    """

    scheduler: SchedulerName = ""
    run_directory: Folder = Path("~/.gridengine/runs")
    host: Line = ""
    ports: Ports = ""
    transport: TransportName = "tcp"
    shared_files: Switch = True
    max_workers: WholeNumber = 1000
    progress: Switch = True
    forward_logging: Switch = False
    output_bytes: Size = 1_000_000
    log_bytes: Size = 10_000_000
    kept_bytes: Bytes = 0
    keep_runs: Days = 14.0
    keep_reports: Count = 50
    metrics_file: Line = ""
    notify: Line = ""
    jobs_per_minute: Count = 0
    watch_directory: Folder = Path()
    idle_seconds: Time = field(default_factory=lambda: 60.0 if is_interactive() else 5.0)
    beat_seconds: Time = 2.0
    lease_seconds: Time = 60.0
    start_seconds: Time = 30.0
    start_timeout: Time = math.inf
    client_grace: Time = 60.0
    client_lease: Time = 900.0
    retention: Days = 30.0
    max_nesting: WholeNumber = 100
    grace_seconds: Time = 5.0
    checkpoint_seconds: Time = 20.0
    poll_seconds: Time = 2.0
    command_timeout: Time = 20.0
    check: Switch = False
    drmaa_library: Line = ""
    sites: Mapping[str, Any] = field(
        default_factory=lambda: {name: kind() for name, kind in TABLES.items()}
    )
    """The table of each batch system, by its name."""

    @property
    def port_range(self) -> range:
        """The ports in `ports`; an empty range when any port will do.

        Raises:
            ConfigurationError: `ports` is not a range of ports.
        """
        if not self.ports:
            return range(0)
        first, last = map(int, self.ports.split("-"))
        if not 0 < first <= last < 1 << 16:
            raise ConfigurationError(
                f"ports={self.ports!r} is not a range of ports: the first is 1 at least, the last "
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
        if one.name != "sites"
    }


def description(kind: Any) -> str:
    """Return the description of a type's values, for messages."""
    text: str = kind.__metadata__[0].description
    return text


def choices(kind: Any) -> tuple[str, ...]:
    """Return the words that a setting of this type must be one of; empty when it is free."""
    words = {SchedulerName: ("", *SCHEDULERS), TransportName: get_args(_Transports)}
    return words.get(kind, ())


def is_of_site(name: str) -> bool:
    """Return whether an installed package has a scheduler of this name, by its entry point."""
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
        if isinstance(value, str) and kind in _READ:
            with contextlib.suppress(ConfigurationError, msgspec.ValidationError):
                return msgspec.convert(_READ[kind](value), kind)
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
    value: Any = text
    if kind.__origin__ in (int, float):
        with contextlib.suppress(ValueError):  # a text with a unit
            value = kind.__origin__(text)
    return convert(value, kind)


def _folder(kind: type[Path], value: Any) -> Path:
    return kind(msgspec.convert(value, Line))


def build(values: Mapping[str, Any]) -> Settings:
    """Return the defaults overridden by these values, which have full names."""
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    fields = tables.pop("")
    sites = {name: kind(**tables.get(name, {})) for name, kind in TABLES.items()}
    return Settings(**fields, sites=sites)
