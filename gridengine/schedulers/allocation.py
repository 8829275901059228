"""The batch job that this process runs in, by the environment variables of the batch system.

A script that was submitted with `sbatch -c 4` has four cores, however many the machine has. CPU
affinity does not tell: many sites do not bind jobs to cores.
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
    """The resources that a batch job has on the node of this process.

    Attributes:
        system: the batch system, for people.
        job: the job's id.
        cores: how many cores this process may use on this node.
        nodes: how many nodes the job has.
        shares: how many cores the job has on each of several nodes, this node first, if this
            process may use all of them; else empty.
        memory, memory_per_core: how many bytes of memory this process may use on a node, in all and
            for each core; 0 if unknown.
    """

    system: str
    job: str
    cores: int
    nodes: int = 1
    shares: tuple[int, ...] = ()
    memory: int = 0
    memory_per_core: int = 0

    def memory_beside(self, cores: int) -> float:
        """Return how many bytes of memory go with this many cores of a node; infinite if
        unknown.
        """
        return self.memory or cores * self.memory_per_core or math.inf

    def __str__(self) -> str:
        if not self.shares:
            return self.here
        cores = plural(sum(self.shares), "core")
        return f"the {cores} of {self.system} job {self.job}, on its {self.nodes} nodes"

    @property
    def here(self) -> str:
        """The resources that this process may use on its own node, for people."""
        node = "" if self.nodes == 1 else f", on one of its {self.nodes} nodes"
        return f"the {plural(self.cores, 'core')} of {self.system} job {self.job}{node}"

    @property
    def why_here(self) -> str:
        """Why calls stay on this node of several, and the remedy; empty if they need not stay."""
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
"""Why calls of a script stay on one node of several; the second for other systems."""


def allocation_here(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Return the batch job of a process with this environment; None if there is none.

    A shell that `salloc` opens on the submit host has none: the job's nodes are elsewhere.
    """
    for names, read in READERS.items():
        if all(map(environment.get, names)):
            return read(environment, host)
    return None


def _of_slurm(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the variables of a batch script or of a step (sbatch(1), srun(1)).

    SLURM_CPUS_ON_NODE counts the cores of all tasks of a step on the node. Only a step has
    SLURM_STEP_TASKS_PER_NODE, such as "2(x3),1": a batch script has all of its node.
    """
    on_node = _number(environment.get("SLURM_CPUS_ON_NODE", ""))
    if not on_node:
        return None
    step = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    tasks = max(_number(part.partition("(")[0]) for part in step.split(",")) or 1
    per_task = _number(environment.get("SLURM_CPUS_PER_TASK", "")) if tasks > 1 else 0
    nodes = _number(environment.get("SLURM_JOB_NUM_NODES", "")) or 1
    shares = () if step else _shares(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    of_node, of_core = (
        _number(environment.get(f"SLURM_MEM_PER_{what}", "")) * 2**20 for what in ("NODE", "CPU")
    )
    return Allocation(
        "Slurm",
        environment["SLURM_JOB_ID"],
        per_task or max(1, on_node // tasks),
        nodes,
        shares=shares if nodes == len(shares) > 1 else (),
        memory=of_node // tasks,
        memory_per_core=of_core,
    )


def _shares(text: str) -> tuple[int, ...]:
    """Return the job's cores on each node, first the script's, from "4(x2),1"."""
    return tuple(
        int(cores)
        for cores, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(int(times or 1))
    )


def _of_grid_engine(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read NSLOTS, and a parallel environment's file of hosts and slots (qsub(1), sge_pe(5))."""
    lines = _lines(environment.get("PE_HOSTFILE", ""))  # not all jobs have one
    slots = {short(name): _number(count) for name, count, *_ in map(str.split, lines)}
    cores = slots.get(short(host)) or _number(environment["NSLOTS"])
    return _allocation("Grid Engine", environment["JOB_ID"], cores, len(slots))


def _of_htcondor(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the resources of the slot, from the file that the starter leaves for its job."""
    machine = _lines(environment["_CONDOR_MACHINE_AD"])
    fields = dict(line.split(" = ", 1) for line in machine if " = " in line)
    job = environment.get("CONDOR_JOB_ID") or environment["_CONDOR_SLOT"]
    memory = _number(fields.get("Memory", "")) * 2**20
    return _allocation("HTCondor", job, _number(fields.get("Cpus", "")), 1, memory)


def _of_oar(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the file with a line for each core: its node's name. A script runs on the first node."""
    nodes = [short(line) for line in _lines(environment["OAR_NODEFILE"])]
    cores = nodes.count(short(host)) or nodes.count(nodes[0]) if nodes else 0
    return _allocation("OAR", environment["OAR_JOB_ID"], cores, len(set(nodes)))


def _of_pbs(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the cores of the first chunk, where a script runs (NCPUS; a Torque's PBS_NUM_PPN), and
    the file of the job's nodes (qsub(1B)).
    """
    nodes = {short(line) for line in _lines(environment["PBS_NODEFILE"])}
    cores = _number(environment.get("NCPUS") or environment.get("PBS_NUM_PPN", ""))
    return _allocation("PBS", environment["PBS_JOBID"], cores, len(nodes))


def _of_lsf(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the hosts and their slots, such as "n1 4 n2 2"; a script runs on the first host."""
    words = environment["LSB_MCPU_HOSTS"].split()
    slots = {
        short(name): _number(count) for name, count in zip(words[::2], words[1::2], strict=False)
    }
    cores = slots.get(short(host)) or next(iter(slots.values()), 0)
    return _allocation("LSF", environment["LSB_JOBID"], cores, len(slots))


def _of_flux(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Read the variables of a job's task (flux-environment(7)), which is bound to its cores."""
    cores, nodes = len(os.sched_getaffinity(0)), _number(environment["FLUX_JOB_NNODES"])
    return _allocation("Flux", environment["FLUX_JOB_ID"], cores, nodes)


def _allocation(
    system: str, job: str, cores: int, nodes: int, memory: int = 0
) -> Allocation | None:
    """Return an allocation; None if its cores are unknown."""
    return Allocation(system, job, cores, nodes or 1, memory=memory) if cores else None


READERS: Mapping[tuple[str, ...], Callable[[Mapping[str, str], str], Allocation | None]] = {
    ("SLURM_JOB_ID", "SLURMD_NODENAME"): _of_slurm,
    ("_CONDOR_SLOT", "_CONDOR_MACHINE_AD"): _of_htcondor,
    ("OAR_JOB_ID", "OAR_NODEFILE"): _of_oar,
    ("PBS_JOBID", "PBS_NODEFILE"): _of_pbs,
    ("LSB_JOBID", "LSB_MCPU_HOSTS"): _of_lsf,
    ("FLUX_JOB_ID", "FLUX_JOB_NNODES"): _of_flux,
    ("JOB_ID", "NSLOTS"): _of_grid_engine,
}
"""The reader for jobs of each system, by variables that all its jobs have; `detect.JOBS` has the
first of each.
"""


def _lines(path: str) -> list[str]:
    """Return the lines of a file that a batch system leaves for its job; none if it is gone."""
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def short(host: str) -> str:
    return host.partition(".")[0].lower()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
