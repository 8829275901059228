"""Those who follow a dispatcher: what each is told, when, and who is dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from gridengine.dispatcher.watch_messages import FOLLOW, Answer, Identity, Request
from gridengine.dispatcher.watch_server import (
    LEAST_INTERVAL,
    MOST_FOLLOWERS,
    STUCK_SECONDS,
    Told,
    WatchStreams,
)
from gridengine.status.rows import Status
from gridengine.status.run_log import RunLog
from gridengine.status.watch_events import WatchEvent

IDENTITY = Identity("sweep", "run", 1, "host", "", "", 0.0, "", "", "")


@dataclass(eq=False)
class Played:
    """Who follows: what he was told, and whether he takes more."""

    told: list[Told] = field(default_factory=list)
    takes: bool = True
    error: Exception | None = None
    dropped: bool = False
    ended: bool = False

    def tell(self, told: Told) -> bool:
        if self.error is not None:
            raise self.error
        if self.takes:
            self.told.append(told)
        return self.takes

    def drop(self) -> None:
        self.dropped = True

    def end(self) -> None:
        self.ended = True

    def events(self) -> list[str]:
        """What he was told of last."""
        return [one.reason for one in self.told[-1].answer.status.events]


class Streams:
    """The streams of a core to which only what the test says happens."""

    def __init__(self) -> None:
        self.log = RunLog()
        self.made: list[Request] = []
        self.streams = WatchStreams(self.log, self._status)

    def _status(self, request: Request, now: float) -> Answer:
        self.made.append(request)
        return Answer(IDENTITY, Status(elapsed_seconds=now))

    def follow(self, follower: Played, now: float = 0.0, **options: object) -> None:
        self.streams.add(follower, Request(FOLLOW, **options), now)

    def happen(self, words: str) -> None:
        assert self.log.events is not None
        self.log.events.note(WatchEvent("call done", reason=words))


@pytest.fixture
def played() -> Streams:
    return Streams()


def test_while_nobody_follows_nothing_is_due_and_nothing_is_taken_in(played: Streams) -> None:
    assert (played.streams.deadline, played.log.events) == (math.inf, None)
    one = Played()
    played.follow(one)
    assert (played.streams.deadline, played.log.events is None) == (1.0, False)
    played.streams.remove(one)
    played.streams.remove(one)
    assert (played.streams.deadline, played.log.events) == (math.inf, None)


def test_a_follower_is_told_the_news_of_each_interval(played: Streams) -> None:
    one = Played()
    played.follow(one, interval=2.0)
    played.happen("a")
    played.streams.push(1.0)
    assert one.told == []
    played.streams.push(2.0)
    assert one.events() == ["a"]
    played.happen("b")
    played.streams.push(4.0)
    assert one.events() == ["b"]


def test_for_all_who_want_the_same_it_is_made_once_and_encoded_once(played: Streams) -> None:
    early, late, other = Played(), Played(), Played()
    played.follow(early, 0.2)
    played.follow(late, 0.7)
    played.follow(other, 0.2, most=5)
    played.streams.push(1.0)
    played.made.clear()
    played.happen("a")
    played.streams.push(2.0)
    assert [request.most for request in played.made] == [100, 5]
    assert early.told[-1] is late.told[-1]
    assert early.told[-1].line is late.told[-1].line
    assert other.events() == ["a"]


def test_a_late_follower_is_not_told_of_earlier_events(played: Streams) -> None:
    early, late = Played(), Played()
    played.follow(early)
    played.happen("a")
    played.follow(late)
    played.happen("b")
    played.streams.push(1.0)
    assert (early.events(), late.events()) == (["a", "b"], ["b"])


def test_a_slow_follower_is_told_everything_the_next_time(played: Streams) -> None:
    slow, quick = Played(takes=False), Played()
    for one in (slow, quick):
        played.follow(one)
    played.happen("a")
    played.streams.push(1.0)
    slow.takes = True
    played.happen("b")
    played.streams.push(2.0)
    assert (slow.events(), quick.events()) == (["a", "b"], ["b"])


def test_a_follower_that_does_not_read_for_long_is_dropped(played: Streams) -> None:
    gone, stuck, other = Played(error=BrokenPipeError("gone")), Played(takes=False), Played()
    for one in (gone, stuck, other):
        played.follow(one)
    for now in range(1, int(STUCK_SECONDS) + 3):
        assert not stuck.dropped
        played.streams.push(now)
        assert gone.dropped, "at once: it cannot be told"
    assert stuck.dropped
    assert not other.dropped
    assert len(other.told) == STUCK_SECONDS + 2
    played.streams.remove(other)
    assert played.log.events is None


def test_a_follower_that_asks_anew_misses_nothing(played: Streams) -> None:
    one = Played()
    played.follow(one)
    played.happen("a")
    played.follow(one, most=7)
    played.streams.push(1.0)
    assert ([request.most for request in played.made], one.events()) == ([7], ["a"])


def test_all_are_told_a_last_time_when_it_ends(played: Streams) -> None:
    one, stuck = Played(), Played(takes=False)
    for follower in (one, stuck):
        played.follow(follower, interval=60.0)
    played.happen("a")
    played.streams.close(1.0)
    assert (one.events(), one.ended, stuck.ended) == (["a"], True, True)
    assert (played.streams.deadline, played.log.events) == (math.inf, None)


def test_followers_and_their_frequency_are_limited(played: Streams) -> None:
    followers = [Played() for _ in range(MOST_FOLLOWERS)]
    for one in followers:
        played.follow(one, interval=0.001)
    assert played.streams.deadline == pytest.approx(LEAST_INTERVAL)
    with pytest.raises(ValueError, match="too many"):
        played.follow(Played())
    played.follow(followers[0])
    with pytest.raises(ValueError, match="interval of nan"):
        played.follow(followers[0], interval=math.nan)
