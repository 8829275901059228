"""Each message arrives once and in order, whatever a connection loses or doubles."""

from __future__ import annotations

import resource

import pytest

from gridengine.errors import MessageTooLong, ProtocolError
from gridengine.wire.framing import encode, in_protocol
from gridengine.wire.messages import VERSION, Refuse, Rejoin
from gridengine.wire.session import MOST_FIRST, Frames, Session
from gridengine.wire.session_client import SessionClient

PIECE = 10


def test_a_request_that_comes_twice_is_answered_once() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    ours.number([b"lost"])
    (sent,) = ours.number([b"late"])
    (request,) = theirs.receive(sent)[1]
    assert ours.receive(request)[1]
    assert ours.receive(request) == (None, [])


def test_an_end_has_news_until_it_has_acknowledged_and_all_that_it_sent_is_acknowledged() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    (sent,) = theirs.number([b"message"])
    assert theirs.has_news
    assert not ours.has_news
    ours.receive(sent)
    assert ours.has_news
    theirs.receive(ours.unnumbered([b"beat"]))
    assert not ours.has_news
    assert not theirs.has_news


@pytest.mark.parametrize("frames", [[], [b""], [b"short"], [b"\xff" * 21]])
def test_a_message_without_an_envelope_is_a_protocol_error(frames: Frames) -> None:
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


def test_a_message_that_does_not_fit_into_memory_names_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(bytearray):
        def __iadd__(self, more: object) -> bytearray:
            raise MemoryError

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (5000, -1))
    ours, theirs = Session(PIECE), Session(PIECE)
    theirs._pieces = Full()
    with pytest.raises(MessageTooLong, match=r"which may have 5,000 bytes \(`ulimit -v`\)"):
        theirs.receive(ours.number([bytes(2 * PIECE)])[0])


class Heard(SessionClient):
    """A worker's or client's end that has been sent these envelopes."""

    def __init__(self, envelopes: list[Frames]) -> None:
        super().__init__(1.0)
        self._envelopes = envelopes

    def _next(self) -> Frames:
        return self._envelopes.pop(0) if self._envelopes else []

    def _send_frames(self, frames: Frames) -> None: ...

    @property
    def pending(self) -> bool:
        return bool(self._envelopes)

    def _is_away(self) -> bool:
        return False

    def _close(self) -> None: ...

    def _connect_locally(self) -> None: ...


def test_an_answer_in_another_protocol_is_a_refusal_and_hides_no_message_before_it() -> None:
    dispatcher = Session(PIECE)
    first = dispatcher.unnumbered(encode(Refuse("first", mismatch=True)))
    second = dispatcher.unnumbered(in_protocol(VERSION + 1, encode(Rejoin(2))))
    [(one, _), (two, _)] = Heard([first, second]).receive()
    assert one == Refuse("first", mismatch=True)
    assert isinstance(two, Refuse)
    assert two.mismatch
    assert f"speaks protocol {VERSION + 1}" in two.reason
