"""The batch job that this process runs in, by what the batch system has put into its environment.

A script that was submitted with `sbatch -c 4` has four cores, whatever the machine has. Sites that
do not bind jobs to cores show the job all of the machine, so the environment is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gridengine.resources.units import plural


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a batch job has on the node where it is asked.

    Attributes: `system`, the batch system, for people; `job`, its number; `cores`, how many this
    process may use on this node; `nodes`, how many nodes the job has.
    """

    system: str
    job: str
    cores: int
    nodes: int = 1

    def __str__(self) -> str:
        node = "" if self.nodes == 1 else f", on one of its {self.nodes} nodes"
        return f"the {plural(self.cores, 'core')} of {self.system} job {self.job}{node}"


def allocation_here(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Return the batch job that a process with this environment runs in; None when in none.

    A shell that `salloc` opens on the submit host is in none: the job's nodes are elsewhere.
    """
    if environment.get("SLURM_JOB_ID") and environment.get("SLURMD_NODENAME"):
        return _of_slurm(environment)
    if environment.get("JOB_ID") and environment.get("NSLOTS"):
        return _of_grid_engine(environment, host)
    return None


def _of_slurm(environment: Mapping[str, str]) -> Allocation | None:
    """Read the variables of a batch script or of a step (sbatch(1), srun(1)).

    SLURM_CPUS_ON_NODE counts the cores of all tasks of a step on the node. Only a step has
    SLURM_STEP_TASKS_PER_NODE, as "2(x3),1": a batch script has all of its node.
    """
    on_node = _number(environment.get("SLURM_CPUS_ON_NODE", ""))
    if not on_node:
        return None
    step = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    tasks = max(_number(part.partition("(")[0]) for part in step.split(",")) or 1
    per_task = _number(environment.get("SLURM_CPUS_PER_TASK", "")) if tasks > 1 else 0
    cores = per_task or max(1, on_node // tasks)
    nodes = _number(environment.get("SLURM_JOB_NUM_NODES", "")) or 1
    return Allocation("Slurm", environment["SLURM_JOB_ID"], cores, nodes)


def _of_grid_engine(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read NSLOTS, and the file of a parallel environment that gives each host its slots
    (qsub(1), sge_pe(5)).
    """
    slots = {}
    with contextlib.suppress(OSError):  # it is gone when the job is, and no job has to have one
        lines = Path(environment.get("PE_HOSTFILE", "")).read_text().splitlines()
        slots = {short(name): _number(count) for name, count, *_ in map(str.split, lines)}
    cores = slots.get(short(host)) or _number(environment["NSLOTS"])
    return (
        Allocation("Grid Engine", environment["JOB_ID"], cores, len(slots) or 1) if cores else None
    )


def short(host: str) -> str:
    return host.partition(".")[0].lower()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
