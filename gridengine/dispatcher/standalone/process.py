"""The process of a stand-alone dispatcher (see `background.process_command`). It runs a dispatcher,
or supervises another process that does, and starts that again when it is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gridengine.dispatcher.standalone.background import (
    NONE,
    READY,
    Inherited,
    make_scheduler,
    process_command,
)
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.errors import GridEngineError, JournalError, VersionMismatch, exit_words
from gridengine.journal.lock_file import TOUCH_SECONDS, Holder, LockFile
from gridengine.output.stream_writer import LogLimit
from gridengine.settings.values import settings
from gridengine.system import wait_for_signal
from gridengine.worker.forkserver import restore_dispositions, unblock

log = logging.getLogger("gridengine")

NOT_AGAIN = 2
"""The exit status of a process that must not be started again: it would fail in the same way."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0
STEADY_SECONDS = 60.0
"""A process that dies after this long has not failed in its start."""
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2})
"""The signals that end a dispatcher, and its supervisor, in order. Grid Engine announces SIGKILL by
SIGUSR2 (qsub(1), -notify).
"""
_WATCHED = ENDING | {signal.SIGCHLD}


def main(arguments: Sequence[str]) -> int:
    """Run a dispatcher until it is told to end, or its parent has ended; return the exit status."""
    folder = DispatcherFolder(Path(arguments[0]))
    inherited = Inherited(*map(int, arguments[1:]))
    for descriptor in inherited.descriptors:
        os.set_inheritable(descriptor, False)
    restore_dispositions()
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO
    )
    if folder.options().restarts and inherited.supervisor == NONE:
        return supervise(_Starts(folder.path, inherited))
    return _Process(folder, inherited).run()


class _Starts:
    """Starts the process of a dispatcher. The first start passes on everything that this process
    has inherited; later ones leave out the pipe for `READY`, which is closed.
    """

    def __init__(self, path: Path, inherited: Inherited) -> None:
        self._path = path
        self._inherited = inherited._replace(supervisor=os.getpid())

    def __call__(self) -> subprocess.Popen[bytes]:
        mine = self._inherited
        process = subprocess.Popen(
            process_command(self._path, mine), stdin=subprocess.DEVNULL, pass_fds=mine.descriptors
        )
        if mine.ready != NONE:
            os.close(mine.ready)
            self._inherited = mine._replace(ready=NONE)
        return process


def supervise(start: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Start a process, and start it again after a pause each time that it dies. Return its exit
    status when it has ended in order, or with `NOT_AGAIN`.

    Signals in `ENDING` are passed on to the process, which is then waited for. `start` must unblock
    signals in it. The pause doubles, up to a minute, while the process keeps dying in its start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    pause, process = FIRST_PAUSE_SECONDS, start()
    while True:
        began = time.monotonic()
        status, told = _wait(process)
        if status in (0, NOT_AGAIN) or told:
            return status
        if time.monotonic() - began > STEADY_SECONDS:
            pause = FIRST_PAUSE_SECONDS
        log.error("the dispatcher died: %s; it is started again", exit_words(status))
        again = None
        while again is None:
            if _told_within(pause):
                return status
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                again = start()
            except OSError as error:  # no process or memory is free just now
                log.error("the dispatcher cannot be started: %s", error)
        process = again


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, bool]:
    """Return the exit status of a process, and whether this process was told to end."""
    told = False
    while (status := process.poll()) is None:
        number = signal.sigwait(_WATCHED)
        if number in ENDING:
            told = True
            process.send_signal(number)
    return status, told


def _told_within(seconds: float) -> bool:
    """Return whether this process is told to end within this time."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if wait_for_signal(_WATCHED, left) in ENDING:
            return True
    return False


class _Process:
    """Runs a dispatcher in this process."""

    def __init__(self, folder: DispatcherFolder, inherited: Inherited) -> None:
        self._folder = folder
        self._inherited = inherited
        self._lock = LockFile(inherited.lock)
        self._stopped = threading.Event()
        self._begun = False

    def run(self) -> int:
        """Run the dispatcher until it is told to end; return the exit status."""
        if self._is_replaced():
            return NOT_AGAIN
        from gridengine.dispatcher.standalone.serve import serve  # imports ZeroMQ

        wake, woken = socket.socketpair()
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        for number in ENDING:
            signal.signal(number, lambda number, frame: None)  # the wakeup descriptor is enough
        unblock()
        threading.Thread(target=self._watch, args=(wake,), daemon=True).start()
        folder, supervisor = self._folder, self._inherited.supervisor
        self._lock.write(Holder.here(0 if supervisor == NONE else supervisor))
        options = folder.options()
        try:
            with make_scheduler(options) as scheduler:
                serve(
                    folder.path,
                    scheduler,
                    settings(),
                    stopped=self._stopped,
                    ready=self._is_ready,
                    temporary=options.temporary,
                    output=self._inherited.output,
                )
        except GridEngineError as error:
            log.error("%s", error)
            self._tell(str(error))
            self._lock.write(None)
            if isinstance(error, JournalError | VersionMismatch):
                return NOT_AGAIN  # no time mends that
            return 1 if self._begun or self._inherited.ready == NONE else NOT_AGAIN
        if options.temporary:
            shutil.rmtree(folder.path, ignore_errors=True)
        else:
            self._lock.write(None)
        log.info("ended")
        return 0

    def _is_ready(self) -> None:
        self._begun = True
        log.info("process %d runs the dispatcher %s", os.getpid(), self._folder.name)
        self._tell(READY)

    def _tell(self, words: str) -> None:
        """Tell the process that started this one, once."""
        ready = self._inherited.ready
        if ready != NONE:
            with contextlib.suppress(BrokenPipeError):  # that process was killed meanwhile
                os.write(ready, words.encode())
            os.close(ready)
            self._inherited = self._inherited._replace(ready=NONE)

    def _watch(self, wake: socket.socket) -> None:
        """Wait for a signal, or the parent's end. Meanwhile keep the log within its limit, and
        touch the lock file.
        """
        parent = self._inherited.parent
        watched: list[socket.socket | int] = [wake, *([] if parent == NONE else [parent])]
        limits = [LogLimit(2, settings().log_bytes)] if self._logs_to_file() else []
        while not select.select(watched, [], [], TOUCH_SECONDS)[0]:
            for limit in limits:
                limit.check()
            self._show_lock()
        self._stopped.set()

    def _show_lock(self) -> None:
        """Touch the lock file, to show that the lock is held. If another machine has taken the
        dispatcher over, end this process as if it were killed: everything in the folder belongs to
        the other process now.
        """
        try:
            self._lock.touch()
        except OSError as error:
            log.warning("%s cannot be written: %s", self._folder.lock, error)
        if self._is_replaced():
            os._exit(NOT_AGAIN)

    def _is_replaced(self) -> bool:
        """Return whether another machine has taken this dispatcher over; if so, log that."""
        replaced = self._lock.is_replaced(self._folder.lock)
        if replaced:
            log.error(
                "this process was silent, and another runs the dispatcher now: %s",
                self._folder.holder(),
            )
        return replaced

    def _logs_to_file(self) -> bool:
        """Return whether standard error is the dispatcher's own log, not a file of the user's."""
        try:
            return os.path.samestat(os.fstat(2), self._folder.log.stat())
        except OSError:
            return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
