"""The dispatcher of a page, asked once for all viewers, and found again after a restart; after its
end, the report that it has left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import ACTS, GRAPH, STATUS, Identity, WatchAnswer
from gridengine.errors import GridEngineError
from gridengine.status.rows import GraphStatus
from gridengine.watching.connections import Watched
from gridengine.watching.dispatcher_lookup import connect, running_or_ended
from gridengine.watching.runs_on_disk import check_told, report_of

SHARED_SECONDS = 0.8
"""For how long an answer, or the error that there is none, is shared by all viewers."""
MOST_ANSWERS = 32


class Source:
    """Asks one dispatcher, for any number of threads.

    Args:
        name: the dispatcher's name in the list of `gridengine ls`; empty for the only dispatcher.
            When it has ended, its report answers, if it has left one, until another dispatcher with
            the same own name takes its place. Without a dispatcher of this name it is the last that
            has left a report.

    Raises:
        GridEngineError: there is no such dispatcher, or there are several.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._answers: dict[object, tuple[float, WatchAnswer]] = {}
        self._fault: GridEngineError | None = None
        self._fault_at = 0.0
        self._watched: Watched | None = None
        self.ended: WatchAnswer | None = None
        """The report of the dispatcher, once it has ended."""
        self.identity: Identity
        self._name = name
        """The name by which the dispatcher is looked for."""
        found = running_or_ended(name)
        if isinstance(found, WatchAnswer):
            check_told(found)
            self.ended, self.identity = found, found.identity
            self._name = name or self.identity.name
        else:
            self._watched = found
            self._ask(STATUS, 0, (), 0)

    def ask(
        self, ask: str = STATUS, *, most: int = 1000, words: Sequence[str] = (), first: int = 0
    ) -> WatchAnswer:
        """Return the dispatcher's answer, which may be up to `SHARED_SECONDS` old.

        Raises:
            GridEngineError: the dispatcher has ended without a report, or does not answer.
        """
        key = ask, most, tuple(words), first
        with self._lock:
            now = time.monotonic()
            if self._fault is not None and now - self._fault_at < SHARED_SECONDS:
                raise self._fault
            at, answer = self._answers.get(key, (0.0, None))
            if answer is None or now - at > SHARED_SECONDS:
                answer = self._ask(ask, most, words, first)
                if len(self._answers) >= MOST_ANSWERS:
                    self._answers.clear()
                self._answers[key] = time.monotonic(), answer
            return answer

    def act(self, ask: str, words: Sequence[str]) -> WatchAnswer:
        """Let the dispatcher act, and forget its earlier answers. A refusal concerns this request
        alone: other viewers are not told that the dispatcher is gone.

        Raises:
            GridEngineError: the dispatcher has ended, or refuses.
        """
        with self._lock:
            self._answers.clear()
            try:
                return self._ask(ask, 0, words, 0)
            finally:
                self._fault = None

    def close(self) -> None:
        """Close the connection to the dispatcher."""
        with self._lock:
            self._drop()

    def _ask(self, ask: str, most: int, words: Sequence[str], first: int) -> WatchAnswer:
        self._fault = None
        try:
            if self._watched is None:
                self._watched = connect(self._name)
            answer = self._watched.ask(ask, most=most, words=words, first=first)
        except GridEngineError as error:
            self._drop()
            if self.ended is None and hasattr(self, "identity"):
                self.ended = report_of(self.identity.run_id)
            if self.ended is not None and ask not in ACTS:
                # What was drawn of the graph has ended.
                return replace(self.ended, graph=GraphStatus()) if ask == GRAPH else self.ended
            self._fault, self._fault_at = error, time.monotonic()
            raise
        self.identity, self.ended = answer.identity, None
        self._name = self.identity.name
        return answer

    def _drop(self) -> None:
        if self._watched is not None:
            self._watched.close()
            self._watched = None
