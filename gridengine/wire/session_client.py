"""The end of the session that a worker or client has with its dispatcher, whatever carries its
messages: `dispatcher_connection` has the one over TCP, `file_connection` the one through files.

Messages that were under way may be lost. A `Session` at each end sends them again.
"""

from __future__ import annotations

import math
import select
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gridengine.serialize.payload import Buffer
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.framing import OtherProtocol, decode, encode
from gridengine.wire.messages import Beat, ClientWelcome, Message, Refuse, Rejoin, Welcome
from gridengine.wire.session import PIECE, Frames, Session

if TYPE_CHECKING:
    from gridengine.wire.local_connection import LocalConnection

_ASK_SECONDS, LOOK_SECONDS = 0.5, 2.0
"""Two intervals while a worker closes. It sends a beat every `_ASK_SECONDS`, and the answers
acknowledge what has arrived. After `LOOK_SECONDS` of silence it checks whether the dispatcher is
still there.
"""


class SessionClient(ABC):
    """A session with a dispatcher. Each message arrives once and in order. All methods are for one
    thread.
    """

    fd: int
    """The descriptor to wait for. Ask `pending` before each wait."""

    def __init__(self, beat_seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._session = Session(PIECE)
        self.epoch = self.introduced_to = 0
        """`epoch` is the epoch of the dispatcher that accepted this end; the owner sets it.
        `introduced_to` is the epoch that was last sent a first message.
        """
        self.introduce: Callable[[], object] | None = None
        """Called when the dispatcher was started again and does not know this end. It must call
        `begin_again`, send the first message, and send again all messages that were not
        `acknowledged`. With None, an unknown dispatcher counts as a refusal.
        """
        self._beat_seconds = beat_seconds
        self._beat_at = self._introduced_at = 0.0
        self.sign_of_life: Callable[[], Message] = Beat
        """Makes the message that is sent every `beat_seconds`."""
        self.received_at = self._clock.monotonic()
        self._local: LocalConnection | None = None
        """A client's connection to a dispatcher on this machine, open or not."""
        self._beats = 0
        self._doubt: tuple[int, int, float] = (-1, -1, 0.0)
        """How many messages and beats had come, and when, at the first `Rejoin` that may be late.
        """

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether a message can be received now."""

    @abstractmethod
    def _next(self) -> Frames:
        """Return the frames of the next envelope; an empty list when none has arrived."""

    @abstractmethod
    def _send_frames(self, frames: Frames) -> None:
        """Send an envelope. Never waits."""

    def _wait(self, seconds: float) -> None:
        """Wait until something has arrived, at most this many seconds."""
        timeout = 0.0 if self.pending else seconds
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        poller.poll(math.ceil(1000 * timeout))

    @abstractmethod
    def _is_away(self) -> bool:
        """Return whether the dispatcher is seen to be gone."""

    @abstractmethod
    def _close(self) -> None:
        """Release what carries the messages."""

    @abstractmethod
    def _connect_locally(self) -> None:
        """Begin a local connection, if this is a client and its dispatcher is here. Before each
        first message, by which the dispatcher notices it.
        """

    def send(self, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send the dispatcher a message. Never blocks."""
        put = None if self._local is None else self._local.put
        for frames in self._session.number(encode(message, buffers, put)):
            self._send_frames(frames)

    def receive(self) -> list[tuple[Message, list[Buffer]]]:
        """Return all messages that have arrived. One of another protocol version stands for a
        `Refuse` that says so.

        Raises:
            ProtocolError: the dispatcher sent frames that are not a message.
        """
        messages: list[tuple[Message, list[Buffer]]] = []
        while frames := self._next():
            self.received_at = self._clock.monotonic()
            content, answers = self._session.receive(frames)
            for answer in answers:
                self._send_frames(answer)
            if content is not None:
                take = None if self._local is None else self._local.take
                try:
                    message, buffers = decode(content, take)
                except OtherProtocol as error:
                    message, buffers = Refuse(error.message, mismatch=True), []
                if isinstance(message, Beat):
                    self._beats += 1
                else:
                    messages.append((message, buffers))
        return messages

    def rejoin(self, message: Rejoin) -> bool:
        """Introduce this end to a dispatcher of another epoch. Return False when that dispatcher
        does not want it: it had accepted this end and has forgotten it since.

        All messages that were received before this one must have been handled, because the first
        message reports the state that they led to.
        """
        if self.introduce is None:
            return False
        if message.epoch == self.epoch:
            return self._local is not None and not self._is_forgotten()
        if message.epoch != self.introduced_to:
            self.introduced_to = message.epoch
            self.introduce()
        elif self.received_at - self._introduced_at > self._beat_seconds:
            self.send_again()  # the first message got lost
        else:
            return True
        self._introduced_at = self.received_at
        return True

    def _is_forgotten(self) -> bool:
        """Return whether the dispatcher has forgotten this client after it had accepted it.

        One `Rejoin` does not show that. The dispatcher may have sent it by TCP before the welcome,
        and the welcome arrived first by the local connection; such a dispatcher answers the next
        beat with a beat.
        """
        heard, beats, since = self._doubt
        if (heard, beats) == (self._session.received, self._beats):
            return self.received_at - since >= self._beat_seconds
        self._doubt = self._session.received, self._beats, self.received_at
        self.acknowledge()
        return False

    def begin_again(self) -> None:
        """Begin a new, empty session."""
        self._session = Session(PIECE)
        self._connect_locally()

    def send_again(self) -> None:
        """Send all unacknowledged messages of this session again; the receiver drops duplicates."""
        for frames in self._session.again():
            self._send_frames(frames)

    @property
    def sent(self) -> int:
        """The number of the last message sent in this session."""
        return self._session.sent

    @property
    def acknowledged(self) -> int:
        """The number up to which the dispatcher has acknowledged all messages."""
        return self._session.acknowledged

    def tick(self, now: float) -> float:
        """Send a sign of life when it is due, and return the seconds until the next one."""
        if now >= self._beat_at:
            self._send_frames(self._session.unnumbered(encode(self.sign_of_life())))
            self._beat_at = now + self._beat_seconds
        return self._beat_at - now

    def acknowledge(self) -> None:
        """Make the next `tick` send a sign of life, which acknowledges all received messages."""
        self._beat_at = 0.0

    def close(self, patience_seconds: float = LOOK_SECONDS) -> bool:
        """Close the connection when the dispatcher has acknowledged all messages, refuses them, or
        is gone; or after this much silence. Return whether it acknowledged or refused them.
        """
        try:
            return self._deliver(patience_seconds)
        finally:
            if self._local is not None:
                self._local.close()
            self._close()

    def _deliver(self, patience: float) -> bool:
        self._beat_at, self._beat_seconds = 0.0, _ASK_SECONDS  # answers acknowledge what arrived
        begun = looked = self._clock.monotonic()
        while self._session.unacknowledged:
            now = self._clock.monotonic()
            silence = now - max(begun, self.received_at)
            if silence >= patience:
                return False
            if min(silence, now - looked) >= LOOK_SECONDS:
                if self.introduce is None and self._is_away():
                    return False
                looked = now
            self._wait(min(self.tick(now), patience - silence))
            for message, _ in self.receive():
                if isinstance(message, Welcome | ClientWelcome):
                    # A worker that waits here may be accepted by a new process meanwhile, which
                    # forgets it as it leaves. Without this it would introduce itself for ever.
                    self.epoch = message.epoch
                elif isinstance(message, Refuse) or (
                    isinstance(message, Rejoin) and not self.rejoin(message)
                ):
                    return True
        return True
