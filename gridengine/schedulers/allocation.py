"""The batch job that this process runs in, by the environment variables of the batch system.

A script that was submitted with `sbatch -c 4` has four cores, however many the machine has. CPU
affinity does not tell: many sites do not bind jobs to cores.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gridengine.display import plural
from gridengine.settings.systems import SYSTEMS, BatchSystem
from gridengine.system import usable_processors


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
        stays: why calls stay on this node if there are several, and the remedy.
    """

    system: str
    job: str
    cores: int
    nodes: int = 1
    shares: tuple[int, ...] = ()
    memory: int = 0
    memory_per_core: int = 0
    stays: str = field(default="", compare=False)

    def memory_beside(self, cores: int) -> float:
        """Return how many bytes of memory go with so many cores of a node; infinite if unknown."""
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
        return "" if self.nodes == 1 or self.shares else self.stays


def system_of_job(environment: Mapping[str, str]) -> BatchSystem | None:
    """Return the batch system of whose job this is the environment; None if it is of none.

    A job may run in a job of another system, the other way round from the order of preference.
    Grid Engine comes last, since other programs set `JOB_ID` too.
    """
    return next((one for one in reversed(SYSTEMS) if all(map(environment.get, one.job))), None)


def allocation_here(environment: Mapping[str, str], host: str) -> Allocation | None:
    """Return the batch job of a process with this environment; None if there is none.

    A shell that `salloc` opens on the submit host has none: the job's nodes are elsewhere.
    """
    system = system_of_job(environment)
    if system is None:
        return None
    module, _, name = system.allocation.partition(":")
    read: Callable[..., Allocation | None] = getattr(
        importlib.import_module(f"gridengine.schedulers.{module}"), name
    )
    return read(system, environment, host)


def of_variables(
    system: BatchSystem, environment: Mapping[str, str], host: str
) -> Allocation | None:
    """Read the variables that the system declares. A script runs on the first node."""
    told = environment.get(system.hosts, "")
    lines = _lines(told) if told.startswith("/") else [told]
    pairs = [(short(name), count) for line in lines for name, count in _hosts(line)]
    slots = Counter[str]()
    for name, count in pairs:
        slots[name] += number(count or "1")
    cores = slots.get(short(host)) or next(iter(slots.values()), 0)
    if system.cores and not (short(host) in slots and pairs[0][1]):
        said = (number(environment.get(name, "")) for name in system.cores)
        cores = next(filter(None, said), 0)
    elif not system.hosts:
        cores = usable_processors()
    if not cores:
        return None
    nodes = number(environment.get(system.nodes, "")) or len(slots) or 1
    stays = (
        f"no workers are started on other nodes of a job; ask for {system.one_node}, or run the "
        "script outside of jobs to have workers on many"
    )
    return Allocation(system.title, environment[system.job[0]], cores, nodes, stays=stays)


def _hosts(line: str) -> list[tuple[str, str]]:
    """Return the nodes of a line, and their numbers of cores if it has some: of "n1 4 n2 2", "n1 3
    all.q@n1" or "n1".
    """
    return re.findall(r"(\S+)\s+(\d+)(?!\S)", line) or [(name, "") for name in line.split()[:1]]


def of_machine_ad(
    system: BatchSystem, environment: Mapping[str, str], host: str
) -> Allocation | None:
    """Read the resources of an HTCondor's slot, from the file that the starter leaves for a job."""
    slot, file = (environment[name] for name in system.job)
    fields = dict(line.split(" = ", 1) for line in _lines(file) if " = " in line)
    cores, memory = (number(fields.get(name, "")) for name in ("Cpus", "Memory"))
    job = environment.get("CONDOR_JOB_ID") or slot
    return Allocation(system.title, job, cores, memory=memory * 2**20) if cores else None


def _lines(path: str) -> list[str]:
    """Return the lines of a file that a batch system leaves for its job; none if it is gone."""
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def short(host: str) -> str:
    return host.partition(".")[0].lower()


def number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
