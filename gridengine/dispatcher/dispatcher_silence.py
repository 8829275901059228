"""For how long nothing was heard from a dispatcher in another process, which is looked for then."""

from __future__ import annotations

from gridengine.errors import DispatcherGone
from gridengine.wire.connection_file import ClientConnection

LOOK_SECONDS = 5.0
"""How often, when a beat of the dispatcher is missing, its process is looked at, where that can be
seen, and the connection file is read again.
"""


class DispatcherSilence:
    """For how long nothing has come from the dispatcher, while somebody was here to hear it.

    Args:
        file: its connection file.
        lease: after how many seconds of it the dispatcher is taken to be gone.
        now: in monotonic seconds.
    """

    def __init__(self, file: ClientConnection, lease: float, now: float) -> None:
        self._file = file
        self._lease = lease
        self._most = 2 * file.beat_seconds
        self._seen_at = now
        self._seconds = 0.0
        self._received_at = 0.0
        self._look_at = 0.0

    def is_look_due(self, now: float, received_at: float) -> bool:
        """Return whether the dispatcher is to be looked for, given when something came last: a beat
        of it is missing, and the last look is long enough ago; the next one is not before as long.

        Raises:
            DispatcherGone: it has been silent for the whole lease.
        """
        silent = self._measure(now, received_at)
        if silent > self._lease:
            raise DispatcherGone(
                f"nothing was heard from the dispatcher {self._file.name!r} for {silent:.0f} s",
                hint="see whether it runs: gridengine dispatcher list",
            )
        due = silent > self._file.beat_seconds and now >= self._look_at
        if due:
            self._look_at = now + LOOK_SECONDS
        return due

    def _measure(self, now: float, received_at: float) -> float:
        """Return for how long it has been silent. The time that this process was suspended, as by
        a laptop's lid, hardly counts.
        """
        if received_at != self._received_at:
            self._received_at, self._seconds = received_at, 0.0
        else:
            self._seconds += min(now - self._seen_at, self._most)
        self._seen_at = now
        return self._seconds


def check_process(file: ClientConnection) -> None:
    """Raise `DispatcherGone` when a dispatcher's process has ended, and was the only one."""
    if file.is_gone_for_good():
        raise DispatcherGone(
            f"the dispatcher {file.name!r}, process {file.pid} of this machine, was killed, "
            "and is none that is started again",
            hint="make another LocalDispatcher, and hand in again what has no result; calls "
            "outlive the process of one that is started by `gridengine dispatcher start`",
        )
