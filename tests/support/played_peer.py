"""A worker as the core hears it: its runs are played, in any order."""

from __future__ import annotations

import functools
import operator
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gridengine.dispatcher.core.events import (
    Grant,
)
from gridengine.resources import ZERO, Cores, Memory, Resource, Token
from gridengine.resources.demand import Demand, encode_demand
from gridengine.schedulers.launcher import Handle
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject
from gridengine.wire.messages import (
    ABSENT,
    CANCELLED,
    CRASH,
    MEMORY,
    NO_INPUT,
    NOT_PULLED,
    OUT_OF_MEMORY,
    RAISED,
    RETRYABLE,
    TIMEOUT,
    VALUES,
    VERSION,
    Assign,
    Beat,
    Cancel,
    Crashed,
    Define,
    Fetch,
    Fetched,
    Forget,
    Goodbye,
    Hello,
    Keep,
    LeaveBy,
    Message,
    Pull,
    Pulled,
    Recall,
    Refuse,
    Release,
    Reload,
    Result,
    Results,
    Resumed,
    Resumes,
    Returned,
    Serves,
    Shortened,
    Started,
    Stop,
    Waits,
    Welcome,
    input_name,
    large_inputs,
)

OUTCOMES = {"raise": RAISED, "retry": RETRYABLE, "fills its memory": OUT_OF_MEMORY}
CRASHES = {"crash": CRASH, "memory": MEMORY, "timeout": TIMEOUT}


def shared_object(name: bytes, *within: SharedObject) -> SharedObject:
    """Return a shared object in which others are named."""
    payload = PayloadWithObjects([b"object"])
    payload.needs = within
    return SharedObject(name, payload)


FIRST, SECOND = shared_object(b"A"), shared_object(b"B")
THIRD = shared_object(b"C", FIRST)
SHARED = FIRST, SECOND, THIRD
NEEDS_OF_FUNCTION = {0: (SECOND,), 1: (THIRD,)}


def HELD(slots: int) -> Resource:
    """What a worker of so many slots holds."""
    return Cores(slots) & Memory(4) & Token("t")


def plain(part: Resource) -> Resource:
    """Return what was asked for when this was given."""
    return Cores(part.N) if isinstance(part, Cores) else part


@dataclass
class Item:
    """A run as its worker sees it; what comes before `done` is answered. It has what `allocation`
    holds, and needs what the runs that it `follows` make and the results that it `needs`.
    """

    run: int
    task: int
    done: int
    stop: int
    watched: bool
    allocation: int
    once: bool
    follows: set[int]
    kept: dict[int, int]
    needs: set[bytes]

    def text(self, stop: int) -> bytes:
        """What the next calls return, up to one; a call that is made again returns the same."""
        return (
            kept_text(self.kept[self.done])
            if self.task < 0
            else (f"{self.task} {self.done} {stop}".encode())
        )


def kept_text(reference: int) -> bytes:
    """What a call returns whose result stays at its worker."""
    return f"kept {reference}".encode()


@dataclass
class Peer:
    """An honest worker. It may die, be stopped, or be cut off, but it says nothing false."""

    id: bytes
    handle: Handle
    slots: int
    version: str
    needs: dict[int, set[bytes]]
    """The shared objects that must be there for each task."""
    begun_once: set[tuple[int, int]]
    """The calls that may begin only once and have, at whatever worker."""
    shared: bool = False
    says_resources: bool = False
    called: bool = False
    alive: bool = True
    suspended: bool = False
    forgotten: bool = False
    said_goodbye: bool = False
    inbox: deque[Message] = field(default_factory=deque)
    result_buffer: deque[tuple[Message, tuple[bytes, ...]]] = field(default_factory=deque)
    said: list[tuple[Message, tuple[bytes, ...]]] = field(default_factory=list)
    functions: set[bytes] = field(default_factory=set)
    holds: dict[bytes, int] = field(default_factory=dict)
    batches: list[list[Item]] = field(default_factory=list)
    allocations: dict[int, tuple[Resource, int]] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    waiting: dict[int, bool] = field(default_factory=dict)
    """The runs whose calls wait for calls that they have made, and whether they ask for their
    slots.
    """
    owed: dict[int, bool] = field(default_factory=dict)
    """The runs that are still to be answered, though they go on."""
    pulls: dict[bytes, Pull] = field(default_factory=dict)
    unpulled: set[bytes] = field(default_factory=set)
    """The results that it gets from other workers, and those that it did not get, as long as the
    dispatcher does not acknowledge that.
    """

    @property
    def has_network(self) -> bool:
        """Whether it and other workers can get results from each other."""
        return int(self.handle.id) % 4 != 0

    @property
    def waiting_batches(self) -> list[list[Item]]:
        return [batch for batch in self.batches if batch[0].run in self.waiting]

    @property
    def begun(self) -> list[list[Item]]:
        """The batches that runners are at, or wait in."""
        return [*self.running, *self.waiting_batches]

    @property
    def running(self) -> list[list[Item]]:
        """The batches that runners are at: the first of each allocation, and of those without one
        as many as there are slots left.
        """
        first: list[list[Item]] = []
        taken: dict[int, int] = {}
        for batch in self.batches:
            allocation = batch[0].allocation
            if batch[0].run in self.waiting or any(one.needs & self.pulls.keys() for one in batch):
                continue
            if taken.get(allocation, 0) < (
                1
                if allocation
                else self.slots - sum(takes for _, takes in self.allocations.values())
            ):
                taken[allocation] = taken.get(allocation, 0) + 1
                first.append(batch)
        return first

    @property
    def host(self) -> str:
        return f"node{int(self.handle.id) % 3}"

    @property
    def able(self) -> bool:
        return self.alive and self.called and not self.suspended

    def say(self, message: Message, *buffers: bytes) -> None:
        self.result_buffer.append((message, buffers))
        self.said.append((message, buffers))

    def hello(self) -> None:
        self.called = True
        # A scheduler gives logs to all of its workers or to none, so that process ids of different
        # machines are never compared.
        pid = int(self.handle.id) + (1_000_000 if self.handle.log else 0)
        hello = Hello(
            VERSION,
            self.version,
            "3.11",
            "run",
            self.host,
            pid,
            self.slots,
            self.handle.log,
            pulls=self.has_network,
        )
        if self.says_resources:
            parts, _ = encode_demand(Demand(HELD(self.slots)))
            hello = msgspec.structs.replace(hello, resources=parts)
        self.say(hello)

    def read(self) -> None:
        """Take in all that has come."""
        while self.inbox and self.alive:
            message = self.inbox.popleft()
            READ[type(message)](self, message)

    def assigned(self, message: Assign) -> None:
        for one in message.assignments:
            needs = self.needs.get(one.task, ())
            assert {one.function, *needs} <= self.functions
            assert {*large_inputs(one)} <= self.functions | self.pulls.keys() | self.unpulled
        assert not message.allocation or message.allocation in self.allocations, (
            "an allocation that was not granted"
        )
        self.batches.append(
            [
                Item(
                    one.run,
                    one.task,
                    one.start,
                    one.stop,
                    one.watched,
                    message.allocation,
                    one.once,
                    {given.run for given in one.inputs if given.run},
                    dict(one.kept),
                    {*large_inputs(one)},
                )
                for one in message.assignments
            ]
        )
        assert len(self.batches) - len(self.waiting_batches) <= 2 * self.slots
        for name in self.unpulled:
            self.give_up(name)

    def granted(self, grant: Grant) -> None:
        self.allocations[grant.allocation] = grant.given, grant.takes
        assert not self.shared or sum(takes for _, takes in self.allocations.values()) <= self.slots
        books = (HELD(self.slots) if self.shared else grant.given).holder()
        for given, _ in self.allocations.values():
            books.allocate(functools.reduce(operator.and_, (plain(part) for part in given), ZERO))
        cores = [
            core
            for given, _ in self.allocations.values()
            if (part := given.get(Cores))
            for core in part.c
        ]
        assert len(set(cores)) == len(cores), "a core was given twice"

    def released(self, message: Release) -> None:
        for allocation in message.allocations:
            assert not any(
                item.allocation == allocation
                for batch in self.batches
                if batch[0].run not in self.waiting
                for item in batch
            ), "released under calls that run"
            del self.allocations[allocation]

    def cancelled(self, message: Cancel) -> None:
        running = self.begun
        for batch in reversed(list(self.batches)):
            for item in list(batch):
                if item.run not in message.runs:
                    continue
                if item is batch[0] and any(batch is one for one in running):
                    self.begin(item, item.done + 1)
                    self.say(Crashed(item.run, item.done, -message.signal, CANCELLED, 1), b"", b"")
                    self.say(Returned([other.run for other in batch[1:]]))
                    self.batches.remove(batch)
                    break
                self.say(Crashed(item.run, -1, -message.signal, CANCELLED, 0), b"", b"")
                batch.remove(item)
        self.skip()

    def recalled(self, message: Recall) -> None:
        """Give back what has not begun, the rest of a run that has among it."""
        self.give_back(set(message.runs), self.batches)

    def give_back(self, runs: set[int], batches: list[list[Item]], reason: str = "") -> None:
        back = []
        running = self.begun
        for batch in list(batches):
            begun = batch[0] if any(batch is one for one in running) else None
            for item in [item for item in batch if item.run in runs]:
                if item is not begun:
                    batch.remove(item)
                    back.append(item.run)
                elif item.stop > item.done + 1:
                    item.stop = item.done + 1
                    self.say(Shortened(item.run, item.stop))
        if back:
            self.say(Returned(back, reason))
        self.skip()

    def skip(self) -> None:
        """Leave out the runs whose turn it is and that have not what they need."""
        for batch in self.batches:
            while batch and not batch[0].follows <= self.made:
                self.say(Returned([batch.pop(0).run], NO_INPUT))
        self.batches = [batch for batch in self.batches if batch]

    def wait(self, place: int) -> None:
        """A call waits for others: what stands behind it is given back."""
        if self.running:
            batch = self.running[place % len(self.running)]
            runs = {item.run for one in self.batches for item in one}
            behind = [one for one in self.batches if not any(one is other for other in self.begun)]
            self.waiting[batch[0].run] = False
            self.say(Waits(1, batch[0].run))
            self.give_back(runs, [*behind, batch])

    def resume(self, may: Callable[[int], bool]) -> None:
        """Calls that wait ask for their slots."""
        for run, asks in self.waiting.items():
            if not asks and may(run):
                self.waiting[run] = True
                self.say(Resumes(1, run))

    def resumed(self, message: Resumed) -> None:
        if not message.refused and self.owed.pop(message.run, False):
            return  # it had asked before it knew that it was refused to wait
        for batch in self.waiting_batches:
            if batch[0].run == message.run:
                asked = self.waiting.pop(message.run)
                assert asked or message.refused, "resumed unasked"
                self.owed[message.run] = asked and bool(message.refused)
                for item in batch:
                    item.allocation = message.allocation
                if not message.refused:
                    self.check_room(message.allocation)

    def check_room(self, allocation: int) -> None:
        """No more run than there are slots for."""
        its = [
            batch
            for batch in self.batches
            if batch[0].run not in self.waiting and batch[0].allocation == allocation
        ]
        taken = sum(takes for _, takes in self.allocations.values())
        assert len(its) <= (1 if allocation else self.slots - taken), "resumed without a slot"

    def leave(self, reason: str) -> None:
        running = self.begun
        for batch in running:
            self.begin(batch[0], batch[0].done + 1)
        self.fetch(Fetch(list(self.holds)))
        self.say(Goodbye(reason, [batch[0].run for batch in running]))
        self.said_goodbye = True
        self.batches.clear()
        self.end()

    def fetch(self, message: Fetch) -> None:
        for name in message.names:
            text = [kept_text(self.holds.pop(name))] if name in self.holds else []
            self.say(Fetched(name, len(text)), *text)

    def keep_late(self, message: Keep) -> None:
        for batch in self.batches:
            for item in batch:
                if item.run == message.run:
                    item.kept[message.index] = message.reference

    def forget(self, message: Forget) -> None:
        self.functions.difference_update(message.functions)
        self.unpulled.difference_update(message.functions)
        for name in message.functions:
            self.holds.pop(name, None)
            if self.pulls.pop(name, None):
                self.give_up(name)

    def pull(self, message: Pull) -> None:
        if message.addresses:
            assert message.name not in self.functions | self.pulls.keys(), "pulled twice"
            self.pulls[message.name] = message
            self.unpulled.discard(message.name)
        elif message.number in {one.number for one in self.pulls.values()}:
            self.end_pull(message.name, ABSENT)

    def end_pull(self, name: bytes, failure: str) -> None:
        """Another worker has sent a result, or has not."""
        number = self.pulls.pop(name).number
        self.say(Pulled(name, number, failure))
        if failure:
            self.unpulled.add(name)
            self.give_up(name)
        else:
            self.functions.add(name)
            self.holds[name] = int.from_bytes(name, "big")

    def give_up(self, name: bytes) -> None:
        needy = {item.run for batch in self.batches for item in batch if name in item.needs}
        self.give_back(needy, self.batches, NOT_PULLED)

    def begin(self, item: Item, stop: int) -> None:
        """Have the next calls of a run begin."""
        if item.once:
            calls = {(item.task, index) for index in range(item.done, stop)}
            assert not calls & self.begun_once, "begun twice, for all that it has no retries"
            self.begun_once |= calls

    def end(self) -> None:
        for batch in self.begun:  # nobody knows how far they had come
            for item in batch:
                self.begin(item, item.stop)
        self.alive = False
        self.pulls.clear()
        self.allocations.clear()
        self.batches.clear()
        self.inbox.clear()

    def work(self, place: int, act: str, many: int) -> None:
        """One runner comes one step further, or dies. A call may raise while it waits."""
        running = self.running if act in ("values", "returned") else self.begun
        if not running:
            return
        batch = running[place % len(running)]
        item = batch[0]
        if act == "keeps" and item.done in item.kept and not (item.watched or item.once):
            self.keep(batch)
        elif act in ("values", "keeps"):
            self.answer(batch, VALUES, min(item.done + many, item.stop))
        elif act in OUTCOMES:
            self.answer(batch, OUTCOMES[act], item.done + 1)
        elif act == "returned":
            self.batches.remove(batch)
            self.say(Returned([one.run for one in batch]))
        else:
            culprit = min(item.done + many - 1, item.stop - 1)
            self.begin(item, culprit + 1)
            self.batches.remove(batch)
            self.say(Crashed(item.run, culprit, -signal.SIGSEGV, CRASHES[act], 1), b"out", b"err")
            self.say(Returned([one.run for one in batch[1:]]))

    def keep(self, batch: list[Item]) -> None:
        """End a call whose result stays here."""
        item = batch[0]
        reference, stop = item.kept[item.done], item.done + 1
        self.begin(item, stop)
        self.holds[input_name(reference)] = reference
        self.functions.add(input_name(reference))
        if self.has_network:
            self.say(Serves([self.id.decode()], "key"))
        self.say(
            Results([Result(item.run, item.done, stop, VALUES, 0.001, 0, held=(reference, 9))])
        )
        self.advance(batch, stop, passes_on=True)

    def answer(self, batch: list[Item], status: int, stop: int) -> None:
        item = batch[0]
        self.begin(item, stop)
        if item.watched:
            self.say(Started(item.run, 1))
        buffers = (
            item.text(stop),
            *((b"out", b"err") if item.watched else ()),
        )
        self.say(
            Results(
                [
                    Result(
                        item.run,
                        item.done,
                        stop,
                        status,
                        0.001 * (stop - item.done),
                        len(buffers),
                        item.watched,
                    )
                ]
            ),
            *buffers,
        )
        self.advance(batch, stop, passes_on=status == VALUES)

    def advance(self, batch: list[Item], stop: int, *, passes_on: bool) -> None:
        item = batch[0]
        item.done = stop
        if item.done == item.stop:
            batch.pop(0)
            if passes_on:
                self.made.add(item.run)
        self.skip()


def ignore(peer: Peer, message: Message) -> None:
    """Nothing to be done."""


READ: dict[type, Callable[[Peer, object], None]] = {
    Welcome: ignore,
    Beat: ignore,
    Grant: lambda peer, grant: peer.granted(grant),
    Release: Peer.released,
    Refuse: lambda peer, message: peer.end(),
    Define: lambda peer, message: peer.functions.add(message.function),
    Forget: Peer.forget,
    Fetch: Peer.fetch,
    Pull: Peer.pull,
    Keep: Peer.keep_late,
    Reload: ignore,
    LeaveBy: ignore,
    Assign: Peer.assigned,
    Cancel: Peer.cancelled,
    Recall: Peer.recalled,
    Resumed: Peer.resumed,
    Stop: lambda peer, message: peer.leave("asked to"),
}
