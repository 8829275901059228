"""The messages of one map (`notify=`): at its first failed call, and at its end."""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import CancelledError

from gridengine.client.map_run import MapResults
from gridengine.errors import safe_repr
from gridengine.watching.notices import ENDED, FAILED, LEAST_SECONDS, Notice, Notifier, Receiver


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
        if self._sending is None:
            notice = self._notice(FAILED, results, total)
            self._sending = threading.Thread(target=self._notifier.send, args=(notice,))
            self._sending.start()

    def ended(self, results: MapResults, total: int | None) -> None:
        """Send the message of the end, after that of the first failure."""
        notice = self._notice(ENDED, results, total)
        if self._sending is not None:
            self._sending.join()
        if self._always or notice.error or notice.seconds >= LEAST_SECONDS:
            self._notifier.send(notice)

    def _notice(self, event: str, results: MapResults, total: int | None) -> Notice:
        errors = list(results.errors.values())
        failed = [one for one in errors if not isinstance(one, CancelledError)]
        known = len(results.values)
        left = results.missing + max(0, (total or 0) - known)
        return Notice(
            event=event,
            name=self._name,
            done=known - results.missing - len(errors),
            failed=len(failed),
            cancelled=len(errors) - len(failed),
            left=left,
            seconds=round(time.monotonic() - self._began, 1),
            error=safe_repr(failed[0]) if failed else "",
            host=socket.gethostname(),
            pid=os.getpid(),
            more=f"gridengine calls {os.getpid()} --failed",
        )
