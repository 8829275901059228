"""`supervise`: starts a process again whenever it is killed, until it ends in order."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Callable

from gridengine.errors import exit_words

log = logging.getLogger("gridengine")

NOT_AGAIN = 2
"""The exit status of a process that is not to be started again: it would fail as it did."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0
STEADY_SECONDS = 60.0
"""After how long a process that dies has not died of its start."""
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2})
"""What ends a dispatcher, and who supervises it, in order; Grid Engine announces SIGKILL by SIGUSR2
(qsub(1), -notify).
"""
_WATCHED = ENDING | {signal.SIGCHLD}


def supervise(start: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Start a process, and again after a pause each time that it dies; return its exit status when
    it has ended in order, or as one that is not to be started again.

    What is to end this process is passed on to the other, which is waited for. `start` has to
    unblock signals in it. The pause doubles, up to a minute, while it keeps dying of its start.
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
            except OSError as error:  # no process or memory is left just now
                log.error("the dispatcher cannot be started: %s", error)
        process = again


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, bool]:
    """Return the exit status of a process, and whether this one was told to end."""
    told = False
    while (status := process.poll()) is None:
        number = signal.sigwait(_WATCHED)
        if number in ENDING:
            told = True
            process.send_signal(number)
    return status, told


def _told_within(seconds: float) -> bool:
    """Return whether this process is told to end while so much time passes."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        received = signal.sigtimedwait(_WATCHED, left)
        if received is not None and received.si_signo in ENDING:
            return True
    return False
