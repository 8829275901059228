"""A queue whose submitters take turns: who has the smallest share of the workers, or has waited
longest, is next.

A part of the core, sans-I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice

from msgspec.structs import replace

from gridengine.dispatcher.core.model import Span, Submitter

MOST_COMPARED = 16
"""Among how many of those that have waited longest for a turn it is looked for who has least: turns
cost the same however many wait.
"""


class FairQueue:
    """The spans that wait, first in, first out for each submitter; who has had a turn goes behind
    the other submitters.
    """

    def __init__(self) -> None:
        self._queues: dict[Submitter, deque[Span]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Span]:
        return chain.from_iterable(self._queues.values())

    def append(self, span: Span) -> None:
        """Have a span wait behind all others of its submitter."""
        self._queues.setdefault(span.open.submitter, deque()).append(span)

    def appendleft(self, span: Span) -> None:
        """Have a span wait before all others of its submitter."""
        self._queues.setdefault(span.open.submitter, deque()).appendleft(span)

    def first(self) -> Span:
        """Return the span whose turn it is."""
        return self._queues[self._next()][0]

    def begin_turn(self) -> tuple[Submitter, deque[Span]]:
        """Return whose turn it is, and its spans, to be taken from the left until `end_turn`."""
        submitter = self._next()
        return submitter, self._queues[submitter]

    def end_turn(self, submitter: Submitter) -> None:
        """Have a submitter that was served go behind the others."""
        if not self._queues[submitter]:
            del self._queues[submitter]
        elif len(self._queues) > 1:
            self._queues[submitter] = self._queues.pop(submitter)

    def _next(self) -> Submitter:
        if len(self._queues) == 1:
            return next(iter(self._queues))
        return min(islice(self._queues, MOST_COMPARED), key=_had)

    def drop(self, which: Callable[[Span], bool]) -> list[Span]:
        """Take such spans out and return them."""
        return self._filter(
            list(self._queues), lambda span: ([], span) if which(span) else ([span], None)
        )

    def take_out(
        self, calls: Mapping[int, tuple[int, int]], submitters: Iterable[Submitter]
    ) -> list[Span]:
        """Take out of these submitters' spans what is among the calls named, from one to another of
        each task, and was never handed out.
        """

        def split(span: Span) -> tuple[list[Span], Span | None]:
            start, stop = calls.get(span.open.task.id, (0, 0))
            start, stop = max(start, span.start), min(stop, span.stop)
            if start >= stop or span.attempt > 1:
                return [span], None
            around = replace(span, stop=start), replace(span, start=stop)
            return [part for part in around if part.calls], replace(span, start=start, stop=stop)

        return self._filter([one for one in submitters if one in self._queues], split)

    def _filter(
        self, submitters: list[Submitter], split: Callable[[Span], tuple[list[Span], Span | None]]
    ) -> list[Span]:
        """Ask for each span of these submitters what of it stays and what is taken; return what is
        taken.
        """
        taken: list[Span] = []
        for submitter in submitters:
            kept: deque[Span] = deque()
            for span in self._queues[submitter]:
                stays, goes = split(span)
                kept.extend(stays)
                if goes is not None:
                    taken.append(goes)
            if kept:
                self._queues[submitter] = kept
            else:
                del self._queues[submitter]
        return taken


def _had(submitter: Submitter) -> tuple[int, int]:
    return submitter.load, submitter.served
