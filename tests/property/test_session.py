"""Whatever a connection loses, each message arrives once, whole and in order, and nothing is sent
again without need.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gridengine.errors import ProtocolError
from gridengine.wire.session import Session
from tests.support.hypothesis_profiles import examples

PIECE = 8
MESSAGES = st.lists(st.binary(max_size=3 * PIECE), min_size=1, max_size=4)


def plain(frames: Any) -> list[bytes]:
    return [bytes(frame) for frame in frames]


class Side:
    """One end of a line that keeps order but may be cut."""

    def __init__(self) -> None:
        self.session = Session(PIECE)
        self.line: deque[list[bytes]] = deque()
        self.said: list[list[bytes]] = []
        self.heard: list[list[bytes]] = []
        self.taken: list[list[bytes]] = []

    def put(self, *wire: Any) -> None:
        self.line.extend(plain(frames) for frames in wire)


BEAT = [b"beat"]
"""What tells these tests nothing when it comes; nobody says it otherwise."""


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sides = Side(), Side()

    def deliver(self, to: int) -> None:
        me, other = self.sides[to], self.sides[1 - to]
        me.taken.append(other.line.popleft())
        content, answers = me.session.receive(me.taken[-1])
        me.put(*answers)
        if content is not None and plain(content) != BEAT:
            me.heard.append(plain(content))

    @rule(side=st.integers(0, 1), message=MESSAGES.filter(lambda frames: frames != BEAT))
    def say(self, side: int, message: list[bytes]) -> None:
        self.sides[side].said.append(message)
        self.sides[side].put(*self.sides[side].session.number(message))

    @rule(side=st.integers(0, 1))
    def beat(self, side: int) -> None:
        self.sides[side].put(self.sides[side].session.unnumbered(BEAT))

    @rule(to=st.integers(0, 1), count=st.integers(1, 9))
    def travel(self, to: int, count: int) -> None:
        for _ in range(min(count, len(self.sides[1 - to].line))):
            self.deliver(to)

    @rule(first=st.integers(0, 9), second=st.integers(0, 9))
    def cut(self, first: int, second: int) -> None:
        """A connection breaks: what is under way is lost, in both directions, from the front."""
        for side, count in zip(self.sides, (first, second), strict=True):
            for _ in range(min(count, len(side.line))):
                side.line.popleft()

    @rule(first=st.integers(0, 9), second=st.integers(0, 9))
    def cut_short(self, first: int, second: int) -> None:
        """A connection breaks, and what was sent last is lost."""
        for side, count in zip(self.sides, (first, second), strict=True):
            for _ in range(min(count, len(side.line))):
                side.line.pop()

    @rule(to=st.integers(0, 1), which=st.integers(0, 20), at_once=st.booleans())
    def repeat(self, to: int, which: int, at_once: bool) -> None:
        """What has come before comes once more: now, or after all that is under way."""
        taken, line = self.sides[to].taken, self.sides[1 - to].line
        if taken:
            (line.appendleft if at_once else line.append)(taken[-1 - which % len(taken)])

    @invariant()
    def what_is_heard_is_what_was_said_so_far(self) -> None:
        for side, other in (self.sides, self.sides[::-1]):
            assert side.heard == other.said[: len(side.heard)]

    def teardown(self) -> None:
        for _ in range(6):
            for side in range(2):
                self.beat(side)
                while self.sides[side].line:
                    self.deliver(1 - side)
        for side, other in (self.sides, self.sides[::-1]):
            assert side.heard == other.said
            assert not side.session._unacknowledged


TestConversation = Conversation.TestCase
TestConversation.settings = examples(100, stateful_step_count=40)


@given(MESSAGES)
def test_a_message_arrives_as_the_frames_it_was_and_none_is_longer_than_a_piece(
    message: list[bytes],
) -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    sent = [plain(frames) for frames in ours.number(list(message))]
    assert all(len(frame) <= max(PIECE, 21) for frames in sent for frame in frames)
    *before, last = [theirs.receive(frames)[0] for frames in sent]
    assert not any(before)
    assert last is not None
    assert plain(last) == message


def test_messages_sent_before_a_question_do_not_repeat_its_answer() -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    first, *_ = ours.number([b"first"])
    late = [*ours.number([b"second"]), *(ours.unnumbered([b"beat"]) for _ in range(20))]
    questions = [answer for frames in late for answer in theirs.receive(plain(frames))[1]]
    answers = [frames for question in questions for frames in ours.receive(plain(question))[1]]
    assert plain(answers[0])[1:] == plain(first)[1:]
    assert len(answers) == 2


ENVELOPE = struct.Struct("<BQQI")
IMPOSSIBLE = {
    "nothing": [],
    "a short envelope": [b"\0" * 20],
    "a long envelope": [b"\0" * 22],
    "an unknown kind": [ENVELOPE.pack(5, 1, 0, 0), b"x"],
    "an acknowledgement of what was never sent": [ENVELOPE.pack(0, 1, 1, 0), b"x"],
    "an answer to what was never asked": [ENVELOPE.pack(0, 1, 0, 1), b"x"],
    "a piece without content": [ENVELOPE.pack(4, 1, 0, 0)],
    "a piece of two frames": [ENVELOPE.pack(3, 1, 0, 0), b"x", b"y"],
}


@pytest.mark.parametrize("frames", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_an_impossible_envelope_is_refused_and_changes_nothing(frames: list[bytes]) -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    with pytest.raises(ProtocolError):
        theirs.receive(frames)
    [wire] = ours.number([b"good"])
    assert theirs.receive(plain(wire))[0] == [b"good"]


@pytest.mark.parametrize("number", [0, 1, 3, 2**64 - 1])
def test_a_number_that_is_not_the_next_brings_nothing(number: int) -> None:
    ours, theirs = Session(PIECE), Session(PIECE)
    theirs.receive(plain(ours.number([b"one"])[0]))
    assert theirs.receive([ENVELOPE.pack(0, number, 0, 0), b"forged"])[0] is None
    assert theirs.receive(plain(ours.number([b"two"])[0]))[0] == [b"two"]


@pytest.mark.parametrize("rest", [[], [b"two", b"frames"]])
def test_the_last_piece_of_a_frame_is_one_frame(rest: list[bytes]) -> None:
    theirs = Session(PIECE)
    assert theirs.receive([ENVELOPE.pack(4, 1, 0, 0), b"begun, "])[0] is None
    with pytest.raises(ProtocolError):
        theirs.receive([ENVELOPE.pack(0, 2, 0, 0), *rest])
    assert plain(theirs.receive([ENVELOPE.pack(0, 2, 0, 0), b"ended"])[0]) == [b"begun, ended"]


def test_an_old_message_that_comes_again_while_a_piece_is_awaited_is_dropped() -> None:
    theirs = Session(PIECE)
    theirs.receive([ENVELOPE.pack(0, 1, 0, 0), b"two", b"frames"])
    theirs.receive([ENVELOPE.pack(4, 2, 0, 0), b"begun, "])
    assert theirs.receive([ENVELOPE.pack(0, 1, 0, 0), b"two", b"frames"]) == (None, [])
    assert plain(theirs.receive([ENVELOPE.pack(0, 3, 0, 0), b"ended"])[0]) == [b"begun, ended"]
