"""`DefinitionStore`: the functions, shared objects and large results that the dispatcher has
defined at this worker, kept for its runners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gridengine.serialize.payload import Payload, Place
from gridengine.serialize.shared_memory import MOST_BLOCKS, Block, StoredPayload, block_of, store
from gridengine.wire.messages import Define


class DefinitionStore:
    """`Define` messages by name. Their large buffers are in blocks that runners map; a block stays
    open as long as its definition.
    """

    def __init__(self) -> None:
        self.messages: dict[bytes, tuple[Define, Payload]] = {}
        """The message and payload that a runner is sent, by name."""
        self._blocks: dict[bytes, list[Block]] = {}
        self.held: dict[bytes, Payload] = {}
        """The results, by name, that the dispatcher has not fetched from here."""
        self.results: dict[bytes, Payload] = {}
        """All results, by name, that other workers can get from here."""
        self.when_held: Callable[[], object] = lambda: None
        """Called with each result that is held from here on."""

    def add(self, message: Define, buffers: Payload) -> Payload:
        """Add a definition. Return its buffers, which are in blocks now if they are large."""
        found, payload, blocks = list(map(block_of, buffers)), buffers, dict[str, list[Place]]()
        if message.result and any(found):
            own = list(filter(None, found))
            blocks = {
                one.path: [(index, 0, len(one))]
                for index, one in enumerate(found)
                if one is not None
            }
            payload = [one for one, block in zip(buffers, found, strict=True) if block is None]
        elif not message.result or len(self._blocks) < MOST_BLOCKS:
            buffers = payload = store(buffers, whole=message.shared or message.result)
            if isinstance(payload, StoredPayload):
                own, blocks = [payload.block], {payload.block.path: payload.places}
                payload = payload.others()
        if blocks:
            message = msgspec.structs.replace(message, buffers=len(payload), blocks=blocks)
            self._blocks[message.function] = own
        self.messages[message.function] = message, payload
        return buffers

    def hold(self, name: bytes, payload: Payload) -> None:
        """Keep a result that was made here, or by another worker, until it is forgotten."""
        define = Define(name, [], b"", len(payload), result=True)
        self.held[name] = self.results[name] = self.add(define, payload)
        self.when_held()

    def remove(self, names: Iterable[bytes]) -> None:
        """Forget definitions. Names that are not here are no error."""
        for name in names:
            for table in (self.messages, self._blocks, self.held, self.results):
                table.pop(name, None)

    def shared(self) -> list[bytes]:
        """Return the names of the shared objects. Every runner is sent all of them, because only
        unpickling a call shows which it needs.
        """
        return [name for name, (message, _) in self.messages.items() if message.shared]

    def clear(self) -> None:
        """Forget everything."""
        for table in (self.messages, self._blocks, self.held, self.results):
            table.clear()
