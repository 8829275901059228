"""The progress of executors and pools. Their users wait in ways that this package cannot see, so a
thread looks at their calls.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref

from gridengine.api.progress import REFRESH_SECONDS, ProgressBar
from gridengine.api.progress_displays import ProgressSpec, in_notebook
from gridengine.client.settlement import Tally
from gridengine.client.submitter import Submitter
from gridengine.settings.schema import is_interactive
from gridengine.settings.values import settings

IDLE_LOOKS = 8
"""The thread ends after this many consecutive looks without an open call."""


def show_progress(submitter: Submitter, shown: ProgressSpec, label: str) -> None:
    """Show the progress of a submitter's calls from now on, whoever waits for them."""
    dispatcher = submitter.batcher.dispatcher
    wanted = settings().progress if shown is None else shown
    # At a prompt the user types while calls run: draw nothing there unless progress= is given.
    unwanted = dispatcher.call_slot is not None or (is_interactive() and not in_notebook())
    if wanted is False or (shown is None and unwanted):
        return
    if dispatcher.at_once and wanted is True:
        return  # as with `map`, there is no bar for calls in this process
    SubmitterProgress(submitter, wanted, label)


class SubmitterProgress:
    """A bar for the calls of a submitter: a new one whenever a first call is open, until none is. A
    user's own bar lasts for the submitter's life.
    """

    def __init__(self, submitter: Submitter, shown: ProgressSpec, label: str) -> None:
        self._batcher = submitter.batcher
        self._shown, self._label = shown, label
        self._lock = threading.Lock()
        self._bar: ProgressBar | None = None
        self._number = 0
        self.tally = self._batcher.tally = Tally(
            lambda: _watcher_of(os.getpid()).watch(self),
            self.close,
            restarts=isinstance(shown, bool),
        )

    def look(self) -> bool:
        """Update the bar; return whether calls are open."""
        with self._lock:
            with self._batcher.lock:
                tally = self.tally
                number, is_open = tally.number, tally.is_open
                counts = tally.done, tally.failed, tally.total
            restarts = isinstance(self._shown, bool)
            if restarts and self._number != number:
                self._end_bar()
            self._number = number
            if self._bar is None and (is_open or (number and not restarts)):
                batcher = self._batcher
                self._bar = ProgressBar(
                    lambda: batcher.dispatcher.snapshot().of(batcher.submitter),
                    shown=self._shown,
                    label=self._label,
                )
            if self._bar is not None:
                self._bar.update(*counts)
                if restarts and not is_open:
                    self._end_bar()
            return is_open

    def close(self) -> None:
        """Draw a last time, and close the bar."""
        self.look()
        with self._lock:
            self._end_bar()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class ProgressWatcher:
    """The thread that updates bars, while there are open calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: weakref.WeakSet[SubmitterProgress] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def watch(self, progress: SubmitterProgress) -> None:
        """Watch these calls as long as some are open."""
        with self._lock:
            self._watched.add(progress)
            if self._thread is None:
                # No thread starts at the interpreter's end; then there is no bar.
                with contextlib.suppress(RuntimeError):
                    thread = threading.Thread(
                        target=self._run, name="gridengine-progress", daemon=True
                    )
                    thread.start()
                    self._thread = thread
            progress.tally.watched = self._thread is not None

    def _run(self) -> None:
        idle_looks = 0
        while True:
            time.sleep(REFRESH_SECONDS)
            with self._lock:
                watched = list(self._watched)
            is_open = [one.look() for one in watched]
            idle_looks = 0 if any(is_open) else idle_looks + 1
            if idle_looks >= IDLE_LOOKS:
                with self._lock:
                    if not self._are_open():
                        self._thread = None
                        return

    def _are_open(self) -> bool:
        """Return whether calls are open. If not, the submitter with the next call starts the thread
        again.
        """
        watched = list(self._watched)
        # Clear the flag before looking: a submitter that begins meanwhile calls `watch`, which
        # waits for the lock and starts a thread.
        for one in watched:
            one.tally.watched = False
        found = any(one.tally.is_open for one in watched)
        for one in watched:
            one.tally.watched = found
        return found


@functools.lru_cache(maxsize=1)
def _watcher_of(pid: int) -> ProgressWatcher:
    """Return the watcher of this process. A forked process has no thread of its parent."""
    return ProgressWatcher()
