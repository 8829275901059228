"""`allocation()`: the nodes of a call that asked for ranks, and the words that start a program on
all of them.

A worker of such a call is one process, on the first node of its cluster job; it runs one call at a
time, and this call has the whole job. On a machine that calls share, all ranks are on that machine.
The program that starts the ranks depends on where they are:

    Slurm                    srun, as a step of the job: it knows the nodes
    Grid Engine              mpirun, with the hosts and slots of $PE_HOSTFILE
    one node, anywhere else  mpirun, with as many slots on this machine as there are ranks

The options of mpirun are those that Open MPI and MPICH share.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import cores_of_rank
from gridengine.resources.kinds import Cores, Ranks
from gridengine.worker.call_context import GVAR

JOBS = (
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "PE_HOSTFILE"),
    *("PBS_JOBID", "PBS_NODEFILE", "LSB_JOBID", "LSB_MCPU_HOSTS"),
)
"""Variables of batch jobs in which mpirun looks for its hosts. It refuses other hosts then."""
LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun", "aprun"})
"""The programs that start ranks."""


class RankHost(NamedTuple):
    """A node of a call, and how many of its ranks run there."""

    name: str
    slots: int


class RankAllocation(NamedTuple):
    """Where the ranks of a call run.

    Attributes:
        hosts: the nodes, each with a `name` and its `slots`, the number of ranks there.
        ranks: how many ranks there are.
        launcher: the words before a program's own that start the program as all ranks, such as
            ["srun", "--ntasks=32"]; for `subprocess.run([*launcher, "./a.out"])`.
    """

    hosts: tuple[RankHost, ...]
    ranks: int
    launcher: list[str]


def allocation() -> RankAllocation:
    """Return where the ranks of this call run: the nodes, and the words that start a program there.

    Raises:
        ConfigurationError: this code runs in no call, or the call asked for no ranks; or the call's
            job has too few slots for the ranks.
    """
    given = GVAR.res
    if given.get(Ranks) is None:
        raise ConfigurationError(
            "allocation() is for calls that ask for ranks, and this code runs in none",
            hint="give the call resources=gridengine.Ranks(4), say",
        )
    return _allocation(given)


def launcher_of(argv: list[str]) -> list[str]:
    """Return the words before a program that start it as the ranks of this call; none where the
    call asked for no ranks.

    Raises:
        ConfigurationError: the program starts ranks itself.
    """
    ranks = GVAR.res.get(Ranks)
    if ranks is None:
        return []
    if Path(argv[0]).name in LAUNCHERS:
        raise ConfigurationError(
            f"{argv[0]} starts ranks, and so does the call's {ranks!r}",
            hint="leave it out, with its own options: the program's words are enough; or ask for "
            "resources=gridengine.Cores(4), and have it start 4 ranks on one machine",
        )
    return allocation().launcher


def spans_nodes() -> bool:
    """Return whether the ranks of this call may be on several nodes."""
    return GVAR.res.get(Ranks) is not None and not _is_here(GVAR.res)


def _is_here(given: Resource) -> bool:
    """Return whether all ranks are on this machine, which other calls share."""
    cores = given.get(Cores)
    return cores is not None and cores.given is not None


def _allocation(given: Resource) -> RankAllocation:
    ranks, cores = given.get(Ranks).ranks, cores_of_rank(given)  # type: ignore[union-attr]
    if not _is_here(given):
        if "SLURM_JOB_ID" in os.environ:
            hosts = tuple(_slurm_hosts())
            words = [f"--ntasks={ranks}", f"--nodes={len(hosts)}", f"--cpus-per-task={cores}"]
            return RankAllocation(hosts, ranks, ["srun", *words])
        if "PE_HOSTFILE" in os.environ:
            hosts = _grid_engine_hosts(Path(os.environ["PE_HOSTFILE"]), ranks, cores)
            return RankAllocation(hosts, ranks, _mpirun(hosts))
    hosts = (RankHost(socket.gethostname(), ranks),)
    known = [word for name in JOBS if name in os.environ for word in ("-u", name)]
    words = ["env", *known] if known else []
    return RankAllocation(hosts, ranks, [*words, *_mpirun((RankHost("localhost", ranks),))])


def _mpirun(hosts: Iterable[RankHost]) -> list[str]:
    """Return the words of an mpirun with these hosts. It binds no ranks: a call's processes are
    bound to the call's cores already, and mpirun would bind those of all calls to the same cores.
    """
    lines = [host.name for host in hosts for _ in range(host.slots)]
    file = _file_of("\n".join([*lines, ""]), os.getpid())
    return ["mpirun", "--machinefile", file, "-n", str(len(lines)), "--bind-to", "none"]


@functools.cache
def _file_of(text: str, pid: int) -> str:
    """Return the path of a file with this text, which is there as long as this process."""
    file = os.memfd_create("gridengine-hosts")
    os.write(file, text.encode())
    return f"/proc/{pid}/fd/{file}"


def _slurm_hosts() -> Iterator[RankHost]:
    """Yield the nodes of this Slurm job, from "n[1-3]" and "2(x2),1" (sbatch(1))."""
    names = expanded(os.environ["SLURM_JOB_NODELIST"])
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ["SLURM_TASKS_PER_NODE"])
    tasks = [int(count) for count, times in counts for _ in range(int(times or 1))]
    for name, count in zip(names, tasks, strict=True):
        yield RankHost(name, count)


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
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def _grid_engine_hosts(file: Path, ranks: int, cores: int) -> tuple[RankHost, ...]:
    """Return the hosts of a parallel environment, each with as many of the ranks as its slots have
    cores for (sge_pe(5), $pe_hostfile).

    Raises:
        ConfigurationError: they have cores for fewer ranks.
    """
    lines = [line.split() for line in file.read_text().splitlines()]
    left, hosts = ranks, list[RankHost]()
    for name, slots, *_ in lines:
        count = min(left, int(slots) // cores)
        left -= count
        if count:
            hosts.append(RankHost(name, count))
    if left:
        shares = ", ".join(f"{slots} on {name}" for name, slots, *_ in lines)
        raise ConfigurationError(
            f"{ranks} ranks of {cores} cores each do not fit: Grid Engine gives {shares}",
            hint="use a parallel environment whose allocation_rule is a multiple of the cores of "
            "a rank, or $pe_slots",
        )
    return tuple(hosts)
