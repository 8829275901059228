"""The base classes of all messages, and the messages that workers and clients share."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec

from gridengine.serialize.payload import Buffer, Payload

VERSION = OLDEST = 12
"""The newest and the oldest protocol version that this code speaks.

Three things never change between versions: how a message begins (`framing`), the first two fields
of `Hello` and `ClientHello`, which name the version, and the first field of `Refuse`, which is the
answer to another version.
"""


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
CodecName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(pickle|msgpack|json)\Z")]
Reference: TypeAlias = Count
"""The number that stands for the result of a call; see `input_name`."""
BUFFERS = attrgetter("buffers")


class MessageBase(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of all messages: immutable, and an array on the wire that begins with its tag."""

    def count_buffers(self) -> int:
        """Return how many buffers belong to this message: its field `buffers`, or 0 without that
        field.

        Raises:
            ProtocolError: the parts of the message do not agree.
        """
        return getattr(self, "buffers", 0)


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of the structs that messages contain. An item has no tag."""


class OfRunner(MessageBase, frozen=True):
    """The base of the messages about nested calls, between the process that makes them and the
    dispatcher. `runner` is the number by which the process's agent knows it. The agent checks
    `runner` and forwards the message. Clients over TCP use the same messages.
    """

    runner: int


NAME_BYTES = 8
"""The length in bytes of the names of results."""


def input_name(reference: int) -> bytes:
    """Return the name under which a result is defined at a worker. It differs from the names of
    functions and shared objects, which have other lengths.
    """
    return reference.to_bytes(NAME_BYTES, "big")


class CallerState(Item, frozen=True):
    """The parts of the submitting process's state that its calls get, besides path and directory:
    its environment (in the form of /proc/self/environ), its umask, and its `sys.argv`. `levels`, if
    given, are the log levels from which records of calls are sent back, by logger name (the root's
    is empty). `interpreter` is the pickled state of its interpreter; runners decode it.
    """

    variables: bytes
    umask: int
    arguments: Sequence[bytes] = ()
    levels: Sequence[tuple[str, int]] | None = None
    interpreter: bytes = b""


class Rejoin(MessageBase, frozen=True):
    """The answer of a restarted dispatcher to a worker that it does not know: begin a new session,
    send a `Hello` that says which runs you hold, and send again all unacknowledged messages.
    """

    epoch: int


class Refuse(MessageBase, frozen=True):
    """The dispatcher does not accept the worker or client, which must leave; `reason` says why.
    With `mismatch` the reason is its protocol version.
    """

    reason: str
    mismatch: bool = False


class Beat(MessageBase, frozen=True):
    """A sign of life. Its envelope carries the acknowledgement."""


class Goodbye(MessageBase, frozen=True):
    """A worker's or client's last message. A worker's reason is `TERMINATED` when it was ended from
    outside; `begun` are the runs that had begun, None where that is unknown. A client's reason is
    `DETACHED` when its calls are to go on.
    """

    reason: str
    begun: list[int] | None = None


TERMINATED = "terminated"
DETACHED = "detached"


def portions(items: Sequence[Any], buffers: Sequence[Buffer]) -> list[tuple[Any, Payload]]:
    """Return each item of a message together with its buffers."""
    if len(items) == 1:
        return [(items[0], buffers)]
    offset, pairs = 0, []
    for item in items:
        pairs.append((item, buffers[offset : offset + item.buffers]))
        offset += item.buffers
    return pairs
