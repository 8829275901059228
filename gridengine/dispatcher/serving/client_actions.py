"""What clients in other processes ask of a dispatcher besides calls, and how they follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from gridengine.errors import GridEngineError, safe_repr
from gridengine.wire.messages import Control, Controlled
from gridengine.wire.server import Server

if TYPE_CHECKING:
    from gridengine.dispatcher.watch_server import Told

MOST_UNREAD = 8
"""How many pieces of messages a client that follows may not have acknowledged."""


class Action(msgspec.Struct, frozen=True):
    """What a client may ask for: `act` is given its arguments, by name, and returns something that
    JSON has. Who may only look may ask for what `looks`. What `follows` is given a `follower`, too,
    by which the answer may be followed by others.
    """

    act: Callable[..., Any]
    looks: bool = False
    follows: bool = False


@dataclass(frozen=True)
class RemoteFollower:
    """A client that follows, by the question with this number, which is answered again and again;
    not while it has not acknowledged much of what it was sent.
    """

    peer: bytes
    number: int
    server: Server = field(compare=False)

    def tell(self, told: Told) -> bool:
        """See `Follower`; a client that was forgotten is an error."""
        if self.server.unacknowledged(self.peer) > MOST_UNREAD:
            return False
        self.server.send(self.peer, Controlled(self.number, told.line))
        return True

    def drop(self) -> None:
        self.server.send(self.peer, Controlled(self.number, b"too little was read", failed=True))

    def end(self) -> None:
        """See `Follower`; the client is told of it, or follows the process that comes next."""


def answered(
    actions: Mapping[str, Action], peer: bytes, message: Control, server: Server
) -> Controlled:
    """Have done, or told, what a client asks for, and return its answer."""
    failed, answer = False, b""
    try:
        action = actions[message.action]
        if peer in server.watchers and not action.looks:
            raise PermissionError(f"who may only look may not {message.action}")
        arguments = msgspec.json.decode(message.arguments)
        if action.follows:
            arguments["follower"] = RemoteFollower(peer, message.number, server)
        answer = msgspec.json.encode(action.act(**arguments))
    except Exception as error:  # it may have asked for anything
        text = str(error) if isinstance(error, GridEngineError) else safe_repr(error)
        failed, answer = True, text.encode()
    return Controlled(message.number, answer, failed)
