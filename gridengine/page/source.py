"""The dispatcher that a page shows, asked for all who look; found again when it was restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from gridengine.dispatcher.watch_messages import STATUS, Answer, Identity
from gridengine.errors import GridEngineError
from gridengine.watching.lookup import connect
from gridengine.watching.watched import Watched

KEPT_SECONDS = 0.8
"""For how long an answer, or that there is none, is good for all who look."""
MOST_KEPT = 32


class Source:
    """Asks one dispatcher, for any number of threads.

    Args:
        name: as `gridengine ls` lists it; empty for the only one. Once it has answered, one of its
            own name is looked for when it is gone.

    Raises:
        GridEngineError: there is none, or several are meant.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._kept: dict[object, tuple[float, Answer]] = {}
        self._fault: GridEngineError | None = None
        self._fault_at = 0.0
        self._watched: Watched | None = connect(name)
        self.identity: Identity
        self._ask(STATUS, 0, (), 0)

    def ask(
        self, ask: str = STATUS, *, most: int = 1000, words: Sequence[str] = (), first: int = 0
    ) -> Answer:
        """Return what the dispatcher answers, or has answered just now.

        Raises:
            GridEngineError: it has ended, or does not answer.
        """
        key = ask, most, tuple(words), first
        with self._lock:
            now = time.monotonic()
            if self._fault is not None and now - self._fault_at < KEPT_SECONDS:
                raise self._fault
            at, answer = self._kept.get(key, (0.0, None))
            if answer is None or now - at > KEPT_SECONDS:
                answer = self._ask(ask, most, words, first)
                if len(self._kept) >= MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = time.monotonic(), answer
            return answer

    def act(self, ask: str, words: Sequence[str]) -> Answer:
        """Have the dispatcher do something, and forget what it has answered before. That it
        refuses is for who asked alone: others are not told that it is gone.

        Raises:
            GridEngineError: it has ended, or refuses.
        """
        with self._lock:
            self._kept.clear()
            try:
                return self._ask(ask, 0, words, 0)
            finally:
                self._fault = None

    def close(self) -> None:
        """Let the dispatcher go."""
        with self._lock:
            self._drop()

    def _ask(self, ask: str, most: int, words: Sequence[str], first: int) -> Answer:
        self._fault = None
        try:
            if self._watched is None:
                self._watched = connect(self.identity.name)
            answer = self._watched.ask(ask, most=most, words=words, first=first)
        except GridEngineError as error:
            self._drop()
            self._fault, self._fault_at = error, time.monotonic()
            raise
        self.identity = answer.identity
        return answer

    def _drop(self) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None
