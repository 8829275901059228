"""A client whose messages a test delivers by hand, in any order."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.wire.framing import encode
from gridengine.wire.messages import Beat, Message, Rejoin
from gridengine.wire.session import PIECE, Frames, Session
from gridengine.wire.session_client import SessionClient
from tests.support.manual_clock import ManualClock

EPOCH = 3
BEAT_SECONDS = 1.0


class PlayedClient(SessionClient):
    """A client that the dispatcher of an epoch has accepted, and which this test answers."""

    def __init__(self, local: Any) -> None:
        self.clock = ManualClock()
        super().__init__(BEAT_SECONDS, self.clock)
        self.came: deque[Frames] = deque()
        self.posted: list[Frames] = []
        self.epoch = self.introduced_to = EPOCH
        self.introduce = lambda: None
        self._local = local

    @property
    def pending(self) -> bool:
        return bool(self.came)

    def _next(self) -> Frames:
        return self.came.popleft() if self.came else []

    def _send_frames(self, frames: Frames) -> None:
        self.posted.append(frames)

    def _is_away(self) -> bool:
        return False

    def _close(self) -> None: ...

    def _connect_locally(self) -> None: ...

    def stays_after(self, *messages: Message) -> bool:
        """Return whether no `Rejoin` among these messages, which come together, ends the client."""
        self.came += [Session(PIECE).unnumbered(encode(one)) for one in messages]
        rejoins = [one for one, _ in self.receive() if isinstance(one, Rejoin)]
        return not [one for one in rejoins if not self.rejoin(one)]


@pytest.fixture
def client() -> PlayedClient:
    return PlayedClient(SimpleNamespace(put=None, take=None))


def test_requests_to_rejoin_that_come_after_the_welcome_are_late(client: PlayedClient) -> None:
    for _ in range(3):
        assert client.stays_after(Rejoin(EPOCH), Rejoin(EPOCH), Beat())
        client.clock.advance(BEAT_SECONDS)


def test_a_client_whose_beats_are_answered_by_rejoin_is_forgotten(client: PlayedClient) -> None:
    assert client.stays_after(Rejoin(EPOCH))
    assert client.tick(client.clock.monotonic()) == BEAT_SECONDS
    assert len(client.posted) == 1  # the question, at once
    client.clock.advance(BEAT_SECONDS)
    assert not client.stays_after(Rejoin(EPOCH))


def test_without_a_local_connection_nothing_overtakes_and_the_first_rejoin_counts() -> None:
    assert not PlayedClient(None).stays_after(Rejoin(EPOCH))
