"""What makes of a connection that may break a conversation in which each message arrives once and
in order. Sans-I/O.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.serialize.payload import Buffer, size_of

_ENVELOPE = struct.Struct("<BQQI")
_NUMBERED, _LOOSE, _RESEND, _FRAME, _PIECE = range(5)
MOST_FIRST = 64 * 1024 * 1024
"""How many bytes the first frame of a message may have: it says what follows, and is small."""
Frames = list[Buffer]


class Session:
    """One side of a conversation: numbers what is sent, keeps it until the other side has it, drops
    what comes twice. Sans-I/O.

    A message of more than `piece` bytes travels in pieces, each numbered. So a long one shows signs
    of life on its way, what a broken connection lost of it is sent again and not all of it, and
    over TCP nobody has to be allowed to send us long frames.

    A gap is asked for with a number of its own, and each envelope says the last such number that
    its sender has got. What was sent before the question came is thus told from what comes after
    its answer, and nothing is sent again twice for one gap.

    Args:
        piece: in bytes.
        rest: says of the first frame of a message that comes in pieces how many bytes the others
            have together; None is any number.
    """

    def __init__(self, piece: int, rest: Callable[[Buffer], int] | None = None) -> None:
        self._piece = piece
        self._rest = rest
        self._room = MOST_FIRST
        self._sent = 0
        self._received = 0
        self._kept: deque[tuple[int, int, Frames]] = deque()
        self._asked = 0
        self._answered = 0
        self._whole: Frames = []
        self._begun = bytearray()

    def number(self, frames: Frames) -> list[Frames]:
        """Return what to send for the frames of a message, with the next numbers; it is kept until
        it is acknowledged.
        """
        to_send = []
        for kind, content in _cut(frames, self._piece):
            self._sent += 1
            self._kept.append((self._sent, kind, content))
            to_send.append([self._envelope(kind, self._sent), *content])
        return to_send

    def loose(self, frames: Frames) -> Frames:
        """Return the frames of a message that may be lost; it tells the other side how far both
        have got.
        """
        return [self._envelope(_LOOSE, self._sent), *frames]

    def take(self, frames: Sequence[Buffer]) -> tuple[Sequence[Buffer] | None, list[Frames]]:
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
        if kind > _PIECE or acknowledged > self._sent or (kind != _RESEND and asked > self._asked):
            raise ProtocolError("an impossible envelope")
        while self._kept and self._kept[0][0] <= acknowledged:
            self._kept.popleft()
        if kind == _RESEND:
            return None, self._again(asked)
        if number > self._received + (kind != _LOOSE):
            return (frames[1:] if kind == _LOOSE else None), self._ask(kind, asked)
        if kind == _LOOSE:
            return frames[1:], []
        if number <= self._received:
            return None, []
        if (self._begun or kind in (_FRAME, _PIECE)) and len(frames) != 2:
            raise ProtocolError("a piece of a message is one frame")
        self._received = number
        if kind == _NUMBERED and not (self._begun or self._whole):
            return frames[1:], []
        return self._join(kind, frames[1:]), []

    def _join(self, kind: int, content: Sequence[Buffer]) -> Sequence[Buffer] | None:
        self._make_sure(size_of(content))
        if kind == _PIECE:
            self._begun += content[0]
            return None
        if self._begun:
            self._begun += content[0]
            content, self._begun = [self._begun], bytearray()
        if kind == _FRAME:
            if self._rest is not None and not self._whole:
                self._room = self._rest(content[0])
            self._whole.append(content[0])
            return None
        whole = [*self._whole, *content]
        self._drop()
        return whole

    def _make_sure(self, size: int) -> None:
        """See that there is room for so much more of the message that is coming."""
        self._room -= size
        if self._room < 0 and self._rest is not None:
            self._drop()
            raise MessageTooLong("a message is longer than it said that it would be")

    def _drop(self) -> None:
        self._whole, self._begun, self._room = [], bytearray(), MOST_FIRST

    def _again(self, asked: int) -> list[Frames]:
        """Answer a question once, however often it comes."""
        if asked <= self._answered:
            return []
        self._answered = asked
        return [[self._envelope(kind, number), *content] for number, kind, content in self._kept]

    def _ask(self, kind: int, answered: int) -> list[Frames]:
        """Ask for what is missing: with a new number when the last question was answered, else at a
        sign of life, in case it was lost.
        """
        if answered == self._asked:
            self._asked += 1
        elif kind != _LOOSE:
            return []
        return [[_ENVELOPE.pack(_RESEND, self._sent, self._received, self._asked)]]

    def _envelope(self, kind: int, number: int) -> bytes:
        return _ENVELOPE.pack(kind, number, self._received, self._answered)


def _cut(frames: Frames, piece: int) -> Iterator[tuple[int, Frames]]:
    """Yield a message whole when it is short, else frame by frame and piece by piece; each with the
    kind that says what follows.
    """
    sizes = [memoryview(frame).nbytes for frame in frames]
    if sum(sizes) <= piece:
        yield _NUMBERED, frames
        return
    for place, (frame, size) in enumerate(zip(frames, sizes, strict=True), 1):
        view = memoryview(frame).cast("B") if size else memoryview(b"")
        for start in range(0, max(size, 1), piece):
            ends = start + piece >= size
            kind = _PIECE if not ends else _FRAME if place < len(frames) else _NUMBERED
            yield kind, [view[start : start + piece]]
