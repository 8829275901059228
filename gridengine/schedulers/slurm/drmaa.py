"""The options of sbatch as DRMAA libraries for Slurm take them. Pure functions."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

from gridengine.resources.demand import Demand
from gridengine.schedulers import options
from gridengine.schedulers.batch_commands import UNITS
from gridengine.schedulers.options import worker_options
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.settings.values import SlurmSite

SLURM = SlurmCommands()
own_walltime = functools.partial(options.own_walltime, SLURM)


def drmaa_options(own: Sequence[str], demand: Demand, site: SlurmSite) -> list[str]:
    """Return the options of sbatch as DRMAA libraries take them: in their spelling, and without the
    signal that comes before the end.

    A worker that Slurm put back into its queue would pass for the one that it was before.
    """
    requeue = [] if "--requeue" in own else ["--no-requeue"]
    options = [*requeue, *worker_options(SLURM, own, demand, site)]
    return [
        _in_drmaa_spelling(option)
        for option in options
        if option in own or not option.startswith("--signal=")
    ]


def _in_drmaa_spelling(option: str) -> str:
    """Return an option of sbatch's in the spelling that DRMAA libraries take too: megabytes without
    a unit, time with hours and minutes.
    """
    name, _, value = option.partition("=")
    size = re.fullmatch(r"(\d+)([KMGT])B?", value, flags=re.IGNORECASE)
    if name in ("--mem", "--mem-per-cpu") and size is not None:
        return f"{name}={math.ceil(int(size[1]) * UNITS[size[2].upper()] / 2**20)}"
    if name == "--time" and SLURM.parse_time(value):
        minutes = math.ceil(SLURM.parse_time(value) / 60)
        return f"--time={minutes // 60:02}:{minutes % 60:02}:00"
    return option
