"""Each message arrives once and in order, whatever a connection loses or doubles."""

from __future__ import annotations

import pytest

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.wire.session import MOST_FIRST, Frames, Session

PIECE = 10


def test_a_request_that_comes_twice_is_answered_once() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    ours.number([b"lost"])
    (sent,) = ours.number([b"late"])
    (request,) = theirs.receive(sent)[1]
    assert ours.receive(request)[1]
    assert ours.receive(request) == (None, [])


@pytest.mark.parametrize("frames", [[], [b""], [b"short"], [b"\xff" * 21]])
def test_what_has_no_envelope_is_a_protocol_error(frames: Frames) -> None:
    with pytest.raises(ProtocolError):
        Session(PIECE).receive(frames)


FIRST = MOST_FIRST // 2 + 1


@pytest.mark.parametrize(
    ("piece", "announced", "message"),
    [(PIECE, 5, [b"head", bytes(PIECE + 1)]), (FIRST, 0, [bytes(3 * FIRST)])],
    ids=["more than the first frame announces", "the first frame itself"],
)
def test_pieces_beyond_their_limit_are_an_error(
    piece: int, announced: int, message: Frames
) -> None:
    ours, theirs = Session(piece), Session(piece, lambda first: announced)
    pieces = ours.number(message)
    theirs.receive(pieces[0])
    with pytest.raises(MessageTooLong):
        theirs.receive(pieces[1])
