"""A script that gets its Ctrl-C at one point after the other of a call that never ends: `python -m
tests.support.interrupted_at WAY WORKERS`. It prints, as JSON, the number of points, and what went
wrong at which.

A point is a line that the main thread runs; there the signal is noted as if it had just come, so
that Python raises its exception where it next looks for signals. The last point is the wait itself,
where another thread receives the signal.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import gridengine
from gridengine.schedulers.base import Scheduler
from tests.support import tiny_batch
from tests.support.standalone import Standalone
from tests.support.tcp_scheduler import TcpScheduler

SPREAD, LAST = 101, 30
"""Every so many lines are tried, and all of the last before the wait."""
STILL_SECONDS = 0.6
"""A main thread that runs no line for so long waits for the call."""
SECONDS = 15.0


class Noted(int):
    """The number of a signal. To read `now` notes it; a call would at once look for signals."""

    now = property(_thread.interrupt_main)


SIGINT = Noted(signal.SIGINT)


@contextlib.contextmanager
def client(folder: Path) -> Iterator[Scheduler]:
    dispatcher = Standalone(folder)
    try:
        with gridengine.Client(dispatcher.path) as scheduler:
            yield scheduler
    finally:
        dispatcher.end()


def commands(folder: Path) -> Scheduler:
    tiny_batch.install(folder)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    return tiny_batch.TinyScheduler(max_workers=1)


WORKERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Scheduler]]] = {
    "processes": lambda folder: gridengine.ProcessScheduler(1),
    "tcp": lambda folder: TcpScheduler(1),
    "commands": commands,
    "client": client,
}


def never_ends(x: int) -> None:
    signal.pause()


def by_map() -> None:
    gridengine.map(never_ends, range(4), scheduler=scheduler, chunksize=1)


def by_imap() -> None:
    with gridengine.imap(never_ends, range(4), scheduler=scheduler) as results:
        list(results)


def by_executor() -> None:
    with gridengine.Executor(scheduler=scheduler) as executor:
        executor.submit(never_ends, 1).result()


class Point:
    """One Ctrl-C, at the line of this number; None is during the wait."""

    def __init__(self, number: int | None) -> None:
        self.number, self.lines, self.where = number, 0, "during the wait"
        self.sent = self.over = False

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.number and not self.sent:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.sent = True
                sys.settrace(None)
                frame.f_trace = None
                SIGINT.now  # noqa: B018
                return None
        return self.trace

    def watch(self) -> None:
        """Send the signal once the main thread waits; and again if the first was in vain."""
        lines, since = -1, time.monotonic()
        while not self.over:
            time.sleep(0.02)
            if lines != self.lines:
                lines, since = self.lines, time.monotonic()
            if not self.sent and time.monotonic() - since > STILL_SECONDS:
                self.sent, since = True, time.monotonic()
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            elif self.sent and time.monotonic() - since > SECONDS:
                self.where += ", where it was lost,"
                since = time.monotonic()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def fault(self, act: Callable[[], object]) -> str | None:
        """Call `act`, which never ends; return what went wrong."""
        watcher = threading.Thread(target=self.watch, daemon=True)
        watcher.start()
        raised: BaseException | None = None
        try:
            sys.settrace(self.trace)
            act()
        except BaseException as error:
            sys.settrace(None)
            raised = error.with_traceback(None)
        self.over = True
        watcher.join()
        # As Python has it where a Ctrl-C comes while a thread starts.
        whole = raised.__context__ if isinstance(raised, RuntimeError) else raised
        raised = None if raised is None else raised.with_traceback(None)
        if not isinstance(whole, KeyboardInterrupt) or "lost" in self.where:
            return f"{self.where} it raised {raised!r}"
        whole.__traceback__ = whole.__context__ = None
        return None if is_idle() else f"{self.where} it left a call"


def is_idle() -> bool:
    """Wait until the scheduler has no calls; return whether it is so within some seconds."""
    until = time.monotonic() + SECONDS
    while (status := scheduler.status()) is not None and (status.tasks or status.running):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def faults(act: Callable[[], object]) -> Iterator[str | None]:
    """Yield for each point what went wrong, if anything did."""
    gridengine.map(abs, range(4), scheduler=scheduler)
    for _ in range(2):  # the first time runs more lines: it imports
        last = Point(None)
        yield last.fault(act)
    for number in [*range(1, last.lines, SPREAD), *range(max(last.lines - LAST, 1), last.lines)]:
        yield Point(number).fault(act)
    assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]


if __name__ == "__main__":
    _, way, workers = sys.argv
    with (
        tempfile.TemporaryDirectory() as temporary,
        WORKERS[workers](Path(temporary)) as scheduler,
    ):
        found = [*faults(globals()[f"by_{way}"])]
    print(json.dumps({"points": len(found), "faults": [one for one in found if one]}))
