"""The protocol by which each message arrives once and in order over connections that may break.
Sans-I/O.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer, size_of

_ENVELOPE = struct.Struct("<BQQI")
_NUMBERED, _UNNUMBERED, _RESEND, _FRAME, _PIECE = range(5)
MOST_FIRST = 64 * 1024 * 1024
"""How many bytes the first frame of a message may have: it lists what follows, and is small."""
Frames = list[Buffer]


class Session:
    """One end: numbers what is sent, keeps it until it is acknowledged, drops what comes twice.

    A message of more than `piece` bytes travels in pieces, each numbered. So a long one shows signs
    of life on its way, what a broken connection lost of it is sent again and not all of it, and
    over TCP no long frames need be allowed.

    Each request to send again what is missing has a number of its own, and each envelope has the
    last such number that its sender has got. What was sent before the request came thus differs
    from what follows the answer to it, and nothing is sent again twice for one gap.

    Args:
        piece: in bytes.
        rest: returns how many bytes follow the first frame of a message that comes in pieces; None
            is any number.
        holds: acknowledge only what `acknowledge` says, not all that has come.
        succeeds: sessions before this one, at this end, may have been dropped, and may have asked
            for what was missing.
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
        """The number of what was sent last."""
        self.received = 0
        """The number of what has come last."""
        self.told = 0
        """Up to which number that is acknowledged."""
        self._kept: deque[tuple[int, int, Frames]] = deque()
        self._asked = 0
        self._answered = 0
        self._frames: Frames = []
        self._pieces = bytearray()

    @property
    def unacknowledged(self) -> int:
        """How much of what was sent the other end may not have."""
        return len(self._kept)

    @property
    def acknowledged(self) -> int:
        """Up to which number the other end has all."""
        return self._kept[0][0] - 1 if self._kept else self.sent

    def acknowledge(self, number: int) -> None:
        """Acknowledge what has come up to this number, with whatever is sent next."""
        self.told = max(self.told, number)

    def again(self) -> list[Frames]:
        """Return all that was sent and is not acknowledged, to be sent again."""
        return [[self._envelope(kind, number), *content] for number, kind, content in self._kept]

    def number(self, frames: Frames) -> list[Frames]:
        """Return what to send for the frames of a message, with the next numbers; it is kept until
        it is acknowledged.
        """
        to_send = []
        for kind, content in _cut(frames, self._piece):
            self.sent += 1
            self._kept.append((self.sent, kind, content))
            to_send.append([self._envelope(kind, self.sent), *content])
        return to_send

    def unnumbered(self, frames: Frames) -> Frames:
        """Return the frames of a message that may be lost; its envelope has the numbers of what was
        sent and received so far.
        """
        return [self._envelope(_UNNUMBERED, self.sent), *frames]

    def receive(self, frames: Sequence[Buffer]) -> tuple[Sequence[Buffer] | None, list[Frames]]:
        """Return the message that is complete with these frames, None when there is none or it has
        come before, and what to send at once.

        Raises:
            ProtocolError: the first frame is no envelope, or a piece is not one frame.
            MessageTooLong: more pieces have come of a message than it can have.
        """
        try:
            kind, number, acknowledged, asked = _ENVELOPE.unpack(frames[0])
        except (struct.error, IndexError):
            raise ProtocolError("a message without an envelope") from None
        if self._succeeds and kind != _RESEND:
            self._asked, self._succeeds = asked, False
        if kind > _PIECE or acknowledged > self.sent or (kind != _RESEND and asked > self._asked):
            raise ProtocolError("an impossible envelope")
        while self._kept and self._kept[0][0] <= acknowledged:
            self._kept.popleft()
        if kind == _RESEND:
            return None, self._resend(asked)
        if number > self.received + (kind != _UNNUMBERED):
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
        return self._join(kind, frames[1:]), []

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
        """Check that the message that is coming may have so many more bytes."""
        self._room -= size
        if self._room < 0 and self._rest is not None:
            self._reset()
            raise MessageTooLong("a message is longer than it said that it would be")

    def _reset(self) -> None:
        self._frames, self._pieces, self._room = [], bytearray(), MOST_FIRST

    def _resend(self, asked: int) -> list[Frames]:
        """Return what to send again; nothing for a request that comes a second time."""
        if asked <= self._answered:
            return []
        self._answered = asked
        return self.again()

    def _request(self, kind: int, answered: int) -> list[Frames]:
        """Return a request for what is missing: with a new number when the last one was answered,
        else only at a sign of life, in case it was lost.
        """
        if answered == self._asked:
            self._asked += 1
        elif kind != _UNNUMBERED:
            return []
        return [[_ENVELOPE.pack(_RESEND, self.sent, self.told, self._asked)]]

    def _envelope(self, kind: int, number: int) -> bytes:
        return _ENVELOPE.pack(kind, number, self.told, self._answered)


def _cut(frames: Frames, piece: int) -> Iterator[tuple[int, Frames]]:
    """Yield a message whole when it is short, else frame by frame and piece by piece; each with the
    kind of what follows.
    """
    if sum(map(len, frames)) <= piece:
        yield _NUMBERED, frames
        return
    for place, frame in enumerate(frames, 1):
        view = memoryview(frame)
        for start in range(0, max(len(view), 1), piece):
            ends = start + piece >= len(view)
            kind = _PIECE if not ends else _FRAME if place < len(frames) else _NUMBERED
            yield kind, [view[start : start + piece]]
