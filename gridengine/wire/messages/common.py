"""What all messages are made of, and those that workers and clients have alike."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec

from gridengine.serialize.payload import Buffer, Payload

VERSION = OLDEST = 9
"""The newest and the oldest protocol that is spoken here.

Of all versions the same: how a message begins (`framing`), the first two fields of `Hello` and
`ClientHello`, which say the version, and the first of `Refuse`, which is the answer to another.
"""


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
CodecName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(pickle|msgpack|json)\Z")]
Reference: TypeAlias = Count
"""What stands for the result of a call; see `input_name`."""
BUFFERS = attrgetter("buffers")


class MessageBase(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of all messages: immutable, and an array on the wire."""

    def count_buffers(self) -> int:
        """Return how many buffers belong to this message: as its field `buffers` says, if it has
        that.

        Raises:
            ProtocolError: its parts do not agree.
        """
        return getattr(self, "buffers", 0)


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of what messages list."""


class OfRunner(MessageBase, frozen=True):
    """The base of what a process that runs calls and its dispatcher say to each other, when calls
    make calls, their *children*. `runner` is the number that the process's agent knows it by, which
    checks it, and passes all on.
    """

    runner: int


NAME_BYTES = 8
"""How long the names of results are."""


def input_name(reference: int) -> bytes:
    """Return the name of a result where functions and shared objects have theirs, whose names are
    of other lengths.
    """
    return reference.to_bytes(NAME_BYTES, "big")


class CallerState(Item, frozen=True):
    """What calls have of the process that submits them, besides its path and directory: its
    environment, as /proc/self/environ has one, its umask, and its `sys.argv`. With `levels` it
    wants to have what calls log, from these levels on: of loggers, by their names (that of the
    root is empty). `interpreter` is the state of its interpreter, pickled, which runners read.
    """

    variables: bytes
    umask: int
    arguments: Sequence[bytes] = ()
    levels: Sequence[tuple[str, int]] | None = None
    interpreter: bytes = b""


class Rejoin(MessageBase, frozen=True):
    """The answer of a dispatcher that was started again to a worker that it does not know: begin a
    new session, with a `Hello` that says what you hold, and send again what was not acknowledged.
    """

    epoch: int


class Refuse(MessageBase, frozen=True):
    """The dispatcher's other answer: the worker, or client, is to leave, and why; `mismatch`:
    because of its version.
    """

    reason: str
    mismatch: bool = False


class Beat(MessageBase, frozen=True):
    """A sign of life. Carries nothing: the envelope's acknowledgement does."""


class Goodbye(MessageBase, frozen=True):
    """A worker's or client's last message. A worker's reason is `TERMINATED` when it was ended from
    outside; `begun` are the runs that its runners were at, where that is known. A client's is
    `DETACHED` when its calls are to go on.
    """

    reason: str
    begun: list[int] | None = None


TERMINATED = "terminated"
DETACHED = "detached"


def portions(items: Sequence[Any], buffers: Sequence[Buffer]) -> list[tuple[Any, Payload]]:
    """Return each item of an `Assign` or `Results` with the buffers that belong to it."""
    if len(items) == 1:
        return [(items[0], buffers)]
    offset, pairs = 0, []
    for item in items:
        pairs.append((item, buffers[offset : offset + item.buffers]))
        offset += item.buffers
    return pairs
