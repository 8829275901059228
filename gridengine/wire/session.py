"""The protocol by which each message arrives once and in order, over connections that may break.
Sans-I/O.

Each end has a `Session`. An envelope precedes the frames: the kind, the number of this message, the
number up to which the sender has received everything, and the number of the last resend request
that the sender has answered.

    number(frames) ------ numbered -----> receive: the next number -> deliver and acknowledge
                                                   an old number   -> drop
                                                   a gap           -> request a resend
    again()        <----- resend -------- once for each request number
    unnumbered()   ------ beat ---------> acknowledges; also reveals a gap after the last message
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from gridengine.errors import MessageTooLong, ProtocolError, memory_limits
from gridengine.serialize.payload import Buffer, size_of

_ENVELOPE = struct.Struct("<BQQI")
_NUMBERED, _UNNUMBERED, _RESEND, _FRAME, _PIECE = range(5)
MOST_FIRST = 64 * 1024 * 1024
"""How many bytes a message's first frame may have. It lists the frames that follow, and is small.
"""
PIECE = 256 * 1024
"""The size of a piece in bytes; a longer message travels in pieces."""
IDENTITY_BYTES = 16
"""The size of the identity by which a dispatcher knows a worker or client."""
Frames = list[Buffer]


class Session:
    """One end of a session: it numbers messages, keeps each until it is acknowledged, and drops
    duplicates.

    A message of more than `piece` bytes travels in pieces, each numbered. A long message thus shows
    signs of life on its way, only the lost pieces are sent again, and TCP sockets need not accept
    long frames.

    Each resend request has a number, and each envelope has the number of the last request that its
    sender has answered. So the requester can tell messages sent before the request arrived from
    those sent after the answer, and nothing is sent again twice for one gap.

    Args:
        piece: the size of a piece in bytes.
        rest: returns how many bytes may follow the first frame of a message in pieces; None allows
            any number.
        holds: acknowledge only what the caller passes to `acknowledge`, not all that was received.
        succeeds: this end may have dropped earlier sessions with the same peer, which may have sent
            resend requests; take over the number of the last request from the peer.
    """

    def __init__(
        self,
        piece: int,
        rest: Callable[[Buffer], int] | None = None,
        *,
        holds: bool = False,
        succeeds: bool = False,
    ) -> None:
        self._piece = piece
        self._rest = rest
        self._room = MOST_FIRST
        self.holds = holds
        self._succeeds = succeeds
        self.sent = 0
        """The number of the last message sent."""
        self.received = 0
        """The number of the last message received."""
        self.told = 0
        """The number up to which received messages are acknowledged."""
        self._told_last = 0
        """`told`, as the latest envelope had it."""
        self.unanswered = 0
        """How many beats have come since the latest envelope was made."""
        self._unacknowledged: deque[tuple[int, int, Frames]] = deque()
        self._asked = 0
        self._answered = 0
        self._frames: Frames = []
        self._pieces = bytearray()

    @property
    def unacknowledged(self) -> int:
        """How many sent messages or pieces the other end may not have."""
        return len(self._unacknowledged)

    @property
    def has_news(self) -> bool:
        """Whether an envelope would acknowledge a message, or may reveal a gap to the other end."""
        return bool(self._unacknowledged) or self.told != self._told_last

    @property
    def acknowledged(self) -> int:
        """The number up to which the other end has everything."""
        return self._unacknowledged[0][0] - 1 if self._unacknowledged else self.sent

    def acknowledge(self, number: int) -> None:
        """Acknowledge received messages up to this number, with the next envelope that is sent."""
        self.told = max(self.told, number)

    def again(self) -> list[Frames]:
        """Return all unacknowledged messages, to be sent again."""
        return [
            [self._envelope(kind, number), *content]
            for number, kind, content in self._unacknowledged
        ]

    def number(self, frames: Frames) -> list[Frames]:
        """Number a message, keep it until it is acknowledged, and return the envelopes to send."""
        to_send = []
        parts: Iterable[tuple[int, Frames]] = ((_NUMBERED, frames),)
        if sum(map(len, frames)) > self._piece:
            parts = _cut(frames, self._piece)
        for kind, content in parts:
            self.sent += 1
            self._unacknowledged.append((self.sent, kind, content))
            to_send.append([self._envelope(kind, self.sent), *content])
        return to_send

    def unnumbered(self, frames: Frames) -> Frames:
        """Return the envelope of a message that may be lost, such as a beat. It carries the numbers
        sent and received so far.
        """
        return [self._envelope(_UNNUMBERED, self.sent), *frames]

    def receive(self, frames: Sequence[Buffer]) -> tuple[Sequence[Buffer] | None, list[Frames]]:
        """Take in an envelope. Return the message that it completes (None when it completes none or
        is a duplicate), and the envelopes to send at once.

        Raises:
            ProtocolError: the first frame is not an envelope, or a piece is not one frame.
            MessageTooLong: the pieces of a message are longer than the message may be, or than this
                process has memory for.
        """
        try:
            kind, number, acknowledged, asked = _ENVELOPE.unpack(frames[0])
        except (struct.error, IndexError):
            raise ProtocolError("a message without an envelope") from None
        if self._succeeds and kind != _RESEND:
            self._asked, self._succeeds = asked, False
        if kind > _PIECE or acknowledged > self.sent or (kind != _RESEND and asked > self._asked):
            raise ProtocolError("an impossible envelope")
        while self._unacknowledged and self._unacknowledged[0][0] <= acknowledged:
            self._unacknowledged.popleft()
        if kind == _RESEND:
            return None, self._resend(asked)
        if number > self.received + (kind != _UNNUMBERED):
            # Something is missing. What may be lost may come out of order too.
            return (frames[1:] if kind == _UNNUMBERED else None), self._request(kind, asked)
        if kind == _UNNUMBERED:
            return frames[1:], []
        if number <= self.received:
            return None, []
        if (self._pieces or kind in (_FRAME, _PIECE)) and len(frames) != 2:
            raise ProtocolError("a piece of a message is one frame")
        self.received = number
        if not self.holds:
            self.told = number
        if kind == _NUMBERED and not (self._pieces or self._frames):
            return frames[1:], []
        try:
            return self._join(kind, frames[1:]), []
        except MemoryError as error:
            self._reset()
            limits = memory_limits()
            raise MessageTooLong(
                f"there is no memory for a message in this process{limits}",
                hint="raise that limit" if limits else None,
            ) from error

    def _join(self, kind: int, content: Sequence[Buffer]) -> Sequence[Buffer] | None:
        self._check_room(size_of(content))
        if kind == _PIECE:
            self._pieces += content[0]
            return None
        if self._pieces:
            self._pieces += content[0]
            content, self._pieces = [self._pieces], bytearray()
        if kind == _FRAME:
            if self._rest is not None and not self._frames:
                self._room = self._rest(content[0])
            self._frames.append(content[0])
            return None
        whole = [*self._frames, *content]
        self._reset()
        return whole

    def _check_room(self, size: int) -> None:
        """Check that the message being received may have this many more bytes."""
        self._room -= size
        if self._room < 0 and self._rest is not None:
            self._reset()
            raise MessageTooLong("a message is longer than it announced")

    def _reset(self) -> None:
        self._frames, self._pieces, self._room = [], bytearray(), MOST_FIRST

    def _resend(self, asked: int) -> list[Frames]:
        """Return the messages to send again; none when this request was answered before."""
        if asked <= self._answered:
            return []
        self._answered = asked
        return self.again()

    def _request(self, kind: int, answered: int) -> list[Frames]:
        """Return a request for the missing messages. It has a new number when the last request was
        answered. Otherwise it is repeated only at a beat, in case it was lost.
        """
        if answered == self._asked:
            self._asked += 1
        elif kind != _UNNUMBERED:
            return []
        return [[_ENVELOPE.pack(_RESEND, self.sent, self.told, self._asked)]]

    def _envelope(self, kind: int, number: int) -> bytes:
        self._told_last, self.unanswered = self.told, 0
        return _ENVELOPE.pack(kind, number, self.told, self._answered)


def _cut(frames: Frames, piece: int) -> Iterator[tuple[int, Frames]]:
    """Yield a long message frame by frame and piece by piece, each part with the kind of its
    envelope.
    """
    for place, frame in enumerate(frames, 1):
        view = memoryview(frame)
        for start in range(0, max(len(view), 1), piece):
            ends = start + piece >= len(view)
            kind = _PIECE if not ends else _FRAME if place < len(frames) else _NUMBERED
            yield kind, [view[start : start + piece]]


def is_beat(frames: Frames) -> bool:
    """Return whether an envelope has no number: it may be lost, and is a sign of life at most."""
    return bool(frames) and memoryview(frames[0])[:1] == bytes([_UNNUMBERED])
