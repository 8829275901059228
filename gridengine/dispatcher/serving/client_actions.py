"""The actions, besides submitting calls, that a client in another process can ask of a dispatcher,
and the following of its status over TCP.
"""

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
"""A follower gets nothing more while it has more than this many unacknowledged pieces of messages.
"""


class Action(msgspec.Struct, frozen=True):
    """An action that a client can ask for. `act` is called with the client's arguments, by name,
    and returns a value that JSON can encode. With `looks`, watchers may ask for it too. With
    `follows`, `act` also gets a `follower`, to which further answers can be sent.
    """

    act: Callable[..., Any]
    looks: bool = False
    follows: bool = False


@dataclass(frozen=True)
class RemoteFollower:
    """A client that follows the status: the question with this number is answered again and again,
    except while the client has many unacknowledged pieces.
    """

    peer: bytes
    number: int
    server: Server = field(compare=False)

    def tell(self, told: Told) -> bool:
        """See `Follower`. Raises an error if the client was forgotten."""
        if self.server.unacknowledged(self.peer) > MOST_UNREAD:
            return False
        self.server.send(self.peer, Controlled(self.number, told.line))
        return True

    def drop(self) -> None:
        self.server.send(
            self.peer, Controlled(self.number, b"the answers were not read in time", failed=True)
        )

    def end(self) -> None:
        """Do nothing, see `Follower`: the client is told of the end, or follows the dispatcher's
        next process.
        """


def answered(
    actions: Mapping[str, Action], peer: bytes, message: Control, server: Server
) -> Controlled:
    """Perform the action that a client asks for, and return the answer."""
    failed, answer = False, b""
    try:
        action = actions[message.action]
        if peer in server.watchers and not action.looks:
            raise PermissionError(f"a watcher may not {message.action}")
        arguments = msgspec.json.decode(message.arguments)
        if action.follows:
            arguments["follower"] = RemoteFollower(peer, message.number, server)
        answer = msgspec.json.encode(action.act(**arguments))
    except Exception as error:  # the client may have asked for anything
        text = str(error) if isinstance(error, GridEngineError) else safe_repr(error)
        failed, answer = True, text.encode()
    return Controlled(message.number, answer, failed)
