"""The batch job that this process runs in, by what the batch system has put into its environment.

A script that was submitted with `sbatch -c 4` has four cores, whatever the machine has. Sites that
do not bind jobs to cores show the job all of the machine, so the environment is asked.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gridengine.display import plural


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a batch job has on the node where it is asked.

    Attributes: `system`, the batch system, for people; `job`, its number; `cores`, how many this
    process may use on this node; `nodes`, how many nodes the job has; `shares`, how many cores the
    job has on each of several nodes, this one first, where this process may use all of them, else
    empty; `memory` and `memory_per_core`, how many bytes of memory this process may use on a node,
    and the same for each core, 0 where that is not said.
    """

    system: str
    job: str
    cores: int
    nodes: int = 1
    shares: tuple[int, ...] = ()
    memory: int = 0
    memory_per_core: int = 0

    def memory_beside(self, cores: int) -> float:
        """Return how many bytes of memory go with so many cores of one node; infinite where nobody
        says.
        """
        return self.memory or cores * self.memory_per_core or math.inf

    def __str__(self) -> str:
        if not self.shares:
            return self.here
        cores = plural(sum(self.shares), "core")
        return f"the {cores} of {self.system} job {self.job}, on its {self.nodes} nodes"

    @property
    def here(self) -> str:
        """What this process may use on its own node, for people."""
        node = "" if self.nodes == 1 else f", on one of its {self.nodes} nodes"
        return f"the {plural(self.cores, 'core')} of {self.system} job {self.job}{node}"

    @property
    def why_here(self) -> str:
        """Why calls keep to this node of several, and how to use the others; empty where they need
        not.
        """
        return "" if self.nodes == 1 or self.shares else KEPT_HERE.get(self.system, KEPT_ON_NODE)


KEPT_HERE = {
    "Slurm": "this is a step of srun's; run the script without srun to have calls use all nodes",
    "Grid Engine": "no workers are started on other hosts of a job; ask for slots of one host "
    "(allocation_rule $pe_slots), or run the script outside of jobs to have workers on many",
}
KEPT_ON_NODE = (
    "no workers are started on other nodes of a job; ask for one node, or run the script outside "
    "of jobs to have workers on many"
)
"""Why calls of a script keep to one node of a job that has several; on other systems."""


def allocation_here(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Return the batch job that a process with this environment runs in; None when in none.

    A shell that `salloc` opens on the submit host is in none: the job's nodes are elsewhere.
    """
    for names, read in READERS.items():
        if all(map(environment.get, names)):
            return read(environment, host)
    return None


def _of_slurm(environment: Mapping[str, str], host: str) -> Allocation | None:
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
    shares = () if step else _shares(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    every = shares if nodes == len(shares) > 1 else ()
    of_node, of_core = (
        _number(environment.get(f"SLURM_MEM_PER_{what}", "")) * 2**20 for what in ("NODE", "CPU")
    )
    job = environment["SLURM_JOB_ID"]
    return Allocation("Slurm", job, cores, nodes, every, of_node // tasks, of_core)


def _shares(text: str) -> tuple[int, ...]:
    """Return how many cores a job has on each node, by SLURM_JOB_CPUS_PER_NODE, as "4(x2),1". A
    batch script runs on the first.
    """
    return tuple(
        int(cores)
        for cores, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(int(times or 1))
    )


def _of_grid_engine(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read NSLOTS, and the file of a parallel environment that gives each host its slots
    (qsub(1), sge_pe(5)).
    """
    lines = _lines(environment.get("PE_HOSTFILE", ""))  # no job has to have one
    slots = {short(name): _number(count) for name, count, *_ in map(str.split, lines)}
    cores = slots.get(short(host)) or _number(environment["NSLOTS"])
    return (
        Allocation("Grid Engine", environment["JOB_ID"], cores, len(slots) or 1) if cores else None
    )


def _of_htcondor(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read what the slot has, of the file that the starter leaves for its job; a job has one."""
    machine = _lines(environment["_CONDOR_MACHINE_AD"])
    fields = dict(line.split(" = ", 1) for line in machine if " = " in line)
    cores = _number(fields.get("Cpus", ""))
    job = environment.get("CONDOR_JOB_ID") or environment["_CONDOR_SLOT"]
    memory = _number(fields.get("Memory", "")) * 2**20
    return Allocation("HTCondor", job, cores, memory=memory) if cores else None


def _of_oar(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the file that has a line for each core: the name of its node. A script runs on the
    first.
    """
    lines = _lines(environment["OAR_NODEFILE"])
    nodes = [short(line) for line in lines]
    here = nodes.count(short(host)) or nodes.count(nodes[0]) if nodes else 0
    job = environment["OAR_JOB_ID"]
    return Allocation("OAR", job, here, len(set(nodes))) if here else None


def _of_pbs(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the cores of the first chunk, where a script runs (NCPUS; a Torque's PBS_NUM_PPN), and
    the file that names the job's nodes (qsub(1B)).
    """
    nodes = {short(line) for line in _lines(environment["PBS_NODEFILE"])}
    cores = _number(environment.get("NCPUS") or environment.get("PBS_NUM_PPN", ""))
    return Allocation("PBS", environment["PBS_JOBID"], cores, len(nodes) or 1) if cores else None


def _of_lsf(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the hosts with their slots, as "n1 4 n2 2"; a script runs on the first."""
    words = environment["LSB_MCPU_HOSTS"].split()
    slots = {
        short(name): _number(count) for name, count in zip(words[::2], words[1::2], strict=False)
    }
    cores = slots.get(short(host)) or next(iter(slots.values()), 0)
    return Allocation("LSF", environment["LSB_JOBID"], cores, len(slots)) if cores else None


def _of_flux(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read what a task of a job is told (flux-environment(7)). No variable says its cores: it is
    bound to them.
    """
    nodes = _number(environment["FLUX_JOB_NNODES"]) or 1
    return Allocation("Flux", environment["FLUX_JOB_ID"], len(os.sched_getaffinity(0)), nodes)


READERS: Mapping[tuple[str, ...], Callable[[Mapping[str, str], str], Allocation | None]] = {
    ("SLURM_JOB_ID", "SLURMD_NODENAME"): _of_slurm,
    ("_CONDOR_SLOT", "_CONDOR_MACHINE_AD"): _of_htcondor,
    ("OAR_JOB_ID", "OAR_NODEFILE"): _of_oar,
    ("PBS_JOBID", "PBS_NODEFILE"): _of_pbs,
    ("LSB_JOBID", "LSB_MCPU_HOSTS"): _of_lsf,
    ("FLUX_JOB_ID", "FLUX_JOB_NNODES"): _of_flux,
    ("JOB_ID", "NSLOTS"): _of_grid_engine,
}
"""Who reads the variables of a job, by those that each job of a system has; `detect.JOBS` has the
first of each.
"""


def _lines(path: str) -> list[str]:
    """Return the lines of a file that a batch system leaves for its job; none when it is gone."""
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def short(host: str) -> str:
    return host.partition(".")[0].lower()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
