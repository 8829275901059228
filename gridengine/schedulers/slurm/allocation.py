"""The Slurm job that this process runs in, by its environment variables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from gridengine.schedulers.allocation import Allocation, number
from gridengine.settings.systems import BatchSystem

OF_A_STEP = "this is a step of srun's; run the script without srun to have calls use all nodes"


def of_slurm(system: BatchSystem, environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the variables of a batch script or of a step (sbatch(1), srun(1)).

    SLURM_CPUS_ON_NODE counts the cores of all tasks of a step on the node. Only a step has
    SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1": a batch script has all of its node.
    """
    on_node = number(environment.get("SLURM_CPUS_ON_NODE", ""))
    if not on_node:
        return None
    step = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    tasks = max(number(part.partition("(")[0]) for part in step.split(",")) or 1
    per_task = number(environment.get("SLURM_CPUS_PER_TASK", "")) if tasks > 1 else 0
    nodes = number(environment.get("SLURM_JOB_NUM_NODES", "")) or 1
    shares = () if step else numbers_of(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    of_node, of_core = (
        number(environment.get(f"SLURM_MEM_PER_{what}", "")) * 2**20 for what in ("NODE", "CPU")
    )
    return Allocation(
        system.title,
        environment["SLURM_JOB_ID"],
        per_task or max(1, on_node // tasks),
        nodes,
        shares=shares if nodes == len(shares) > 1 else (),
        memory=of_node // tasks,
        memory_per_core=of_core,
        stays=OF_A_STEP,
    )


def numbers_of(text: str) -> tuple[int, ...]:
    """Return the number of each node, first the script's, from "4(x2),1"."""
    return tuple(
        int(count)
        for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(int(times or 1))
    )


def rank_hosts(environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the nodes of a Slurm job with their tasks, from "n[1-3]" and "2(x2),1" (sbatch(1))."""
    names = expanded(environment["SLURM_JOB_NODELIST"])
    return list(zip(names, numbers_of(environment["SLURM_TASKS_PER_NODE"]), strict=True))


def expanded(nodes: str) -> list[str]:
    """Return the names in Slurm's "a[1-2,07]b,c" (scontrol(1), show hostnames)."""
    names: list[str] = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        parts = re.split(r"\[([^\]]*)\]", word)
        choices = [
            [text] if place % 2 == 0 else list(_numbers(text)) for place, text in enumerate(parts)
        ]
        names += map("".join, itertools.product(*choices))
    return names


def _numbers(ranges: str) -> Iterator[str]:
    """Yield the numbers of "1-3,07", as wide as they are written."""
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        for one_number in range(int(first), int(last or first) + 1):
            yield str(one_number).zfill(len(first))
