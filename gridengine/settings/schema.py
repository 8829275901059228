"""What settings there are, of which types, and what environment variables say of them."""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from gridengine.errors import ConfigurationError, safe_repr
from gridengine.resources.units import MOST, SHOWN

PREFIX = "GRIDENGINE_"
_NUMBERS = {
    int: f"a positive whole number, at most {MOST:,}",
    float: f"a positive number, at most {MOST:,}",
}


@dataclass(frozen=True, slots=True)
class GridEngineSite:
    """A Grid Engine site's names, the table `[grid_engine]`.

    queue: where workers run when the scheduler does not say (default: where the batch system
        wants).
    parallel_environment: the name of the one for `Cores(n)` (default: the first of `qconf -spl`
        whose allocation_rule is $pe_slots).
    memory: the resource, or resources with commas between, that `Memory(m)` asks for (default
        `h_vmem`).
    memory_per_slot: whether that is counted for each slot, as Grid Engine does but for consumables
        of the kind JOB (default yes).
    gpus: the options that ask for GPUs; {n} is their number, {per_slot} that for each slot (default
        `-l gpu={n}`).
    native: options for every submission.
    tokens: for each name of a `Token`, the options that ask for it, as `big = "-q big.q"`.
    """

    queue: str = ""
    parallel_environment: str = ""
    memory: str = "h_vmem"
    memory_per_slot: bool = True
    gpus: str = "-l gpu={n}"
    native: str = ""
    tokens: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """A Slurm site's names, the table `[slurm]`.

    partition, account, qos: for workers when the scheduler does not say (default: Slurm's own).
    gpus: the options that ask for GPUs; {n} is their number (default `--gres=gpu:{n}`).
    native: options for every submission.
    srun: whether the first workers are started by `srun`, at once, where there is room (default
        yes).
    tokens: for each name of a `Token`, the options that ask for it (default for any name:
        `--constraint=` and the name).
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    gpus: str = "--gres=gpu:{n}"
    native: str = ""
    srun: bool = True
    tokens: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """How this process uses `gridengine`. Each field is also an environment variable:
    `GRIDENGINE_RUN_DIRECTORY`, ...

    run_directory: folder, on a file system that the cluster's nodes share, below which each
        dispatcher makes one of its own (default `~/.gridengine/runs`).
    host: the address or name at which workers reach this machine (default: all of its addresses are
        tried).
    max_workers: the most cluster tasks at a time for one scheduler (default 1000).
    progress: show a progress bar on a terminal for a map that takes over two seconds (default yes).
    output_bytes: how much of each of a job's standard output and error is kept (default 1,000,000).
    beat_seconds: the time between two signs of life of a worker (default 2).
    lease_seconds: how long a worker works on without word from its dispatcher, and after how long
        of silence the dispatcher counts on it to have stopped (default 60).
    start_seconds: within which a cluster task that the batch system says is running must call home
        (default 30).
    start_timeout: for how long calls may wait for their first worker, then they fail (default: for
        ever).
    grace_seconds: between SIGTERM and SIGKILL when a call is ended (default 5).
    poll_seconds: the time between two questions to the batch system (default 2).
    drmaa_library: the DRMAA library that `GridEngineScheduler` loads (default: what
        DRMAA_LIBRARY_PATH says, else Grid Engine's own). It is code: said in the environment or the
        user's own file, never in a project's.
    grid_engine, slurm: the names that a site's batch system has for things.
    """

    run_directory: Path = Path("~/.gridengine/runs")
    host: str = ""
    max_workers: int = 1000
    progress: bool = True
    output_bytes: int = 1_000_000
    beat_seconds: float = 2.0
    lease_seconds: float = 60.0
    start_seconds: float = 30.0
    start_timeout: float = math.inf
    grace_seconds: float = 5.0
    poll_seconds: float = 2.0
    drmaa_library: str = ""
    grid_engine: GridEngineSite = field(default_factory=GridEngineSite)
    slurm: SlurmSite = field(default_factory=SlurmSite)

    @property
    def runs(self) -> Path:
        """`run_directory` as a whole path.

        Raises:
            ConfigurationError: it is below the home of a user who has none.
        """
        try:
            return self.run_directory.expanduser().absolute()
        except RuntimeError as error:
            raise ConfigurationError(
                f"the home folder that {self.run_directory} is below cannot be told: this user has "
                "none",
                hint="set GRIDENGINE_RUN_DIRECTORY to a folder that the nodes share, or HOME",
            ) from error

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Return the defaults overridden by `GRIDENGINE_*` variables.

        Raises:
            ConfigurationError: a value is not of its setting's type, or a number is not positive.
        """
        return made({name: said.value for name, said in from_variables(environment).items()})


@dataclass(frozen=True, slots=True)
class Said:
    """A value, and who said it: a file and its line, an environment variable, or the default."""

    value: Any
    by: str


@functools.cache
def known() -> Mapping[str, type]:
    """Return the type of each setting by its full name, as `grid_engine.queue`."""
    return dict(_known(Settings))


def _known(shape: type, above: str = "") -> Iterator[tuple[str, type]]:
    for name, kind in typing.get_type_hints(shape).items():
        if is_dataclass(kind):
            yield from _known(typing.cast(type, kind), f"{name}.")
        else:
            yield f"{above}{name}", kind


def made(values: Mapping[str, Any]) -> Settings:
    """Return the defaults overridden by these, which have full names."""
    plain = {name: value for name, value in values.items() if "." not in name}
    return Settings(
        **plain,
        grid_engine=GridEngineSite(**_below("grid_engine", values)),
        slurm=SlurmSite(**_below("slurm", values)),
    )


def _below(table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.partition(".")[2]: value
        for name, value in values.items()
        if name.partition(".")[0] == table
    }


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper().replace(".", "_")


def from_variables(environment: Mapping[str, str]) -> dict[str, Said]:
    """Return what `GRIDENGINE_*` variables say. A table of names, as `tokens`, can only be said in
    a file.

    Raises:
        ConfigurationError: a value is not of its setting's type, or a number is not positive.
    """
    given = {name: kind for name, kind in known().items() if variable(name) in environment}
    return {
        name: Said(_parsed(variable(name), kind, environment[variable(name)]), variable(name))
        for name, kind in given.items()
    }


def _parsed(name: str, kind: type, text: str) -> Any:
    hint = "change or unset this environment variable"
    if _is_table(kind):
        raise ConfigurationError(
            f"{name} cannot be said in the environment", hint="write it into a settings file"
        )
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
                text.lower()
            ]
        return checked(kind, kind(text))
    except (ValueError, KeyError):
        expected = "yes or no" if kind is bool else _NUMBERS.get(kind, "a line of text")
        raise ConfigurationError(
            f"{name}={safe_repr(text, most=SHOWN)} is not {expected}", hint=hint
        ) from None


def checked(kind: type, value: Any) -> Any:
    """Return the value of a setting of this type, given one of TOML's.

    Raises:
        ValueError: it is none; the text says what it must be.
    """
    if _is_table(kind):
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise ValueError("a table of texts")
        return value
    if kind in _NUMBERS:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (kind is float and isinstance(value, float))) or not 0 < value <= MOST:
            raise ValueError(_NUMBERS[kind])
        return kind(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if not isinstance(value, (str, Path)) or any(mark in str(value) for mark in "\n\0"):
        raise ValueError("a line of text")
    return kind(value)


def _is_table(kind: type) -> bool:
    return typing.get_origin(kind) is not None
