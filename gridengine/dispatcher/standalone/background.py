"""Starts stand-alone dispatchers as processes in the background, and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError
from gridengine.journal.lock_file import Holder, LockFile, is_locked
from gridengine.resources.demand import decode_demand
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.local_process import start_error, worker_environment
from gridengine.schedulers.logs import log_tail
from gridengine.schedulers.registry import HAND_STARTED, entry_of
from gridengine.schedulers.worker_command import hiding_flags, python_command
from gridengine.wire.connection_file import write_private

MODULE = "gridengine.dispatcher.standalone.process"
READY = "ready"
"""What a dispatcher writes when clients can connect; anything else is why it could not start."""
NONE = -1
"""In the place of a descriptor that a process is not handed."""
LOOK_SECONDS = 0.05


class Inherited(NamedTuple):
    """What the process of a dispatcher is handed: descriptors of its lock, of the pipe into which
    it writes `READY`, of one that is closed when its parent ends, and of those for what calls print
    to standard output and error; and which process starts it again when it is killed.
    """

    lock: int
    ready: int = NONE
    parent: int = NONE
    stdout: int = NONE
    stderr: int = NONE
    supervisor: int = NONE

    @property
    def descriptors(self) -> list[int]:
        """Those that it has."""
        return [one for one in self[:5] if one != NONE]

    @property
    def output(self) -> tuple[int, int] | None:
        """Those for what calls print, if it has them."""
        return None if self.stdout == NONE else (self.stdout, self.stderr)


def process_command(path: Path, inherited: Inherited) -> list[str]:
    """Return what runs the dispatcher of this folder."""
    numbers = map(str, inherited)
    return python_command(sys.executable, hiding_flags(), MODULE, str(path), *numbers)


def keep_options(folder: DispatcherFolder, options: StartOptions) -> None:
    """Write down how a dispatcher is started. By whoever has its lock.

    Raises:
        ConfigurationError: it cannot be written, as when the disk is full.
    """
    written = folder.options_file.with_suffix(".new")
    try:
        written.unlink(missing_ok=True)
        write_private(written, msgspec.json.format(msgspec.json.encode(options), indent=1))
        written.replace(folder.options_file)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {folder.options_file}: {error.strerror}",
            hint="free space there, or set GRIDENGINE_RUN_DIRECTORY to another folder",
        ) from error


@contextlib.contextmanager
def keeping_options(folder: DispatcherFolder, options: StartOptions) -> Iterator[None]:
    """Write down how a dispatcher is started within; where that fails, it is as it was before: one
    that was never started is none. By whoever has its lock.

    Raises:
        ConfigurationError: it cannot be written, as when the disk is full.
    """
    before = folder.options() if folder.options_file.exists() else None
    keep_options(folder, options)
    try:
        yield
    except GridEngineError:
        if before is None:
            folder.options_file.unlink()
        else:
            keep_options(folder, before)
        raise


def make_scheduler(options: StartOptions) -> Scheduler:
    """Return the scheduler that a dispatcher is to have.

    Raises:
        TypeError, ConfigurationError: an option is not what it must be.
    """
    arguments = dict(options.arguments)
    if options.resources:
        arguments["worker_resources"] = decode_demand(options.resources, 1.0).resources
    if options.scheduler == HAND_STARTED.name:
        return HAND_STARTED.make(**arguments)
    return entry_of(options.scheduler).make(**arguments)


def start(
    folder: DispatcherFolder,
    lock: LockFile,
    *,
    parent: int = NONE,
    output: tuple[int, int] = (NONE, NONE),
) -> subprocess.Popen[bytes]:
    """Start a dispatcher in the background, as its kept options say, hand it the lock, and return
    its process once clients can connect. With `parent`, the reading end of a pipe, it ends when the
    writing end is closed. With `output`, what calls print on this machine goes to these
    descriptors, else into a log in its folder.

    Raises:
        ConfigurationError, ClusterError: it could not start; the text holds its own words.
    """
    ready, told = os.pipe()
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    handed = Inherited(lock.descriptor, told, parent, *output)
    try:
        process = subprocess.Popen(
            process_command(folder.path, handed),
            cwd=existing(folder.options().directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=worker_environment(os.environ),
            pass_fds=handed.descriptors,
            start_new_session=True,
        )
    except OSError as error:
        os.close(ready)
        raise start_error(error) from error
    finally:
        os.close(told)
        os.close(log)
    with open(ready, "rb") as answer:
        words = answer.read().decode()
    if words == READY:
        return process
    process.terminate()  # a supervisor might start it again
    process.wait()
    if words:
        raise ConfigurationError(words)
    raise ClusterError(
        f"the dispatcher {folder.name!r} did not start",
        log=str(folder.log),
        log_tail=log_tail(str(folder.log)),
    )


def existing(directory: str) -> str:
    """Return a folder, or the root where that is not there any more."""
    return directory if Path(directory).is_dir() else "/"


def wait_for_end(folder: DispatcherFolder, seconds: float) -> bool:
    """Return whether a dispatcher ends within so many seconds."""
    pause, until = threading.Event(), time.monotonic() + seconds
    while is_locked(folder.lock):
        if time.monotonic() > until:
            return False
        pause.wait(LOOK_SECONDS)
    return True


def end_processes(folder: DispatcherFolder, grace_seconds: float) -> None:
    """End the processes of a dispatcher of this machine: in order, and by force those that have not
    ended after so many seconds.

    Raises:
        ConfigurationError: it runs on another machine.
    """
    holder = folder.holder()
    if holder is None:
        return
    if not holder.is_here:
        raise ConfigurationError(
            f"the dispatcher {folder.name!r} does not answer, and is {holder}",
            hint=f"there: gridengine dispatcher stop --now {folder.name}",
        )
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in _processes(folder, folder.holder() or holder):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                process.send_signal(number)
                process.resume()  # what is stopped takes no signal
        if wait_for_end(folder, grace_seconds):
            return


def _processes(folder: DispatcherFolder, holder: Holder) -> list[psutil.Process]:
    """Return the processes that run a dispatcher: the supervisor first, if there is one. Numbers
    that were given to other processes since are left out.
    """
    found = []
    for pid in (holder.supervisor, holder.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if {MODULE, str(folder.path)} <= set(process.cmdline()):
                found.append(process)
    return found
