"""Start stand-alone dispatchers as processes in the background, and end them."""

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

import psutil

from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError
from gridengine.journal.lock_file import Holder, LockFile, is_locked
from gridengine.resources.demand import decode_demand
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.local import start_error, worker_environment
from gridengine.schedulers.logs import log_tail
from gridengine.schedulers.registry import HAND_STARTED, entry_of
from gridengine.schedulers.worker_command import hiding_flags, python_command
from gridengine.wire.connection_file import replace_private, to_json

MODULE = "gridengine.dispatcher.standalone.process"
READY = "ready"
"""A dispatcher writes this when clients can connect. Any other text is the reason why it could not
start.
"""
NONE = -1
"""Stands for a descriptor that a process does not inherit."""
LOOK_SECONDS = 0.05


class Inherited(NamedTuple):
    """The arguments of a dispatcher's process: the descriptors of its lock, of the pipe for
    `READY`, of a pipe that is closed when its parent ends, and of the output of calls (`stdout`,
    `stderr`); and the process id of its supervisor.
    """

    lock: int
    ready: int = NONE
    parent: int = NONE
    stdout: int = NONE
    stderr: int = NONE
    supervisor: int = NONE

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that the process inherits."""
        return [one for one in self[:5] if one != NONE]

    @property
    def output(self) -> tuple[int, int] | None:
        """The descriptors for the output of calls; None if there are none."""
        return None if self.stdout == NONE else (self.stdout, self.stderr)


def process_command(path: Path, inherited: Inherited) -> list[str]:
    """Return the command that runs the dispatcher of this folder."""
    numbers = map(str, inherited)
    return python_command(sys.executable, hiding_flags(), MODULE, str(path), *numbers)


def write_options(folder: DispatcherFolder, options: StartOptions) -> None:
    """Write how a dispatcher is started. The caller must hold its lock.

    Raises:
        ConfigurationError: the file cannot be written, for example because the disk is full.
    """
    try:
        replace_private(folder.options_file, to_json(options))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {folder.options_file}: {error.strerror}",
            hint="free space there, or set GRIDENGINE_RUN_DIRECTORY to another folder",
        ) from error


@contextlib.contextmanager
def replacing_options(folder: DispatcherFolder, options: StartOptions) -> Iterator[None]:
    """Write how a dispatcher is started, for the start within this context. If the start fails,
    restore the former options; without former options remove the file, so that there is no such
    dispatcher. The caller must hold the lock.

    Raises:
        ConfigurationError: the file cannot be written, for example because the disk is full.
    """
    before = folder.options() if folder.options_file.exists() else None
    write_options(folder, options)
    try:
        yield
    except GridEngineError:
        if before is None:
            folder.options_file.unlink()
        else:
            write_options(folder, before)
        raise


def make_scheduler(options: StartOptions) -> Scheduler:
    """Return the scheduler for a dispatcher with these options.

    Raises:
        TypeError, ConfigurationError: an option has a value that it cannot have.
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
    """Start a dispatcher in the background by its stored options, pass it the lock, and return its
    process once clients can connect.

    parent: the reading end of a pipe; the dispatcher ends when the writing end is closed.
    output: the descriptors for the output of calls on this machine; by default it goes to a log in
        the folder.

    Raises:
        ConfigurationError, ClusterError: it could not start; the text has the dispatcher's own
            words.
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
            # A session of its own: Ctrl-C and the end of the user's terminal must not reach the
            # dispatcher.
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
    """Return a folder, or the root if the folder does not exist any more."""
    return directory if Path(directory).is_dir() else "/"


def wait_for_end(folder: DispatcherFolder, seconds: float) -> bool:
    """Wait until a dispatcher ends; return whether it has within `seconds`."""
    pause, until = threading.Event(), time.monotonic() + seconds
    while is_locked(folder.lock):
        if time.monotonic() > until:
            return False
        pause.wait(LOOK_SECONDS)
    return True


def end_processes(folder: DispatcherFolder, grace_seconds: float) -> None:
    """End the processes of a dispatcher on this machine: in order first, by force if they have not
    ended after `grace_seconds`.

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
                process.resume()  # a stopped process does not handle signals
        if wait_for_end(folder, grace_seconds):
            return


def _processes(folder: DispatcherFolder, holder: Holder) -> list[psutil.Process]:
    """Return the processes that run a dispatcher: first the supervisor, if there is one. Process
    ids that belong to other processes by now are left out.
    """
    found = []
    for pid in (holder.supervisor, holder.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if {MODULE, str(folder.path)} <= set(process.cmdline()):
                found.append(process)
    return found
