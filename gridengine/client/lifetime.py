"""Shutdown of executors and pools: after their last call, or at the interpreter's exit."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from gridengine.client.log_relay import drain_logs
from gridengine.dispatcher.thread_queues import HelperThread
from gridengine.errors import ConfigurationError
from gridengine.schedulers.base import Scheduler

log = logging.getLogger("gridengine")


class Lifetime(ABC):
    """Counts the calls that have not ended, and closes once there are none.

    Args:
        scheduler: kept alive until this was closed and all its calls have ended.
        ours: whether the scheduler is closed then.
        daemon: whether the interpreter's exit ends the calls instead of waiting for them.
    """

    def __init__(self, scheduler: Scheduler, *, ours: bool, daemon: bool) -> None:
        self.lock = threading.Lock()
        """Held for moments, to change futures and this object, and never during a wait."""
        self._scheduler: Scheduler | None = scheduler
        self._ours = ours
        self._daemon = daemon
        self._owner = os.getpid()
        self._closed = False
        self._open = 0
        """How many calls have not ended; a submission counts as one."""
        self._all_ended = threading.Condition(self.lock)
        self._awaited = False
        """Whether any thread has waited for `_all_ended`; otherwise the end of the last call
        notifies nobody.
        """
        self.broken: str | None = None
        """Why no more calls can be made; None while they can."""
        self._finishing = threading.Lock()
        self._finished = self._finish_at_end = False
        self._helper = HelperThread("gridengine-helper")
        self._callbacks: HelperThread | None = None
        atexit.register(self._at_exit)

    def check(self) -> None:
        """Check that calls may be submitted.

        Raises:
            BrokenProcessPool: the initializer has failed.
            RuntimeError: this was closed.
            ConfigurationError: this belongs to the process that this one was forked from.
        """
        if self.broken is not None:
            # Imported here, because it imports much.
            from concurrent.futures.process import BrokenProcessPool

            raise BrokenProcessPool(self.broken)
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._owner != os.getpid():
            raise ConfigurationError(
                "this executor belongs to the process that this one was forked from",
                hint="make one after the fork",
            )

    def _note_ended(self, number: int) -> None:
        """Note, under the lock, that `number` calls have ended."""
        self._open -= number
        if not self._open:
            if self._awaited:
                self._all_ended.notify_all()
            if self._finish_at_end:
                self._helper.do(lambda: self._finish(wait=False))

    @abstractmethod
    def kill_all(self) -> None:
        """Take no more calls, and end all calls."""

    def stop(self) -> None:
        """Take no more calls."""
        with self.lock:
            self._closed = True

    def close(self, *, wait: bool) -> None:
        """Take no more calls; when all calls have ended, close the scheduler if it is ours. The
        garbage collector may call this, in any thread and at any point.
        """
        self._closed = True
        if not wait:
            self._helper.do(self._finish_soon)
        elif self._owner == os.getpid():
            self.join()
            self._finish(wait=True)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have ended; return whether they have within `timeout` seconds."""
        with self._all_ended:
            self._awaited = True
            return self._all_ended.wait_for(lambda: not self._open, timeout)

    def _finish_soon(self) -> None:
        """Have the helper thread finish once all calls have ended. The thread exists already: from
        Python 3.12 on none can be started while the interpreter ends.
        """
        with self.lock:
            self._finish_at_end = bool(self._open)
        if not self._finish_at_end:
            self._finish(wait=False)

    def _finish(self, *, wait: bool) -> None:
        """Close what belongs to this object, once. Without `wait`, return at once if another thread
        is closing it: the helper thread must not wait for a thread that may wait for it.
        """
        if not self._finishing.acquire(blocking=wait):
            return
        try:
            if self._finished:
                return
            with self.lock:
                self._finished = True
            atexit.unregister(self._at_exit)
            for helper in (self._helper, self._callbacks):
                if helper is not None:
                    helper.end(wait=wait)
            scheduler, self._scheduler = self._scheduler, None
            if self._ours and scheduler is not None:
                scheduler.close()
            if wait:
                drain_logs()
        finally:
            self._finishing.release()

    def _at_exit(self) -> None:
        """Wait for all calls, as the standard library does, unless an exception ends the
        interpreter.
        """
        if self._owner != os.getpid() or (
            getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
        ):
            return
        if self._daemon:
            self.kill_all()
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C, while the first is logged
            try:
                self.close(wait=True)
            except KeyboardInterrupt:  # the scheduler's own exit handler ends the remaining calls
                log.warning("interrupted while waiting for calls; they are ended")

    # ---------------------------------------------------------------- callbacks
    # They are user code, which may take long. So they have a thread of their own.

    def prepare_callbacks(self) -> None:
        """Make the thread in which callbacks are called."""
        with self.lock:
            if self._callbacks is None:
                self._callbacks = HelperThread("gridengine-callbacks")

    def call_back(self, act: Callable[[], object]) -> None:
        """Call a function in the thread of the callbacks. Call it here if this is that thread, or
        if that thread has ended.
        """
        self.prepare_callbacks()
        assert self._callbacks is not None
        with self.lock:
            elsewhere = not self._finished and not self.is_callback_thread()
            if elsewhere:
                self._callbacks.do(act)
        if not elsewhere:
            act()

    def do_soon(self, act: Callable[[], object]) -> None:
        """Call a function in the helper thread, or here if that thread has ended."""
        with self.lock:
            elsewhere = not self._finished
            if elsewhere:
                self._helper.do(act)
        if not elsewhere:
            act()

    def is_callback_thread(self) -> bool:
        """Return whether the caller runs in the thread of the callbacks."""
        return self._callbacks is not None and self._callbacks.is_current()
