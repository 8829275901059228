"""`KeptPayloads`: what the caller has in the place of results that stay at their workers, until it
asks for them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from gridengine.dispatcher.core.events import ResultFetched, ResultKept
from gridengine.dispatcher.core.tasks import ResultData
from gridengine.errors import GridEngineError
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload


class KeptPayloads:
    """All that the caller has. The I/O thread adds and fills them; any thread may ask.

    Args:
        ask: is given the reference of a result that somebody waits for.
        release: is given those of results that nobody has any more; called by the collector too.
    """

    def __init__(
        self, ask: Callable[[int], object], release: Callable[[Sequence[int]], object]
    ) -> None:
        self._ask = ask
        self._release = release
        self._coming: dict[int, Future[ResultData]] = {}

    def add(self, effect: ResultKept) -> None:
        """Have a payload know how to be fetched."""
        payload, reference = effect.payload, effect.payload.reference
        self._coming[reference] = coming = Future[ResultData]()
        payload.load = partial(self._load, reference, coming)
        payload.when_here = partial(self._when_here, reference, coming)
        payload.outcome = coming.result
        weakref.finalize(payload, self._let_go, reference).atexit = False

    def _let_go(self, reference: int) -> None:
        self._coming.pop(reference, None)
        self._release((reference,))

    def _load(self, reference: int, coming: Future[ResultData]) -> Payload:
        if not coming.done():
            self._ask(reference)
        data = coming.result()
        if data.error is not None:
            raise data.error
        assert data.payload is not None
        if data.raised:
            raise pickling.load_exception(data.payload)
        return data.payload

    def _when_here(
        self, reference: int, coming: Future[ResultData], act: Callable[[], object]
    ) -> bool:
        if coming.done():
            return False
        coming.add_done_callback(lambda _: act())
        self._ask(reference)
        return True

    def fill(self, effect: ResultFetched) -> None:
        """Take in what has come for whoever has it."""
        coming = self._coming.get(effect.reference)
        if coming is not None and not coming.done():
            coming.set_result(effect.data)

    def close(self, error: GridEngineError) -> None:
        """Let nobody wait any more, and refer to nobody."""
        for reference in list(self._coming):
            self.fill(ResultFetched(reference, ResultData(error=error)))
        self._ask = self._release = _ignore


def _ignore(which: object) -> None:
    """Nobody is left to be told."""
