"""Whatever is asked, given and given back, in whatever order: never more than is held, all or
nothing, and nobody waits for ever.
"""

from __future__ import annotations

import heapq
import pickle
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gridengine.arguments import format_seconds, parse_seconds, to_bytes, to_gigabytes
from gridengine.resources import ZERO, Capacity, Cores, GPUs, Memory, Resource, Token, WTime
from gridengine.resources.packing import Packer


class Moody(Capacity):
    """A kind of a user's own that says yes, and every other time fails when it comes to giving."""

    def __init__(self, count: int = 1) -> None:
        super().__init__(count)
        self._fails = False

    def allocate(self, res: Any) -> Resource:
        self._fails = not self._fails
        if self._fails:
            raise RuntimeError("not now")
        return super().allocate(res)


def combinations(*, most: int) -> st.SearchStrategy[Resource]:
    """Return resources of any kinds, of at most so much each, in any order."""
    number = st.integers(1, most)
    parts = {
        Cores: number.map(Cores),
        GPUs: number.map(GPUs),
        Memory: (number | st.floats(0.01, most)).map(Memory),
        Capacity: number.map(Capacity),
        Moody: number.map(Moody),
        Token: st.sampled_from("ab").map(Token),
        WTime: st.builds(
            WTime,
            st.none() | st.integers(1, 100_000) | st.floats(0.1, 1e6),
            group=st.none() | st.just("g"),
        ),
    }
    kinds = st.lists(st.sampled_from(list(parts)), unique=True)
    return kinds.flatmap(lambda chosen: st.tuples(*(parts[kind] for kind in chosen))).map(combined)


def combined(parts: tuple[Resource, ...]) -> Resource:
    whole: Resource = ZERO
    for part in parts:
        whole = whole & part
    return whole


AMOUNTS = {
    Cores: lambda part: part.N,
    GPUs: lambda part: len(part.g),
    Memory: lambda part: to_bytes(part.M),
    Capacity: lambda part: part.count,
    Moody: lambda part: part.count,
}


def amounts(resource: Resource) -> dict[type, int]:
    """Return how much of what can be used up, in whole units."""
    return {type(part): AMOUNTS[type(part)](part) for part in resource if type(part) in AMOUNTS}


def check_within(held: Resource, given_out: list[Resource]) -> None:
    """All that is given, taken together, is there; and what has a number is given once."""
    have = amounts(held)
    for kind in {kind for one in given_out for kind in amounts(one)}:
        assert sum(amounts(one).get(kind, 0) for one in given_out) <= have[kind]
    for kind, name in ((Cores, "c"), (GPUs, "g")):
        numbers = [
            number
            for one in given_out
            if (part := one.get(kind)) is not None
            for number in getattr(part, name)
        ]
        assert len(numbers) == len(set(numbers))
        assert set(numbers) <= set(getattr(held, name, ()))


def covers(given_out: Resource, asked: Resource) -> bool:
    return amounts(given_out) == amounts(asked) and {type(part) for part in given_out} == {
        type(part) for part in asked
    }


# -------------------------------------------------------------------- the algebra


@given(combinations(most=8), st.randoms())
def test_the_order_of_combining_does_not_matter(request_: Resource, random: Any) -> None:
    parts = list(request_)
    random.shuffle(parts)
    other = combined(tuple(parts))
    assert other == request_
    assert hash(other) == hash(request_)


@given(combinations(most=8))
def test_a_request_comes_back_from_its_repr_and_its_pickle(request_: Resource) -> None:
    assert eval(repr(request_)) == request_
    assert pickle.loads(pickle.dumps(request_)) == request_


@given(combinations(most=8), combinations(most=8))
def test_resources_with_equal_reprs_are_equal(one: Resource, other: Resource) -> None:
    looks = [sorted(map(repr, resource)) for resource in (one, other)]
    assert (one == other) == (looks[0] == looks[1])


class Books(RuleBasedStateMachine):
    """One holder, asked for anything at any time."""

    @initialize(held=combinations(most=8))
    def hold(self, held: Resource) -> None:
        self.held = held
        self.holder = held.holder()
        self.given: list[Resource] = []

    @rule(request=combinations(most=4))
    def ask(self, request: Resource) -> None:
        before = [part.usage() for part in self.holder]
        fits = self.holder.can_allocate(request)
        given_now, error = self._outcome(request)
        assert isinstance(error, ValueError) == (not fits)
        if error is None:
            assert covers(given_now, request)
            self.given.append(given_now)
        else:
            assert [part.usage() for part in self.holder] == before
        event("given" if error is None else "failed in one part" if fits else "refused")

    def _outcome(self, request: Resource) -> tuple[Resource, Exception | None]:
        try:
            return self.holder.allocate(request), None
        except (ValueError, RuntimeError) as error:
            return ZERO, error

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.holder.deallocate(self.given.pop(data.draw(st.integers(0, len(self.given) - 1))))

    @precondition(lambda self: self.given)
    @rule()
    def what_is_whole_again_can_be_given_whole(self) -> None:
        while self.given:
            self.holder.deallocate(self.given.pop())
        assert all(part.usage()[0] == 0 for part in self.holder)
        assert self.holder.can_allocate(self.held)

    @invariant()
    def never_more_is_given_than_held(self) -> None:
        if hasattr(self, "held"):
            check_within(self.held, self.given)


TestBooks = Books.TestCase


@given(st.integers(1, 10**9))
def test_whole_seconds_are_written_and_read(seconds: int) -> None:
    assert parse_seconds("T", format_seconds(seconds)) == seconds


@given(st.integers(0, 2**50))
def test_bytes_are_gigabytes_are_bytes(size: int) -> None:
    assert to_bytes(to_gigabytes(size)) == size


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_n_times_an_nth_of_the_memory_fits(gigabytes: int, n: int) -> None:
    assert n * to_bytes(gigabytes / n) <= to_bytes(gigabytes)


# -------------------------------------------------------------------- packing

SHAPES = [
    Cores(4) & Memory(8),
    Cores(8) & Memory(4) & Token("a"),
    Cores(2) & Memory(16) & WTime(50),
    Cores(4) & GPUs(2),
]
REQUESTS = [
    ZERO,
    Cores(1),
    Cores(3),
    Cores(4),
    Cores(8),
    Memory(5) & Cores(1),
    Memory(16),
    Cores(2) & Token("a"),
    Cores(1) & WTime(30),
    GPUs(1),
    Memory(2) & Cores(4),
]


class Naive:
    """First fit with backfill, the slow way: every task in order on every holder in order."""

    def __init__(self) -> None:
        self.holders: dict[int, Any] = {}
        self.waiting: dict[int, Resource] = {}
        self.given: dict[int, tuple[int, Resource]] = {}

    def place(self, now: float) -> list[tuple[int, int]]:
        placed = []
        for task, request in list(self.waiting.items()):
            for number, holder in self.holders.items():
                holder.set_time(now)
                if holder.can_allocate(request):
                    self.given[task] = number, holder.allocate(self.waiting.pop(task))
                    placed.append((task, number))
                    break
        return placed

    def remove(self, task: int) -> None:
        self.waiting.pop(task, None)
        if task in self.given:
            number, given_then = self.given.pop(task)
            self.holders[number].deallocate(given_then)

    def shut(self, number: int) -> None:
        del self.holders[number]
        self.given = {task: place for task, place in self.given.items() if place[0] != number}


class Packing(RuleBasedStateMachine):
    """Holders and tasks come and go. Where nobody drains, the packer does what the naive one
    does.
    """

    @initialize(patience=st.sampled_from([0.0, 10.0, float("inf")]))
    def begin(self, patience: float) -> None:
        self.patience = patience
        self.packer: Packer[int, int] = Packer(SHAPES, overtake_seconds=patience)
        self.naive = Naive()
        self.now = 0.0
        self.last = 0
        self.shapes: dict[int, Resource] = {}
        self.opened_at: dict[int, float] = {}
        self.waiting: dict[int, Resource] = {}
        self.running: dict[int, tuple[int, Resource]] = {}

    @rule(shape=st.sampled_from(SHAPES))
    def open(self, shape: Resource) -> None:
        self.last += 1
        self.shapes[self.last] = shape
        self.opened_at[self.last] = self.now
        self.packer.open(self.last, shape, self.now)
        self.naive.holders[self.last] = shape.holder()
        self.naive.holders[self.last].set_time(self.now)

    @precondition(lambda self: self.shapes)
    @rule(data=st.data())
    def shut(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.shapes)))
        del self.shapes[number]
        there = {task for task, (holder, _) in self.running.items() if holder == number}
        assert set(self.packer.shut(number)) == there
        self.naive.shut(number)
        for task in there:
            del self.running[task]

    @rule(requests=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=6))
    def add(self, requests: list[Resource]) -> None:
        for request in requests:
            self.last += 1
            self.waiting[self.last] = self.naive.waiting[self.last] = request
            self.packer.add(self.last, request, self.now)

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from([*self.running, *self.waiting]))
        self.waiting.pop(task, None)
        self.running.pop(task, None)
        self.packer.remove(task)
        self.naive.remove(task)

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 30.0]))
    def place(self, seconds: float) -> None:
        self.now += seconds
        placed = list(self.packer.place(self.now))
        for one in placed:
            request = self.waiting.pop(one.task)
            assert covers(one.given, request)
            self.running[one.task] = one.holder, one.given
        if self.patience == float("inf"):
            assert [(one.task, one.holder) for one in placed] == self.naive.place(self.now)
        elif self.patience == 0:
            self._check_that_nobody_is_overtaken_everywhere(placed)

    def _check_that_nobody_is_overtaken_everywhere(self, placed: list[Any]) -> None:
        """Of the holders that could have the first that waits, there is one that nobody who came
        later goes to.
        """
        if not self.waiting or not placed:
            return
        first, request = next(iter(self.waiting.items()))
        able = {number for number in self.shapes if self._could_hold(number, request)}
        if able:
            event("one waited and others were placed")
            assert not able <= {one.holder for one in placed if one.task > first}

    def _could_hold(self, number: int, request: Resource) -> bool:
        empty = self.shapes[number].holder()
        empty.set_time(self.opened_at[number])
        empty.set_time(self.now)
        return empty.can_allocate(request)

    @invariant()
    def never_more_is_given_than_held(self) -> None:
        for number, shape in getattr(self, "shapes", {}).items():
            check_within(
                shape,
                [given_out for holder, given_out in self.running.values() if holder == number],
            )

    @invariant()
    def the_books_agree(self) -> None:
        if hasattr(self, "packer"):
            assert self.packer.waiting == len(self.waiting)

    def teardown(self) -> None:
        """When all have ended, every holder has all of it back."""
        if not hasattr(self, "packer"):
            return
        for task in [*self.running, *self.waiting]:
            self.packer.remove(task)
        for number, shape in self.shapes.items():
            whole = combined(tuple(part for part in shape if type(part) is not WTime))
            self.packer.add(-number, whole, self.now)
        assert len(list(self.packer.place(self.now))) == len(self.shapes)
        assert self.packer.waiting == 0


TestPacking = Packing.TestCase


@dataclass
class Simulation:
    """Tasks of (request, seconds) that arrive one after the other and run on these holders; an
    endless stream of small ones after them.
    """

    holders: list[Resource]
    tasks: list[tuple[Resource, float]]
    stream: Resource
    patience: float
    now: float = 0.0
    begun_at: dict[int, float] = field(default_factory=dict)

    def run(self, until: float, every: float) -> None:
        packer: Packer[int, int] = Packer(overtake_seconds=self.patience)
        for number, held in enumerate(self.holders):
            packer.open(number, held, 0.0)
        seconds = {number: duration for number, (_, duration) in enumerate(self.tasks)}
        ends: list[tuple[float, int]] = []
        for number, (request, _) in enumerate(self.tasks):
            packer.add(number, request, 0.0)
        while self.now < until and not self.begun_at.keys() >= set(range(len(self.tasks))):
            # The stream keeps every holder as full as it can be.
            while packer.waiting < 3 * len(self.holders) + len(self.tasks):
                number = len(seconds)
                seconds[number] = every * (1 + number % 3)
                packer.add(number, self.stream, self.now)
            for placed in packer.place(self.now):
                self.begun_at[placed.task] = self.now
                heapq.heappush(ends, (self.now + seconds[placed.task], placed.task))
            self.now = ends[0][0]
            while ends and ends[0][0] <= self.now:
                packer.remove(heapq.heappop(ends)[1])


@given(
    holders=st.lists(st.sampled_from([Cores(4), Cores(6), Cores(8)]), min_size=1, max_size=4),
    tasks=st.lists(
        st.tuples(st.integers(1, 4).map(Cores), st.integers(1, 40)), min_size=1, max_size=12
    ),
    patience=st.sampled_from([0.0, 5.0, 60.0]),
)
def test_every_task_begins_though_smaller_ones_never_cease_to_come(
    holders: list[Resource], tasks: list[tuple[Resource, float]], patience: float
) -> None:
    longest = 40.0
    simulation = Simulation(holders, tasks, Cores(1), patience)
    simulation.run(until=(len(tasks) + 1) * (patience + 2 * longest), every=7.0)
    assert simulation.begun_at.keys() >= set(range(len(tasks)))


@given(st.integers(1, 3), st.sampled_from([0.0, 5.0, 60.0]))
def test_a_large_task_waits_no_longer_than_it_may_be_overtaken_and_the_longest_run(
    holders: int, patience: float
) -> None:
    simulation = Simulation(
        [Cores(4)] * holders, [(Cores(1), 5.0)] * holders + [(Cores(4), 5.0)], Cores(1), patience
    )
    simulation.run(until=1000.0, every=7.0)
    # One round may pass until the end of some task shows that its time has come; then the longest
    # of the stream may have just begun.
    assert simulation.begun_at[holders] <= patience + 7.0 + 21.0


def test_the_cost_of_a_thousand_holders_and_requests_follows_from_their_changes() -> None:
    """Each holder is asked once by each request, and again only when something of it was given
    back.
    """
    count, asked = 1000, 0

    class Counting(Capacity):
        def can_allocate(self, res: Any) -> bool:
            nonlocal asked
            asked += 1
            return super().can_allocate(res)

    packer: Packer[int, int] = Packer()
    for number in range(count):
        packer.open(number, Counting(2), 0.0)
    for task in range(2 * count):
        packer.add(task, Counting(1 + task % 2), 0.0)
    placed = len(list(packer.place(0.0)))
    first, asked = asked, 0
    for task in range(0, 100, 2):
        packer.remove(task)
        packer.add(10_000 + task, Counting(1), 0.0)
        placed += len(list(packer.place(0.0)))
    assert placed > count
    assert first <= 10 * count
    assert asked <= 50 * 12
