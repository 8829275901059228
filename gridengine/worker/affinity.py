"""Map a worker's core and GPU numbers to the machine's, and bind a process to the ones that it was
given. Linux.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Mapping, Sequence

import msgspec

from gridengine.errors import ConfigurationError
from gridengine.wire.messages import Allocate

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""The variables that libraries read to know how many threads they may start."""
GPUS = "CUDA_VISIBLE_DEVICES"
CLAIM = "gridengine-core"
"""The prefix of the socket names by which processors are claimed."""

GRANTED = ("NSLOTS", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
"""The variables in which batch systems say how many processors a job has on this machine."""


def threads_of_call(slots: int) -> int:
    """Return how many processors each of `slots` calls has if they share this process's processors
    equally: the number of threads for libraries that would otherwise start one for each processor
    of the machine.
    """
    granted = [os.environ.get(name, "") for name in GRANTED]
    usable = [len(os.sched_getaffinity(0)), *(int(one) for one in granted if one.isdecimal())]
    return max(min(usable) // slots, 1)


def default_threads(threads: int, variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that tell libraries to use this many threads, without those that are set
    already. If the first is set, none is returned, because it holds for all libraries that have no
    variable of their own.
    """
    names = [os.fsencode(name) for name in THREADS]
    if not threads or names[0] in variables:
        return {}
    return {name: b"%d" % threads for name in names if name not in variables}


class Processors:
    """Maps the cores 0, 1, ... of a worker to processors of the machine.

    These are the processors that the batch system has bound the worker to. Where it has not, each
    worker claims processors that no other worker on the machine has, by a name that only one
    process can have at a time and that the kernel frees when the process ends (unix(7), abstract
    sockets). Processors that others have claimed come after. A worker with more cores than
    processors gets numbers without a processor.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._numbers: list[int] = []
        self._claims: list[socket.socket] = []

    def resolve(self, message: Allocate) -> Allocate:
        """Return the same allocation with the machine's own numbers."""
        if message.exact:
            return message
        cores, gpus = message.cores, message.gpus
        if cores:
            self._count_on(max(self._cores, max(cores) + 1))
            cores = [self._numbers[core] for core in cores]
        if gpus:
            visible = [word.strip() for word in os.environ.get(GPUS, "").split(",") if word.strip()]
            gpus = [_gpu(visible, one) for one in gpus]
        return msgspec.structs.replace(message, cores=cores, gpus=gpus)

    def _count_on(self, cores: int) -> None:
        """Assign a processor number to each of this many cores. Cores that have one keep it."""
        allowed = [
            number for number in sorted(os.sched_getaffinity(0)) if number not in self._numbers
        ]
        for number in allowed:
            if len(self._numbers) < cores and (
                len(allowed) + len(self._numbers) <= cores or self._is_ours(number)
            ):
                self._numbers.append(number)
        others = itertools.chain(allowed, itertools.count())
        while len(self._numbers) < cores:
            number = next(others)
            if number not in self._numbers:
                self._numbers.append(number)

    def _is_ours(self, number: int) -> bool:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0{CLAIM}-{number}")
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def close(self) -> None:
        """Give back the claimed processors. May be called twice."""
        for claim in self._claims:
            claim.close()


def processors_for(cores: Sequence[int], allowed: Sequence[int]) -> set[int]:
    """Return processors for these cores, as many different ones as possible. Numbers without a
    processor share those of others.
    """
    chosen = set(cores).intersection(allowed)
    for core in cores:
        if core not in allowed:
            turned = [allowed[(core + step) % len(allowed)] for step in range(len(allowed))]
            chosen.add(next((number for number in turned if number not in chosen), turned[0]))
    return chosen


def _gpu(visible: Sequence[str], one: int | str) -> int | str:
    """Return CUDA's name of the GPU with this number among those that the worker may see."""
    if isinstance(one, str) or one >= len(visible):
        return one
    name = visible[one]
    return int(name) if name.isdigit() else name


def bind_process(message: Allocate, allowed: Sequence[int]) -> dict[bytes, bytes]:
    """Bind this process, all its threads and everything that it starts to the processors of an
    allocation. Return the variables that tell libraries of the processors and GPUs; set them before
    the libraries are imported, because they look once.

    allowed: the processors that this process could use at first.

    Raises:
        ConfigurationError: this machine does not let it.
    """
    variables = {}
    if message.cores:
        try:
            processors = message.cores if message.exact else processors_for(message.cores, allowed)
            for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - names alone
                with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
                    os.sched_setaffinity(int(thread), processors)
        except OSError as error:
            raise ConfigurationError(
                f"cores {message.cores} of {socket.gethostname()} cannot be used: {error.strerror}",
                hint=f"there are {sorted(os.sched_getaffinity(0))}; leave out c= in "
                "worker_resources",
            ) from error
        variables = dict.fromkeys(THREADS, str(max(message.slots, 1)))
    if message.gpus:
        variables[GPUS] = ",".join(map(str, message.gpus))
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
