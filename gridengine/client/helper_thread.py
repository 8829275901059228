"""A thread that does what it is asked to, one after the other."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("gridengine")


class HelperThread:
    """A thread that does in order what it is asked to; `do` takes a request."""

    def __init__(self, name: str) -> None:
        self._requests: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.do = self._requests.put
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def end(self, *, wait: bool) -> None:
        """Do what was asked before, and end."""
        self._requests.put(None)
        if wait and not self.is_current():
            self._thread.join()

    def is_current(self) -> bool:
        """Return whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                request()
            except BaseException:  # what ends a thread must not end the requests that follow
                log.exception("a request failed; this is a fault of gridengine")
            del request
