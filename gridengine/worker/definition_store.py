"""`DefinitionStore`: the functions and shared objects that the dispatcher has defined to this
worker's agent, kept for its runners.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gridengine.serialize.payload import Payload, Place
from gridengine.serialize.shared_memory import (
    MOST_BLOCKS,
    Block,
    StoredPayload,
    block_of,
    store,
)
from gridengine.wire.messages import Define


class DefinitionStore:
    """Keeps `Define` messages by name; large buffers are in blocks that runners map, which stay
    open as long as their definition is kept.
    """

    def __init__(self) -> None:
        self.messages: dict[bytes, tuple[Define, Payload]] = {}
        """What a runner is sent, by name."""
        self._blocks: dict[bytes, list[Block]] = {}
        self.held: dict[bytes, Payload] = {}
        """The results that lie here alone, by name, as far as is known here."""

    def add(self, message: Define, buffers: Payload) -> None:
        found, payload, blocks = list(map(block_of, buffers)), buffers, dict[str, list[Place]]()
        if message.result and any(found):
            kept = list(filter(None, found))
            blocks = {
                one.path: [(index, 0, len(one))]
                for index, one in enumerate(found)
                if one is not None
            }
            payload = [one for one, block in zip(buffers, found, strict=True) if block is None]
        elif not message.result or len(self._blocks) < MOST_BLOCKS:
            payload = store(buffers, whole=message.shared or message.result)
            if isinstance(payload, StoredPayload):
                kept, blocks = [payload.block], {payload.block.path: payload.places}
                payload = payload.others()
        if blocks:
            message = msgspec.structs.replace(message, buffers=len(payload), blocks=blocks)
            self._blocks[message.function] = kept
        self.messages[message.function] = message, payload

    def hold(self, name: bytes, payload: Payload) -> None:
        """Keep a result that was made here, until it is forgotten."""
        self.held[name] = payload
        self.add(Define(name, [], b"", len(payload), result=True), payload)

    def remove(self, names: Iterable[bytes]) -> None:
        """Let go of definitions; those that are not here are no error."""
        for name in names:
            self.messages.pop(name, None)
            self._blocks.pop(name, None)
            self.held.pop(name, None)

    def shared(self) -> list[bytes]:
        """Return the names of the shared objects: calls name what they need only to those who
        unpickle them, so every runner is sent all.
        """
        return [name for name, (message, _) in self.messages.items() if message.shared]

    def clear(self) -> None:
        """Let go of everything."""
        self.messages.clear()
        self._blocks.clear()
        self.held.clear()
