"""Each message arrives once and in order, whatever a connection loses or doubles."""

from __future__ import annotations

import pytest

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.wire.session import MOST_FIRST, Frames, Session

PIECE = 10


def test_a_message_arrives_as_it_was_sent() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    (sent,) = ours.number([b"first", b"2"])
    assert theirs.receive(sent) == ([b"first", b"2"], [])


def test_it_is_known_how_much_the_other_end_may_not_have() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    first, _ = ours.number([b"1"]), ours.number([b"2"])
    theirs.receive(first[0])
    assert ours.unacknowledged == 2
    ours.receive(theirs.unnumbered([b"a sign of life"]))
    assert ours.unacknowledged == 1


def test_a_message_that_comes_twice_is_dropped() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    (sent,) = ours.number([b"once"])
    theirs.receive(sent)
    assert theirs.receive(sent) == (None, [])


def test_a_long_message_travels_in_pieces_and_arrives_whole() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    message: Frames = [b"head", b"", bytes(range(35))]
    pieces = ours.number(message)
    assert len(pieces) == 1 + 1 + 4
    assert all(sum(map(len, piece[1:])) <= PIECE for piece in pieces)
    *nothing, (whole, _) = [theirs.receive(piece) for piece in pieces]
    assert all(one == (None, []) for one in nothing)
    assert whole is not None
    assert [bytes(frame) for frame in whole] == message


def test_what_was_lost_is_requested_and_sent_again() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    ours.number([b"lost"])
    (sent,) = ours.number([b"late"])
    message, requests = theirs.receive(sent)
    assert message is None
    (request,) = requests
    _, again = ours.receive(request)
    assert [theirs.receive(one)[0] for one in again] == [[b"lost"], [b"late"]]


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
