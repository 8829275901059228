"""`watch`: calls a function with a dispatcher's status, again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gridengine.arguments import number
from gridengine.client.connect import dispatcher_of, resolve
from gridengine.errors import safe_repr
from gridengine.schedulers.base import Scheduler
from gridengine.status.rows import Status, merged
from gridengine.threads import Closing

log = logging.getLogger("gridengine")


class NewestStatus:
    """Hands a thread the newest status, with the events of those that were not taken: they may come
    faster than it takes them. Its methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: Status | None = None
        self._over = False

    def put(self, one: Status | None) -> None:
        """Hold this status; None says that no more come."""
        with self._changed:
            if one is None:
                self._over = True
            else:
                self._held = one if self._held is None else merged(self._held, one)
            self._changed.notify_all()

    def get(self) -> Status | None:
        """Wait for a status and return it; None when no more come."""
        with self._changed:
            self._changed.wait_for(lambda: self._held is not None or self._over)
            one, self._held = self._held, None
            return one


class Watch(Closing):
    """The result of `watch`. Use it in a `with`, or close it; it ends by itself when the scheduler
    is closed.
    """

    def __init__(
        self, callback: Callable[[Status], object], scheduler: Scheduler, interval: float
    ) -> None:
        self._callback = callback
        self._dispatcher = dispatcher_of(scheduler)
        self._closed = False
        self._newest = NewestStatus()
        self._followed = self._dispatcher.follow(self._newest.put, interval)
        self._thread = threading.Thread(target=self._run, name="gridengine-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # `get` returns None when the scheduler is closed or its dispatcher has ended.
        while (status := self._newest.get()) is not None and not self._closed:
            try:
                self._callback(status)
            except Exception as error:
                log.warning(
                    "the watching function is not called any more: it raised %s", safe_repr(error)
                )
                break
        self._dispatcher.unfollow(self._followed)

    def close(self) -> None:
        """Call the function no more; wait until a call of it in progress has ended. May be called
        twice.
        """
        self._closed = True
        self._newest.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def watch(
    callback: Callable[[Status], object],
    scheduler: Scheduler | str | None = None,
    *,
    interval: float = 1.0,
) -> Watch:
    """Call a function with the status of a scheduler's dispatcher, again and again.

        with gridengine.watch(lambda status: print(status.done, status.left_seconds)):
            gridengine.map(train, rates)

    The function is called at once, after each `interval`, and a last time when the scheduler is
    closed. The `events` of a status are those of calls and workers since the previous status.

    The function is called in a thread of its own, which nothing waits for: a slow function is
    called less often. If it raises an exception, that is logged, and the function is called no
    more.

    Args:
        callback: called with a `gridengine.Status`.
        scheduler: the scheduler of the dispatcher: an instance, or a name as for `map`.
        interval: the seconds between two calls, at least 0.1.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value, or the scheduler is
        closed.
        GridEngineError: its dispatcher does not answer.
    """
    if not callable(callback):
        raise TypeError(f"{callback!r} is not callable")
    seconds = number("interval", interval)
    chosen, ours = resolve(scheduler)
    if ours:
        chosen.close()
        raise TypeError(f"scheduler must be a scheduler, or its name, not {scheduler!r}")
    return Watch(callback, chosen, seconds)
