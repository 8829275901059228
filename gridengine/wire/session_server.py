"""A dispatcher's end of the sessions with its workers or clients, whatever carries their messages:
`server` has the one over TCP, `file_server` the one through files.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gridengine._version import __version__
from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ServerKeys
from gridengine.wire.framing import (
    decode,
    encode,
    foreign_greeting,
    foreign_protocol,
    in_protocol,
    rest_of,
)
from gridengine.wire.local_connection import LocalClients, LocalConnection
from gridengine.wire.messages import VERSION, Beat, Goodbye, Hello, Message, Refuse, Rejoin
from gridengine.wire.session import PIECE, Frames, Session

log = logging.getLogger("gridengine")

_GREETING_SECONDS = 60.0
"""An incomplete first message is dropped after this many seconds without another piece."""


class SessionServer(ABC):
    """A session with each peer. All methods are for one thread.

    Args:
        keys: the keys of the dispatcher and its peers.
        greeting: the type of a peer's first message.
        epoch: the epoch of this dispatcher. Unknown peers are asked to rejoin; with 0 they are
            refused.
    """

    fd: int
    """The descriptor to wait for. Ask `pending` before each wait."""
    addresses: tuple[str, ...]
    """Where peers find the dispatcher."""

    def __init__(
        self,
        keys: ServerKeys,
        greeting: type[Message] = Hello,
        epoch: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self.keys = keys
        self._greeting = greeting
        self._epoch = epoch
        self._sessions: dict[bytes, Session] = {}
        self._greetings: dict[bytes, tuple[Session, float]] = {}
        """Peers whose first message is long and not complete yet, with the time of its last piece.
        """
        self._rest = partial(rest_of, most=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self._holds = False
        self._receipts: dict[bytes, int] = {}
        self.watchers: set[bytes] = set()
        """The peers that connected with the watchers' key and may only look."""
        self._local: LocalClients | None = None
        """The clients on this machine; None if the peers are workers."""

    @abstractmethod
    def open(self) -> None:
        """Begin to receive, now that the run directory is there.

        Raises:
            ConfigurationError: that is not possible.
        """

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether a message can be received now."""

    @abstractmethod
    def _arrived(self, most: int) -> Iterator[tuple[bytes, Sequence[Buffer], Sequence[Any]]]:
        """Yield at most `most` envelopes that have arrived, one of each sender in turn, each with
        its sender, its frames, and these as they came.
        """

    @abstractmethod
    def _may_only_look(self, raw: Sequence[Any]) -> bool:
        """Return whether the sender of these frames has the watchers' key."""

    @abstractmethod
    def _send_frames(self, peer: bytes, frames: Frames) -> None:
        """Send an envelope. Never waits."""

    @abstractmethod
    def close(self) -> None:
        """Close it, and give messages that are under way a moment. May be called twice."""

    def send(self, peer: bytes, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send a peer a message, and keep it until the peer acknowledges it. Nothing is sent to a
        peer that is forgotten.
        """
        session = self._sessions.get(peer)
        if session is not None:
            local = self._local_to(peer)
            put = None if local is None else local.put
            for frames in session.number(encode(message, buffers, put)):
                self._send_frames(peer, frames)

    def beat(self, peer: bytes) -> None:
        """Send a peer a sign of life."""
        session = self._sessions.get(peer)
        if session is not None:
            self._send_frames(peer, session.unnumbered(encode(Beat())))

    def beat_all(self) -> None:
        """Send each peer a sign of life."""
        for peer in self._sessions:
            self.beat(peer)

    def answer_beat(self, peer: bytes, each: int) -> None:
        """Answer a beat of a peer if it is the `each`th since the peer was sent anything, or if the
        answer tells more than that this end lives.
        """
        session = self._sessions.get(peer)
        if session is not None:
            session.unanswered += 1
            if session.unanswered >= each or session.has_news:
                self.beat(peer)

    def unacknowledged(self, peer: bytes) -> int:
        """Return how many pieces sent to a peer are not acknowledged.

        Raises:
            KeyError: the peer was forgotten.
        """
        return self._sessions[peer].unacknowledged

    def forget(self, peer: bytes) -> None:
        """Drop a peer's session; if the peer comes back it is refused."""
        self._sessions.pop(peer, None)
        self.watchers.discard(peer)
        self._close_local(peer)

    def hold_acknowledgements(self) -> None:
        """From now on acknowledge only the messages whose numbers are passed to `acknowledge`."""
        self._holds = True

    def take_receipts(self) -> dict[bytes, int]:
        """Return, per peer, the number of the last message received since the previous call. Pass
        it to `acknowledge` when the messages' effects are durable.
        """
        receipts, self._receipts = self._receipts, {}
        return receipts

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        """Acknowledge these messages, with the next envelope that each peer is sent."""
        for peer, number in receipts.items():
            session = self._sessions.get(peer)
            if session is not None:
                session.acknowledge(number)

    def receive(self, most: int = 1000) -> Iterator[tuple[bytes, Message, list[Buffer]]]:
        """Yield at most `most` messages that have arrived, each with its sender. Malformed ones are
        logged and dropped.

        An envelope of a known peer that completes no message, such as a piece, is yielded as a
        `Beat`: it is a sign of life. A peer whose message is too long is forgotten, and a `Goodbye`
        of it is yielded. An incomplete first message that does not go on is forgotten too.
        """
        if self._greetings:
            self._drop_greetings(self._clock.monotonic() - _GREETING_SECONDS)
        for sender, frames, raw in self._arrived(most) if most else ():
            try:
                taken = self._decode(sender, frames, raw)
            except MessageTooLong as error:
                taken = self._disconnect(sender, error)
            except ProtocolError as error:
                log.warning(
                    "dropped a malformed message of worker %s: %s", sender.hex()[:8], error.message
                )
                continue
            if taken is not None:
                yield sender, *taken

    def _decode(
        self, peer: bytes, frames: Sequence[Buffer], raw: Sequence[Any]
    ) -> tuple[Message, list[Buffer]] | None:
        session = self._sessions.get(peer)
        if session is None:
            greeting = self._receive_hello(peer, frames)
            if greeting is not None and self._may_only_look(raw):
                self.watchers.add(peer)
            return greeting
        content, answers = session.receive(frames)
        local = None if self._local is None else self._local.get(peer)
        take = None if local is None else local.take
        message = decode(content, take) if content is not None else (Beat(), [])
        if self._holds and content is not None and session.received > session.told:
            self._receipts[peer] = session.received
        if isinstance(message[0], Goodbye):  # a leaving peer waits for the acknowledgement
            answers.append(session.unnumbered(encode(Beat())))
        for answer in answers:
            self._send_frames(peer, answer)
        return message

    def _disconnect(self, peer: bytes, error: MessageTooLong) -> tuple[Message, list[Buffer]]:
        """Refuse a worker from here on. The results in its message are lost, and its calls must not
        wait for them.
        """
        log.warning("worker %s is sent away: %s", peer.hex()[:8], error.message)
        self._close_local(peer)
        self._send_frames(peer, self._sessions.pop(peer).unnumbered(encode(Refuse(error.message))))
        return Goodbye(error.message), []

    def _receive_hello(
        self, peer: bytes, frames: Sequence[Buffer]
    ) -> tuple[Message, list[Buffer]] | None:
        """Return the first message of a peer once it is complete. An unknown peer that sends
        another message was forgotten and is refused; or it knew an earlier epoch and is asked to
        rejoin.
        """
        session, since = self._greetings.pop(peer, (None, 0.0))
        # Hold the acknowledgements: acknowledged pieces would not be sent again if this incomplete
        # message had to be dropped.
        session = session or Session(PIECE, self._rest, holds=True, succeeds=True)
        before, content = session.received, None
        try:
            content, answers = session.receive(frames)
            message, buffers = decode(content) if content is not None else (Beat(), [])
        except MessageTooLong as error:
            answer = encode(Refuse(error.message))
        except ProtocolError:
            answer = self._refusal(content or (), frames)
        else:
            if isinstance(message, self._greeting):
                if self._local is not None:
                    self._local.greeted(peer)
                self._sessions[peer] = session
                session.holds = self._holds
                if self._holds:
                    self._receipts[peer] = session.received
                else:
                    session.acknowledge(session.received)
                return message, buffers
            if self._epoch and session.received and isinstance(message, Beat):
                since = self._clock.monotonic() if session.received > before else since
                self._greetings[peer] = session, since
                for one in (*answers, session.unnumbered(encode(Beat()))):
                    self._send_frames(peer, one)
                return None
            answer = self._refusal(content or (), frames)
        self._send_frames(peer, Session(PIECE).unnumbered(answer))
        return None

    def _local_to(self, peer: bytes) -> LocalConnection | None:
        """Return the local connection of a client; None unless it is open."""
        local = None if self._local is None else self._local.get(peer)
        return local if local is not None and local.is_open else None

    def _close_local(self, peer: bytes) -> None:
        if self._local is not None:
            self._local.forget(peer)

    def _refusal(self, content: Sequence[Buffer], frames: Sequence[Buffer]) -> Frames:
        """Return the answer to a first message that is not a greeting, in the sender's protocol.
        Only a greeting has the form that all protocols share: of another message that is not of
        this protocol, its `frames` alone tell which.
        """
        greeting = foreign_greeting(content)
        protocol = foreign_protocol([*content[:1], *frames[1:2]])
        if greeting is not None:
            return in_protocol(greeting[0], _mismatch(*greeting))
        if protocol is not None:
            return in_protocol(protocol, _mismatch(protocol, "of the other end"))
        if self._epoch:
            return encode(Rejoin(self._epoch))
        return encode(Refuse("this dispatcher does not know you, or no longer"))

    def _drop_greetings(self, before: float) -> None:
        """Forget peers whose first message is incomplete and got no piece since `before`."""
        for peer in [peer for peer, (_, since) in self._greetings.items() if since < before]:
            del self._greetings[peer]


def _mismatch(protocol: int, version: str) -> Frames:
    """Return the refusal of an end that speaks another protocol."""
    reason = (
        f"gridengine {version} speaks protocol {protocol}, and its dispatcher, gridengine "
        f"{__version__}, speaks {VERSION}"
    )
    return encode(Refuse(reason, mismatch=True))
