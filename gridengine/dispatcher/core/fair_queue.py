"""A queue whose submitters take turns: who has the smallest share of the workers, or has waited
longest, is next.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from gridengine.dispatcher.core.calls import Span, Submitter

MOST_COMPARED = 16
"""How many of the submitters that have waited longest are compared by their shares: a turn costs
the same however many wait.
"""


Waiting = OrderedDict[Submitter, deque[Span]]
"""The spans of each submitter. Ordered: in a plain dictionary it takes longer to find the first,
the more were before it.
"""


class FairQueue:
    """The spans that wait, first in, first out for each submitter; who has had a turn goes behind
    the other submitters. The calls that are inside of most others come before all.

    `spans` are those of each submitter whose calls are inside of none, for one more to be added at
    once.
    """

    def __init__(self) -> None:
        self.spans = Waiting()
        self._deeper: dict[int, Waiting] = {}

    def level(self, depth: int) -> Waiting:
        """Return the spans of each submitter of this depth, for one more to be added at once."""
        if not depth:
            return self.spans
        found = self._deeper.get(depth)
        if found is None:
            found = self._deeper[depth] = Waiting()
        return found

    @property
    def deepest(self) -> int:
        """Inside of how many others the calls are that come first."""
        return max(self._deeper) if self._deeper else 0

    def __iter__(self) -> Iterator[Span]:
        levels = (self.spans, *self._deeper.values())
        return chain.from_iterable(spans for level in levels for spans in level.values())

    def begin_turn(self) -> deque[Span]:
        """Return the spans of the submitter whose turn it is, to be taken from the left until
        `end_turn`.
        """
        queues = self._deeper[self.deepest] if self._deeper else self.spans
        if len(queues) == 1:
            return next(iter(queues.values()))
        return queues[min(islice(queues, MOST_COMPARED), key=_share)]

    def end_turn(self, submitter: Submitter) -> None:
        """Have a submitter that was served go behind the others."""
        depth = submitter.depth
        spans = self.level(depth) if depth else self.spans
        if not spans[submitter]:
            del spans[submitter]
            if depth and not spans:
                del self._deeper[depth]
        elif len(spans) > 1:
            spans.move_to_end(submitter)

    def take_out(
        self,
        split: Callable[[Span], tuple[Iterable[Span], Iterable[Span]]],
        submitters: Iterable[Submitter] | None = None,
    ) -> list[Span]:
        """Ask for each span, of these submitters or of all, what of it stays and what is taken out;
        return what is taken out.
        """
        taken: list[Span] = []
        if submitters is None:
            submitters = [one for level in (self.spans, *self._deeper.values()) for one in level]
        for submitter in submitters:
            kept: deque[Span] = deque()
            spans = self.level(submitter.depth)
            for span in spans.get(submitter, ()):
                stays, goes = split(span)
                kept.extend(stays)
                taken.extend(goes)
            if kept:
                spans[submitter] = kept
            else:
                spans.pop(submitter, None)
        for depth in [depth for depth, spans in self._deeper.items() if not spans]:
            del self._deeper[depth]
        return taken


def _share(submitter: Submitter) -> tuple[int, int]:
    return submitter.load, submitter.last_run
