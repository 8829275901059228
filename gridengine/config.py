"""Settings: one frozen object, read once from the environment."""

from __future__ import annotations

import functools
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gridengine.errors import ConfigurationError

PREFIX = "GRIDENGINE_"


@dataclass(frozen=True, slots=True)
class Settings:
    """How this process uses `gridengine`. Each field is also an environment variable: `GRIDENGINE_RUN_DIRECTORY`, ...

    run_directory: folder, on a file system that the cluster's nodes share, below which each dispatcher makes one of its own
        (default `~/.gridengine/runs`).
    host: the address or name at which workers reach this machine (default: all of its addresses are tried).
    max_workers: the most cluster tasks at a time for one scheduler (default 1000).
    progress: show a progress bar on a terminal for a map that takes over two seconds (default yes).
    output_bytes: how much of each of a job's standard output and error is kept (default 1,000,000).
    beat_seconds: the time between two signs of life of a worker (default 2).
    lease_seconds: how long a worker works on without word from its dispatcher, and after how long of silence the dispatcher
        counts on it to have stopped (default 60).
    start_seconds: within which a cluster task that the batch system says is running must call home (default 30).
    grace_seconds: between SIGTERM and SIGKILL when a call is ended (default 5).
    poll_seconds: the time between two questions to the batch system (default 2).
    """

    run_directory: Path = Path("~/.gridengine/runs")
    host: str = ""
    max_workers: int = 1000
    progress: bool = True
    output_bytes: int = 1_000_000
    beat_seconds: float = 2.0
    lease_seconds: float = 60.0
    start_seconds: float = 30.0
    grace_seconds: float = 5.0
    poll_seconds: float = 2.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Return the defaults overridden by `GRIDENGINE_*` variables.

        Raises:
            ConfigurationError: a value is not of its setting's type, or a number is not positive.
        """
        kinds = typing.get_type_hints(cls)
        given = {
            field.name: environment[PREFIX + field.name.upper()] for field in fields(cls) if PREFIX + field.name.upper() in environment
        }
        return cls(**{name: _parsed(name, kinds[name], text) for name, text in given.items()})


def _parsed(name: str, kind: type, text: str) -> Any:
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        value = kind(text)
        if isinstance(value, (int, float)) and not value > 0:
            raise ValueError("not positive")
        return value
    except (ValueError, KeyError):
        expected = "yes or no" if kind is bool else f"a positive {kind.__name__}"
        raise ConfigurationError(
            f"{PREFIX}{name.upper()}={text!r} is not {expected}", hint="change or unset this environment variable"
        ) from None


@functools.cache
def settings() -> Settings:
    """Return the settings of this process; the environment is read at the first call."""
    return Settings.from_environment(os.environ)
