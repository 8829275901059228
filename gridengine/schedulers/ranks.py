"""`allocation()`: the nodes of a call that asked for ranks, and the words that start a program on
all of them.

A worker of such a call is one process, on the first node of its cluster job; it runs one call at a
time, and this call has the whole job. On a machine that calls share, all ranks are on that machine.
The words of the job's batch system say which program starts the ranks (`BatchWords.rank_hosts`,
`rank_starter`):

    Slurm                    srun, as a step of the job: it knows the nodes
    Grid Engine              mpirun, with the hosts and slots of $PE_HOSTFILE
    one node, anywhere else  mpirun, with as many slots on this machine as there are ranks

The options of mpirun are those that Open MPI and MPICH share.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Iterable
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from gridengine.call_context.current_call import GVAR
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import cores_of_rank
from gridengine.resources.kinds import Cores, Ranks
from gridengine.schedulers.allocation import system_of_job
from gridengine.schedulers.registry import BY_NAME
from gridengine.settings.systems import SYSTEMS
from gridengine.system import openable_memory, path_of

OF_MPIRUN = tuple(name for system in SYSTEMS for name in system.of_mpirun)
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
    system = None if _is_here(given) else system_of_job(os.environ)
    if system is not None:
        words = BY_NAME[system.name].system_class()._commands
        hosts = tuple(starmap(RankHost, words.rank_hosts(os.environ, ranks, cores)))
        starter = words.rank_starter.format(ranks=ranks, nodes=len(hosts), cores=cores)
        if hosts:
            return RankAllocation(hosts, ranks, starter.split() or _mpirun(hosts))
    hosts = (RankHost(socket.gethostname(), ranks),)
    known = [word for name in OF_MPIRUN if name in os.environ for word in ("-u", name)]
    before = ["env", *known] if known else []
    return RankAllocation(hosts, ranks, [*before, *_mpirun((RankHost("localhost", ranks),))])


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
    file, name = openable_memory("gridengine-hosts")
    os.write(file, text.encode())
    return path_of(file, name)
