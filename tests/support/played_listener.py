"""A dispatcher's end for clients in other processes, whose sockets are a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gridengine._version import __version__
from gridengine.dispatcher.core.events import ClientJoined, Event
from gridengine.dispatcher.serving.client_listener import (
    LOOK_SECONDS,
    Action,
    ClientListener,
    RemoteFollower,
)
from gridengine.dispatcher.serving.clients import Clients
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.serialize.byte_code import PYTHON
from gridengine.settings.schema import Settings
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    NUMBER_BITS,
    OLDEST,
    VERSION,
    Beat,
    ClientHello,
    ClientWelcome,
    FunctionItem,
    Message,
    Submit,
    TaskItem,
)
from tests.support.core_play import Play

FUNCTION = FunctionItem("f", [b"/code"], b"/home")
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def hello(**options: Any) -> ClientHello:
    usual = ClientHello(VERSION, __version__, OLDEST, PYTHON, "host", 12, "script.py")
    return msgspec.structs.replace(usual, **options)


class PlayedServer:
    """A socket whose other ends are a test."""

    fd = 0
    pending = False

    def __init__(self) -> None:
        self.watchers: set[bytes] = set()
        self.coming: list[tuple[bytes, Message, Sequence[Any]]] = []
        self.sent: list[tuple[bytes, Message, Sequence[Any]]] = []
        self.forgotten: list[bytes] = []
        self.unread = 0
        self.closed = False

    def receive(self, most: int) -> Iterator[tuple[bytes, Message, Sequence[Any]]]:
        while self.coming:
            yield self.coming.pop(0)

    def send(self, peer: bytes, message: Message, buffers: Sequence[Any] = ()) -> None:
        self.sent.append((peer, *decode(encode(message, buffers))))

    def beat(self, peer: bytes) -> None:
        self.send(peer, Beat())

    def unacknowledged(self, peer: bytes) -> int:
        return self.unread

    def forget(self, peer: bytes) -> None:
        self.forgotten.append(peer)

    def close(self) -> None:
        self.closed = True


class Played:
    """A dispatcher's end for clients, at a time that the test says."""

    def __init__(self) -> None:
        self.play = Play()
        self.server = PlayedServer()
        self.now = 1000.0
        self.did: list[Any] = []
        clients = Clients(
            self.play.core.state,
            lambda *one: None,
            lambda event: None,
            UnsettledTasks(),
            lambda demand: None,
            slots=7,
        )
        self.followers: list[RemoteFollower] = []
        actions = {
            "status": Action(lambda: {"workers": 3}, looks=True),
            "follow": Action(self._follow, looks=True, follows=True),
            "stop": Action(lambda now=False: self.did.append(now)),
        }
        settings = Settings(client_lease=900.0, client_grace=60.0)
        self.listener = ClientListener(self.server, clients, actions, settings)  # type: ignore[arg-type]
        self.clients = clients

    def _follow(self, follower: RemoteFollower) -> str:
        self.followers.append(follower)
        return "first"

    def say(self, peer: bytes, message: Message, *buffers: bytes) -> list[Event]:
        self.server.coming.append((peer, *decode(encode(message, buffers))))
        return list(self.listener.events(self.now, 100))

    def told(self, peer: bytes) -> list[Message]:
        told = [message for one, message, _ in self.server.sent if one == peer]
        self.server.sent = [one for one in self.server.sent if one[0] != peer]
        return told

    def join(self, peer: bytes, **options: Any) -> int:
        """Have a client come; return the first of its numbers."""
        events = self.say(peer, hello(**options))
        [welcome] = self.told(peer)
        assert isinstance(welcome, ClientWelcome)
        assert events == [ClientJoined(welcome.client, options.get("weight", 1.0))]
        assert (welcome.slots, welcome.protocol) == (7, VERSION)
        return welcome.client << NUMBER_BITS

    def submit(self, peer: bytes, *tasks: TaskItem, **options: Any) -> list[Event]:
        message = Submit(0, 0, b"digest", list(tasks), **options)
        return self.say(peer, message, *[b"buffer"] * message.count_buffers())

    def wait(self, seconds: float, *beating: bytes) -> list[Event]:
        """Let time pass, in which these clients beat."""
        events, until = [], self.now + seconds
        while self.now < until:
            self.now += LOOK_SECONDS
            for peer in beating:
                assert self.say(peer, Beat()) == []
            events += self.listener.look(self.now)
        return events
