"""The messages of one map (`notify=`): at its first failed call, and at its end."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import CancelledError

from gridengine.client.map_run import MapResults
from gridengine.errors import safe_repr
from gridengine.status.rows import Status
from gridengine.watching.notices import (
    ENDED,
    FAILED,
    LEAST_SECONDS,
    Notice,
    Notifier,
    Receiver,
    notice_of,
)


class MapNotices:
    """Sends the messages of a map.

    Args:
        to: gets them.
        name: of the map's function.
        always: whether a quick map without a failure is told too.
    """

    def __init__(self, to: Receiver, name: str, *, always: bool) -> None:
        self._notifier, self._name, self._always = Notifier(to), name, always
        self._began = time.monotonic()
        self._sending: threading.Thread | None = None

    def failed(self, results: MapResults, total: int | None) -> None:
        """Send the message of the first failure, once, while the map goes on."""
        if self._sending is not None:
            return
        notice = self._notice(FAILED, results, total)
        if notice.failed:  # others were cancelled
            self._sending = threading.Thread(target=self._notifier.send, args=(notice,))
            self._sending.start()

    def ended(self, results: MapResults, total: int | None) -> None:
        """Send the message of the end, once the message of the first failure is sent. A map without
        a failure that took less than `LEAST_SECONDS` sends none, unless `always`.
        """
        notice = self._notice(ENDED, results, total)
        if self._sending is not None:
            self._sending.join()
        if self._always or notice.error or notice.seconds >= LEAST_SECONDS:
            self._notifier.send(notice)

    def _notice(self, event: str, results: MapResults, total: int | None) -> Notice:
        errors = list(results.errors.values())
        failed = [one for one in errors if not isinstance(one, CancelledError)]
        known, pid = len(results.values), os.getpid()
        status = Status(
            elapsed_seconds=time.monotonic() - self._began,
            waiting=results.missing + max(0, (total or 0) - known),
            done=known - results.missing - len(errors),
            failed=len(failed),
            cancelled=len(errors) - len(failed),
        )
        error = safe_repr(failed[0]) if failed else ""
        who = {"name": self._name, "host": socket.gethostname(), "pid": pid}
        return notice_of(event, status, error, **who, more=f"gridengine calls {pid} --failed")
