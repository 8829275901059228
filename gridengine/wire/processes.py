"""Processes of this machine: whether another one still runs, the limits of this one (open files,
threads, processes), which are checked and raised before it has workers, forks of this one, and
how it introduces itself as a worker.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from gridengine._version import __version__
from gridengine.display import plural
from gridengine.errors import ConfigurationError
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.shared_memory import MOST_BLOCKS
from gridengine.system import open_descriptors
from gridengine.system.machine import started, this_machine
from gridengine.threads import LiveObjects, once
from gridengine.wire.messages import VERSION, Hello


def program() -> str:
    """Return the script that this process runs, as `sys.argv` names it. Of `python -m package` it
    is the folder of the package.
    """
    first = sys.argv[0] if sys.argv else ""
    path = Path(first)
    return str(path.absolute().parent) if path.name == "__main__.py" else first


def has_ended(machine: str, pid: int, since: int) -> bool:
    """Return whether a process can be looked up from here and has ended. `machine` is its
    `this_machine`, `since` its `started`.
    """
    return machine == this_machine() != "" and started(pid) != since


@once
def keep_interrupt() -> None:
    """Have a script that an unhandled Ctrl-C will end die of SIGINT, as its shell expects. CPython
    forgets the Ctrl-C when an exit handler compiles a text, as by the import of a module with a
    named tuple (`findings/ctrl-c-status-after-atexit.sh`). Exit handlers that are registered from
    now on run before this one.
    """
    atexit.register(_remind_of_interrupt)


def _remind_of_interrupt() -> None:
    """Compile a text that raises the exception: it reminds CPython."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        from gridengine.settings.schema import is_interactive  # workers do without

        if not is_interactive():  # a prompt keeps `last_type` of an earlier line
            with contextlib.suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")


_PATCHED = ("select", "socket", "subprocess", "threading")
"""The modules that this package needs as Python has them."""
_SPARE_FILES = 128
LOCAL_THREADS, THREADS = 4, 7
"""A dispatcher's threads: its I/O thread, the launcher's and one for each standard stream; with
workers elsewhere also two of ZeroMQ's, and one that checks keys.
"""
FILES_PER_RUNNER = 4
"""How many open files a runner takes, at most, in the process that drives its agent."""


def allow_open_files(workers: int, *, each: int = 1, handshakes: int = 0) -> None:
    """Raise this process's soft limit of open files so that it can have this many workers.

    Args:
        each: how many files one worker takes.
        handshakes: how many more files to allow if the hard limit permits. Each connection takes
            one more until its handshake is over.

    Raises:
        ConfigurationError: the hard limit is too small, or there is no /proc.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_files() + _SPARE_FILES + workers * each
    wanted = needed + handshakes
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigurationError(
            f"{plural(workers, 'worker')} need{'s' * (workers == 1)} {needed} open files, and this "
            f"process may have no more than {hard} (the hard limit, `ulimit -Hn`)",
            hint="ask for fewer workers (max_workers=, GRIDENGINE_MAX_WORKERS), or raise the limit",
        )
    resource.setrlimit(
        resource.RLIMIT_NOFILE,
        (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard),
    )


def _open_files() -> int:
    try:
        return len(open_descriptors())
    except FileNotFoundError as error:
        raise ConfigurationError(
            "there is no /proc here, by which processes are watched and limited",
            hint="mount it (`mount -t proc proc /proc`), or run calls in this process "
            "(scheduler=InlineScheduler())",
        ) from error


def check_unpatched() -> None:
    """Check that threads, and what they wait for, are Python's own.

    Raises:
        ConfigurationError: gevent has replaced them.
    """
    monkey = sys.modules.get("gevent.monkey")
    patched = [name for name in _PATCHED if monkey is not None and monkey.is_module_patched(name)]
    if patched:
        raise ConfigurationError(
            f"gevent's monkey.patch_all() has replaced {', '.join(patched)} in this process, by "
            "which gridengine waits for its workers",
            hint="make the calls in a script of its own that gevent does not patch, and start it "
            "by subprocess; or take InlineScheduler(), which makes them here",
        )


def check_threads(count: int) -> None:
    """Check that this process may start this many threads. Without the check, ZeroMQ would abort
    the process.

    Raises:
        ConfigurationError: it may not; or gevent has replaced its threads.
    """
    check_unpatched()
    go_on = threading.Event()
    started = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=go_on.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # "release unlocked lock"
            raise error.__context__ from None
        raise ConfigurationError(
            f"this process may not start {count} more threads: this user's processes and threads "
            f"may be {_limit(resource.RLIMIT_NPROC)} (`ulimit -u`), and the bytes of this "
            f"process's addresses {_limit(resource.RLIMIT_AS)} (`ulimit -v`)",
            hint="raise the limit that is met, or end other processes of yours on this machine",
        ) from error
    finally:
        go_on.set()
        for thread in started:
            thread.join()


def _limit(kind: int) -> str:
    soft, _ = resource.getrlimit(kind)
    return (
        "no more than the machine allows"
        if soft == resource.RLIM_INFINITY
        else f"no more than {soft}"
    )


def allow_one_more_runner(runners: int) -> None:
    """Raise the limit of open files for one more runner, and for large results, as far as the hard
    limit allows. Does so only when the number of runners is a power of two, and allows for twice as
    many.
    """
    if runners & (runners - 1) == 0:
        # At the hard limit, go on with the runners that fit; starting one more fails by itself.
        with contextlib.suppress(ConfigurationError):
            allow_open_files(runners, each=FILES_PER_RUNNER, handshakes=MOST_BLOCKS)


FORK_SECONDS = 2.0
"""How long a fork waits for one thread at most: that thread may wait for the one that forks."""


class ForkHold:
    """Holds off this process's forks while the thread that has entered it is at work. Only the
    thread that forks lives on in the child. Whatever another thread has locked, such as a module
    that it imports, stays locked there for ever.
    """

    def __init__(self) -> None:
        self.locks = threading.Lock(), threading.RLock()
        """The first lets a fork begin before a thread that never sleeps enters again; the second
        is reentrant, since the thread at work may itself fork.
        """
        self._turn, self._work = self.locks
        self.leave = self._work.release

    def enter(self) -> None:
        with self._turn:
            self._work.acquire()

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *exc_info: object) -> None:
        self.leave()


class ForkHooks:
    """Has each fork of this process take all holds before, and give them back after, in parent and
    child.
    """

    def __init__(self) -> None:
        self.importing = ForkHold()
        """For the imports of threads that may wait long for other programs. It is taken last,
        because a thread that holds another one may wait for such a thread.
        """
        self._holds = LiveObjects[ForkHold]()
        self._taken: dict[int, list[Any]] = {}
        os.register_at_fork(
            before=self.take, after_in_parent=self.give_back, after_in_child=self._be_child
        )

    def new_hold(self) -> ForkHold:
        """Return the hold of one thread."""
        hold = ForkHold()
        self._holds.add(hold)
        return hold

    def take(self) -> None:
        taken = self._taken[threading.get_ident()] = []
        for hold in (*self._holds, self.importing):
            for lock in hold.locks:
                if lock.acquire(timeout=FORK_SECONDS):
                    taken.append(lock)

    def give_back(self) -> None:
        for lock in reversed(self._taken.pop(threading.get_ident(), [])):
            lock.release()

    def _be_child(self) -> None:
        """Forget the holds: their threads are not in this process."""
        self.give_back()
        self._taken.clear()
        self._holds.clear()
        self.importing = ForkHold()


@once
def fork_hooks() -> ForkHooks:
    """Return the hooks of this process, which are installed at the first use."""
    return ForkHooks()


def make_hello(
    *, run_id: str, slots: int, pid: int, log: str, elapsed: float = 0.0, **other: Any
) -> Hello:
    """Return the first message of a worker in this process, whose cluster job has run for `elapsed`
    seconds.
    """
    return Hello(
        protocol=VERSION,
        version=__version__,
        python=PYTHON,
        run_id=run_id,
        host=socket.gethostname(),
        pid=pid,
        slots=slots,
        log=log,
        elapsed=max(0.0, elapsed),
        **other,
    )
