"""The processors, GPUs and memory of a process: which ones it is bound to, how much memory it may
have, and how much it has.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import resource
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from gridengine.errors import ConfigurationError, text_of
from gridengine.system import (
    DataLimit,
    bind_to,
    control_groups,
    peak_bytes,
    processors,
    usable_processors,
)
from gridengine.wire.messages import Allocate

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)
"""The variables that libraries read to know how many threads they may start."""
NOT_OF_OPENMP = frozenset(THREADS[-3:])
"""The variables of libraries that ignore OMP_NUM_THREADS."""
GPUS = "CUDA_VISIBLE_DEVICES"
CLAIM = "gridengine-core"
"""The prefix of the socket names by which processors are claimed."""
MOST_CLAIMS = 64
"""How many workers may claim one processor. Further workers take processors in order."""


def threads_of_call(slots: int) -> int:
    """Return how many processors each of `slots` calls has if they share this process's processors
    equally: the number of threads for libraries that would otherwise start one for each processor
    of the machine.
    """
    from gridengine.settings.systems import SYSTEMS  # here: runners need it no more

    own = (one for one in SYSTEMS if any(map(os.environ.get, one.job)))
    granted = [os.environ.get(name, "") for one in own for name in one.cores]
    usable = [usable_processors(), *(int(one) for one in granted if one.isdecimal())]
    return max(min(usable) // slots, 1)


def default_threads(threads: int, variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that tell libraries to use this many threads, without those that are set
    already. If OMP_NUM_THREADS is set, only the libraries that ignore it get theirs.
    """
    names: Iterable[str] = NOT_OF_OPENMP if os.fsencode(THREADS[0]) in variables else THREADS
    wanted = {os.fsencode(name): b"%d" % threads for name in names if threads}
    return {name: value for name, value in wanted.items() if name not in variables}


class Processors:
    """Maps the cores 0, 1, ... of a worker to processors of the machine.

    These are the processors that the batch system has bound the worker to. Where it has not, the
    workers on a machine share its processors evenly: each claims the processors with the fewest
    claims, by a name that only one process can have at a time (`system.machine.claim`). A worker
    with more cores than processors gets numbers without a processor.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._numbers: list[int] = []
        self._claims: list[Callable[[], object]] = []

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
        allowed = processors()
        for claims in range(MOST_CLAIMS + 1):
            # A worker that shares processors begins with another one than the worker before it.
            turn = claims % len(allowed)
            for number in allowed[turn:] + allowed[:turn]:
                if (
                    len(self._numbers) < cores
                    and number not in self._numbers
                    and (claims == MOST_CLAIMS or self._is_ours(number, claims))
                ):
                    self._numbers.append(number)
        others = itertools.count()
        while len(self._numbers) < cores:
            number = next(others)
            if number not in self._numbers:
                self._numbers.append(number)

    def _is_ours(self, number: int, claims: int) -> bool:
        """Claim a processor that `claims` others have claimed; return whether this succeeded."""
        from gridengine.system.machine import claim  # few workers have numbered cores

        if taken := claim(f"{CLAIM}-{number}-{claims}"):
            self._claims.append(taken)
        return taken is not None

    def close(self) -> None:
        """Give back the claimed processors. May be called twice."""
        for give_back in self._claims:
            give_back()


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
    if message.cores or message.threads:
        variables = dict.fromkeys(THREADS, str(message.threads or max(message.slots, 1)))
    if message.cores:
        try:
            bind_to(message.cores if message.exact else processors_for(message.cores, allowed))
        except OSError as error:
            raise ConfigurationError(
                f"cores {message.cores} of {socket.gethostname()} cannot be used: {error.strerror}",
                hint=f"there are {processors()}; leave out c= in worker_resources",
            ) from error
    if message.gpus:
        variables[GPUS] = ",".join(map(str, message.gpus))
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


_CLAIM_SECONDS = 2.0
"""For how long after a kill by the kernel a runner's death may be explained by that kill."""


UNMAPPED = (
    "failed to map segment from shared object",
    "cannot map zero-fill pages",
    "Cannot allocate memory",
)
"""How the errors of dlopen(3) end when there is no memory for a library. They have no `errno`."""


class MemoryLimit:
    """This process's limit of data (see `system.DataLimit`).

    The limit is set on top of `base`, the bytes of data that the process had when it was new.
    Unlike a limit of address space, it does not count memory that is reserved and never used, as
    libraries of linear algebra do.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self.wanted = 0
        """The limit that was passed to `set`, in bytes."""
        self._data = DataLimit()

    @property
    def limit(self) -> int:
        """The limit in force, in bytes: ours, or one of address space or data that was set
        elsewhere; 0 when there is none.
        """
        if self.wanted:
            return self.wanted
        others = [
            resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
        ]
        return min((soft for soft in others if soft != resource.RLIM_INFINITY), default=0)

    def set(self, size: int) -> None:
        """Allow this many bytes, but never more than at the start; 0 restores that limit."""
        if size != self.wanted:
            self.wanted = size
            self._apply(size)

    def was_met(self, error: BaseException) -> bool:
        """Return whether an exception means that memory ran out. Under a limit, ENOMEM of a system
        call means that too, and so does a library that cannot be loaded for want of memory.
        """
        if not isinstance(error, OSError | ImportError) or not self.limit:
            return isinstance(error, MemoryError)
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno == errno.ENOMEM
        reason = error.__cause__ or error.__context__  # many packages raise another ImportError
        told = [one for one in (error, reason) if isinstance(one, OSError | ImportError)]
        texts = "\n".join(text_of(one) or "" for one in told)
        return isinstance(reason, MemoryError) or any(words in texts for words in UNMAPPED)

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Lift the limit within the block."""
        if self.wanted:
            self._apply(0)
        try:
            yield
        finally:
            if self.wanted:
                self._apply(self.wanted)

    def _apply(self, size: int) -> None:
        before = self._data.before
        limits = [self._base + size] * bool(size) + [before] * (before != resource.RLIM_INFINITY)
        self._data.set(min(limits, default=resource.RLIM_INFINITY))


def peak_memory() -> int:
    """Return the highest resident memory of this process so far, in bytes."""
    return peak_bytes(resource.getrusage(resource.RUSAGE_SELF))


class KillCounter:
    """Counts the processes in this process's control group that the kernel has killed for lack of
    memory.

    The kernel does not report which processes these were. A kill that no runner's death claims soon
    was that of another process, such as the user's own outside our workers.
    """

    def __init__(self, file: str = "") -> None:
        self._file = file or _events_file()
        self._seen = self._count()
        self._unclaimed = 0
        self._updated_at = -math.inf
        self._rose_at = -math.inf

    def update(self, now: float) -> None:
        """Look for new kills, at most once a second. Call this from time to time (`now` in
        monotonic seconds).
        """
        if now - self._updated_at >= _CLAIM_SECONDS / 2:
            self._count_new(now)

    def claim(self, now: float) -> bool:
        """Return whether a process that was killed just now may be one of the counted kills. If so,
        that kill is used up.
        """
        self._count_new(now)
        if not self._unclaimed:
            return False
        self._unclaimed -= 1
        return True

    def _count_new(self, now: float) -> None:
        before, self._seen = self._seen, self._count()
        if now - self._rose_at > _CLAIM_SECONDS:
            self._unclaimed = 0
        if self._seen > before:
            self._unclaimed += self._seen - before
            self._rose_at = now
        self._updated_at = now

    def _count(self) -> int:
        try:
            with open(self._file) as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except OSError:  # there is none
            return 0


def _events_file() -> str:
    """Return the file in which the kernel counts the kills of a control group: of the nearest group
    around this process whose memory is counted, in version 1 or 2. Empty if there is none.
    """
    names = "memory.oom_control", "memory.events"
    files = (f"{folder}/{name}" for folder in control_groups("memory") for name in names)
    return next(filter(os.path.isfile, files), "")


def killed_for_memory(*, exitcode: int, peak: int, limit: int, kernel: bool) -> bool:
    """Return whether a process died for lack of memory: the kernel counted the kill or, under a
    limit, the process aborted or died near the limit.

    Args:
        exitcode: as in `multiprocessing.Process`. peak, limit: in bytes; limit 0 is none.
        kernel: whether the kernel has just killed some process for lack of memory.
    """
    if kernel and exitcode == -_SIGKILL:
        return True
    return bool(limit) and (exitcode == -_SIGABRT or (exitcode < 0 and peak >= 0.75 * limit))


_SIGABRT, _SIGKILL = 6, 9
