"""A socket that is made of files: both ends of a session through the exchange folder of a run use
it where others use a socket of ZeroMQ. `exchange_folder` says how the files are written and read.

    send -> queue -> thread -> files in the receiver's folder
    files in the own folder -> thread -> queue, descriptor -> receive

A thread of its own writes and reads, because a file server may take seconds for anything: the loop
that sends and receives never waits for it. The thread looks for files every `QUICK_SECONDS` while
messages come and go, and less often the longer there are none, up to every `SLOW_SECONDS`. Signs of
life do not count as messages, so a worker in a long call asks the file server for one folder each
second.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
import time
from collections import deque
from pathlib import Path

from gridengine.display import log
from gridengine.errors import GridEngineError, safe_repr
from gridengine.system.polling import Wakeup
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.exchange_folder import (
    ALIVE,
    ALIVE_SECONDS,
    DISPATCHER,
    MOST_BYTES,
    Gone,
    Inbox,
    Outbox,
)
from gridengine.wire.session import Frames, is_beat

QUICK_SECONDS, SLOW_SECONDS = 0.1, 1.0
_PATIENCE = 8
"""A look comes after this fraction of the time since the last message: so it finds a message after
an eighth of the time that the message took.
"""
RETRY_SECONDS = 1.0
"""When a file cannot be written, as on a full disk, it is tried again after this time."""
FORGET_SECONDS = 60.0
"""How long the folder of a worker that is lost stays: it may come back, and is to be refused."""
_GONE_LOOKS = 3
"""A folder that was missing so often in a row is gone."""
_CLOSE_SECONDS = 5.0
_MARK_SECONDS = ALIVE_SECONDS / 6


class Files:
    """Writes and reads the files of one end, at times that `deadline` says. For one thread.

    Args:
        exchange: the exchange folder.
        own: the name of this end's folder.
        sender: the name of this end in the names of files.
        key: the run's.
    """

    def __init__(self, exchange: Path, own: str, sender: str, key: bytes) -> None:
        self._exchange, self._sender, self._key = exchange, sender, key
        self._inbox = Inbox(exchange / own, key)
        self._outboxes: dict[str, Outbox] = {}
        self._mark = exchange / ALIVE if own == DISPATCHER else None
        self._mark_at = self._look_at = self._active_at = -math.inf
        self._waiting: dict[str, float] = {}
        """The peers for whom envelopes are queued, and when to write next."""
        self._unwritable = set[str]()
        """The peers to whom the last write failed."""
        self._forgotten: dict[str, float] = {}
        """The peers that are gone, and when to remove their folders."""
        self._missing = 0
        self._failing = set[str]()
        """The failures that were logged and have not passed."""

    @property
    def is_gone(self) -> bool:
        """Whether the folder of this end has been removed."""
        return self._missing >= _GONE_LOOKS

    @property
    def is_sent(self) -> bool:
        """Whether all envelopes have been written."""
        return not self._waiting

    @property
    def deadline(self) -> float:
        """When `step` must be called again."""
        mark_at = math.inf if self._mark is None else self._mark_at
        times = (self._look_at, mark_at, *self._waiting.values(), *self._forgotten.values())
        return min(times)

    def put(self, peer: str, frames: Frames, now: float) -> None:
        """Queue an envelope for a peer."""
        outbox = self._outboxes.get(peer)
        if outbox is None:
            outbox = Outbox(self._exchange / peer, self._sender, self._key)
            self._outboxes[peer] = outbox
        outbox.put(frames)
        self._waiting.setdefault(peer, -math.inf)
        if not is_beat(frames):
            self._be_quick(now)

    def forget(self, peer: str, now: float) -> None:
        """Drop the envelopes that are queued for a peer, and remove its folder later."""
        self._drop(peer)
        self._forgotten[peer] = now + FORGET_SECONDS

    def _be_quick(self, now: float) -> None:
        self._active_at = now
        self._look_at = min(self._look_at, now + QUICK_SECONDS)

    def step(self, now: float, *, reads: bool = True) -> list[tuple[str, Frames]]:
        """Write the queued envelopes, and do everything else that is due. Return the envelopes that
        have arrived, each with its sender; none unless `reads`.
        """
        self._write(now)
        self._tend(now)
        if now < self._look_at:
            return []
        came = self._read() if reads else []
        if any(not is_beat(frames) for _, frames in came):
            self._active_at = now
        for sender, _ in came:
            self._forgotten.pop(sender, None)
        quiet = (now - self._active_at) / _PATIENCE
        self._look_at = now + min(SLOW_SECONDS, max(QUICK_SECONDS, quiet))
        return came

    def _write(self, now: float) -> None:
        doing = f"write to {self._exchange}"
        for peer in [peer for peer, at in self._waiting.items() if now >= at]:
            try:
                written = self._outboxes[peer].flush()
            except Gone:
                self._drop(peer)
            except OSError as error:
                self._waiting[peer] = now + RETRY_SECONDS
                self._unwritable.add(peer)
                self._tell_failure(doing, error)
            else:
                if not written:  # nothing may have been tried
                    self._waiting[peer] = now + QUICK_SECONDS
                    continue
                del self._waiting[peer]
                self._unwritable.discard(peer)
                if not self._unwritable:
                    self._tell_success(doing)

    def _drop(self, peer: str) -> None:
        """Drop the envelopes that are queued for a peer. Its outbox stays: the numbers of files go
        on.
        """
        if peer in self._outboxes:
            self._outboxes[peer].clear()
            self._waiting.pop(peer, None)
            self._unwritable.discard(peer)

    def _read(self) -> list[tuple[str, Frames]]:
        doing = f"read {self._exchange}"
        try:
            came = self._inbox.take()
        except Gone:
            self._missing += 1
        except OSError as error:
            self._tell_failure(doing, error)
        else:
            self._missing = 0
            self._tell_success(doing)
            return came
        return []

    def _tend(self, now: float) -> None:
        """Touch the dispatcher's mark, and remove the folders of peers that are gone."""
        if self._mark is not None and now >= self._mark_at:
            self._mark_at = now + _MARK_SECONDS
            with contextlib.suppress(OSError):  # what is wrong with the folder is told elsewhere
                os.utime(self._mark)
        for peer in [peer for peer, at in self._forgotten.items() if now >= at]:
            del self._forgotten[peer]
            self._drop(peer)
            self._outboxes.pop(peer, None)
            self._inbox.forget(peer)
            shutil.rmtree(self._exchange / peer, ignore_errors=True)

    def _tell_failure(self, doing: str, error: OSError) -> None:
        if doing not in self._failing:
            self._failing.add(doing)
            reason = error.strerror or error
            log().warning("cannot %s: %s; it is tried again each second", doing, reason)

    def _tell_success(self, doing: str) -> None:
        if doing in self._failing:
            self._failing.remove(doing)
            log().warning("it was possible again to %s", doing)


class FileSocket:
    """Sends and receives envelopes in a thread of its own. The other methods are for one thread.

    Args: as `Files`; `clock` is that of the loop that uses it.
    """

    def __init__(
        self, exchange: Path, own: str, sender: str, key: bytes, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._files = Files(exchange, own, sender, key)
        self._notice = Wakeup()
        self.fd = self._notice.fd
        """Readable when something has arrived, or the folder is gone."""
        self._wake = threading.Event()
        self._asked = deque[tuple[str, Frames | None]]()
        """Envelopes to send, by their receivers; None forgets a receiver."""
        self._arrived = deque[tuple[str, Frames]]()
        self._came = self._taken = 0
        """The bytes that have arrived, as the thread counts, and those that were received."""
        self._closing_at: float | None = None
        self._failure: BaseException | None = None
        self.is_gone = False
        """Whether this end's folder has been removed."""
        self._thread = threading.Thread(target=self._work, name="gridengine-files", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> bool:
        """Whether an envelope can be received now."""
        return bool(self._arrived)

    def send(self, peer: str, frames: Frames) -> None:
        """Send a peer an envelope. Never waits."""
        self._asked.append((peer, frames))
        self._wake.set()

    def forget(self, peer: str) -> None:
        """Drop the envelopes for a peer that are not written yet, and remove its folder later."""
        self._asked.append((peer, None))
        self._wake.set()

    def receive(self) -> tuple[str, Frames] | None:
        """Return the next envelope with its sender; None if none has arrived.

        Raises:
            GridEngineError: the thread has failed.
        """
        if not self._arrived:
            with contextlib.suppress(BlockingIOError):
                self._notice.clear()
            if self._failure is not None:
                raise GridEngineError(
                    f"messages can be exchanged no more: {safe_repr(self._failure)}"
                ) from self._failure
            if not self._arrived:  # it may have arrived before the descriptor was read
                return None
        sender, frames = self._arrived.popleft()
        self._taken += sum(map(len, frames))
        return sender, frames

    def _work(self) -> None:
        try:
            with self._clock.waking(self._wake.set):
                while self._closing_at is None:
                    wait = self._step(self._clock.monotonic())
                    self._wake.wait(wait)
                    self._wake.clear()
            self._finish(self._closing_at)
        except BaseException as error:
            self._failure = error
            self._notice.set()

    def _step(self, now: float) -> float:
        """Do everything that is due. Return after how many seconds to call this again."""
        self._take_asked(now)
        # What the loop has not received yet stays in the folder, and keeps the senders waiting.
        came = self._files.step(now, reads=self._came - self._taken < MOST_BYTES)
        self._came += sum(len(frame) for _, frames in came for frame in frames)
        self._arrived += came
        if came or self._files.is_gone != self.is_gone:
            self.is_gone = self._files.is_gone
            self._notice.set()
        return max(0.0, self._files.deadline - now)

    def _take_asked(self, now: float) -> None:
        while self._asked:
            peer, frames = self._asked.popleft()
            if frames is None:
                self._files.forget(peer, now)
            else:
                self._files.put(peer, frames, now)

    def _finish(self, until: float) -> None:
        """Write the remaining envelopes until the time `until`."""
        while True:
            now = self._clock.monotonic()
            self._take_asked(now)
            self._files.step(now, reads=False)
            if self._files.is_sent or time.monotonic() >= until:
                return
            self._wake.clear()
            self._wake.wait(QUICK_SECONDS / 2)

    def close(self, linger_seconds: float) -> None:
        """End the thread, once it has written all envelopes, or after this time. May be called
        twice.
        """
        if self._closing_at is None:
            self._closing_at = time.monotonic() + linger_seconds
            self._wake.set()
            self._thread.join(linger_seconds + _CLOSE_SECONDS)
            if not self._thread.is_alive():  # else a file server keeps it waiting
                self._notice.close()
