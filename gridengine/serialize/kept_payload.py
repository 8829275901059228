"""`KeptPayload`: a payload that has stayed at the worker which made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gridengine.serialize.payload import Buffer, Payload


class KeptPayload(list[Buffer]):
    """Stands for the payload of a result, by its `reference`; `size` is in bytes, `worker` where it
    was made. It is empty: who needs what is in it fetches it.
    """

    def __init__(self, reference: int, size: int, worker: bytes) -> None:
        super().__init__()
        self.reference = reference
        self.size = size
        self.worker = worker
        self.load: Callable[[], Payload] | None = None
        """Fetches it: set by who passes this on to those who may ask; as the next."""
        self.when_here: Callable[[Callable[[], object]], bool] | None = None
        """Has it fetched, and something done then, in any thread; returns False if it is here."""
        self.outcome: Callable[[], Any] | None = None
        """Returns what came of that, unread, once it is here."""

    def fetch(self) -> Payload:
        """Return the payload itself; waits for it.

        Raises:
            Exception: it was lost and cannot be made again.
        """
        assert self.load is not None
        return self.load()
