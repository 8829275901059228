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


def test_pieces_of_more_than_the_first_frame_announces_are_an_error() -> None:
    ours, theirs = Session(PIECE), Session(PIECE, lambda first: 5)
    pieces = ours.number([b"head", bytes(PIECE + 1)])
    theirs.receive(pieces[0])
    with pytest.raises(MessageTooLong):
        theirs.receive(pieces[1])


def test_a_first_frame_has_a_limit_of_its_own() -> None:
    piece = MOST_FIRST // 2 + 1
    ours, theirs = Session(piece), Session(piece, lambda first: 0)
    pieces = ours.number([bytes(3 * piece)])
    theirs.receive(pieces[0])
    with pytest.raises(MessageTooLong):
        theirs.receive(pieces[1])
