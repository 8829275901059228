"""What clients ask besides calls, what they are answered, and who follows."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.serving.client_listener import MOST_UNREAD
from gridengine.dispatcher.watch_messages import Answer, Identity
from gridengine.dispatcher.watch_server import Told
from gridengine.wire.messages import Control, Controlled
from tests.support.played_listener import A, Played

TOLD = Told(Answer(Identity("sweep", "run", 1, "host", "", "", 0.0, "", "", "")))


def test_a_client_asks_for_actions_and_is_told_their_answer(played: Played) -> None:
    played.join(A)
    played.say(A, Control(5, "status"))
    assert played.told(A) == [Controlled(5, b'{"workers":3}')]
    played.say(A, Control(6, "stop", b'{"now": true}'))
    assert played.told(A) == [Controlled(6, b"null")]
    assert played.did == [True]


@pytest.mark.parametrize(
    ("action", "arguments"),
    [("nosuch", b"{}"), ("stop", b"no JSON"), ("stop", b"[]"), ("stop", b'{"other": 1}')],
)
def test_an_action_that_cannot_be_done_says_why(
    played: Played, action: str, arguments: bytes
) -> None:
    played.join(A)
    assert played.say(A, Control(5, action, arguments)) == []
    [answer] = played.told(A)
    assert isinstance(answer, Controlled)
    assert (answer.number, answer.failed) == (5, True)
    assert answer.answer
    assert not played.did


def test_a_question_to_follow_is_answered_again_and_again(played: Played) -> None:
    played.join(A)
    played.say(A, Control(3, "follow", b"{}"))
    [follower] = played.followers
    assert follower.tell(TOLD)
    follower.end()
    follower.drop()
    first, told, last = played.told(A)
    assert first == Controlled(3, b'"first"')
    assert told == Controlled(3, TOLD.line)
    assert isinstance(last, Controlled)
    assert (last.number, last.failed) == (3, True)


def test_a_client_that_acknowledges_nothing_is_told_nothing_more(played: Played) -> None:
    played.join(A)
    played.say(A, Control(3, "follow", b"{}"))
    played.told(A)
    played.server.unread = MOST_UNREAD + 1
    assert not played.followers[0].tell(TOLD)
    assert played.told(A) == []


def test_a_question_that_is_asked_again_has_the_same_follower(played: Played) -> None:
    played.join(A)
    for _ in range(2):
        played.say(A, Control(3, "follow", b"{}"))
    played.say(A, Control(4, "follow", b"{}"))
    assert len(set(played.followers)) == 2
