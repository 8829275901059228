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


class _Waiting(OrderedDict[Submitter, deque[Span]]):
    """The spans of each submitter; none of one that is new.

    Ordered: in a plain dictionary it takes longer to find the first, the more were before it.
    """

    def __missing__(self, submitter: Submitter) -> deque[Span]:
        queue = self[submitter] = deque()
        return queue


class FairQueue:
    """The spans that wait, first in, first out for each submitter; who has had a turn goes behind
    the other submitters.

    `spans` are those of each submitter, for one more to be added at once.
    """

    def __init__(self) -> None:
        self.spans = _Waiting()

    def __iter__(self) -> Iterator[Span]:
        return chain.from_iterable(self.spans.values())

    def begin_turn(self) -> deque[Span]:
        """Return the spans of the submitter whose turn it is, to be taken from the left until
        `end_turn`.
        """
        queues = self.spans
        if len(queues) == 1:
            return next(iter(queues.values()))
        return queues[min(islice(queues, MOST_COMPARED), key=_share)]

    def end_turn(self, submitter: Submitter) -> None:
        """Have a submitter that was served go behind the others."""
        if not self.spans[submitter]:
            del self.spans[submitter]
        elif len(self.spans) > 1:
            self.spans.move_to_end(submitter)

    def take_out(
        self,
        split: Callable[[Span], tuple[Iterable[Span], Iterable[Span]]],
        submitters: Iterable[Submitter] | None = None,
    ) -> list[Span]:
        """Ask for each span, of these submitters or of all, what of it stays and what is taken out;
        return what is taken out.
        """
        taken: list[Span] = []
        for submitter in list(self.spans if submitters is None else submitters):
            kept: deque[Span] = deque()
            for span in self.spans.get(submitter, ()):
                stays, goes = split(span)
                kept.extend(stays)
                taken.extend(goes)
            if kept:
                self.spans[submitter] = kept
            else:
                self.spans.pop(submitter, None)
        return taken


def _share(submitter: Submitter) -> tuple[int, int]:
    return submitter.load, submitter.last_run
