"""Whatever workers, schedulers and users do, and in whatever order: each call is settled once, and
the books agree.
"""

from __future__ import annotations

import functools
import math
import operator
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gridengine.dispatcher.core import assigner, objects
from gridengine.dispatcher.core.events import (
    ClientJoined,
    ClientLeft,
    Closing,
    Continue,
    Drained,
    DrainHosts,
    Draining,
    Event,
    Grant,
    Launch,
    Launched,
    LaunchFailed,
    Lost,
    Polled,
    Rebalance,
    Received,
    ResultAsked,
    ResultFetched,
    ResultStays,
    Scaled,
    Send,
    Tick,
    Withdraw,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.workers_and_queues import TaskQueue, Worker
from gridengine.errors import ClusterError, GridEngineError, OutOfMemory, TimeoutError
from gridengine.requests import (
    CallsFinished,
    CallsRecalled,
    Function,
    NamesForgotten,
    ResultData,
    ResultWanted,
    Submitted,
    Supplied,
    Task,
    TasksCancelled,
    WantAnswered,
)
from gridengine.resources import ZERO, Cores, Memory, Resource, Token, WTime
from gridengine.resources.demand import ANY, Demand, encode_demand
from gridengine.schedulers.launcher import Handle, Report, WorkerStatus
from gridengine.serialize.payload import PayloadAtWorker
from gridengine.serialize.shared_objects import PayloadWithObjects, SharedObject, all_needed
from gridengine.wire.messages import (
    ABSENT,
    CANCELLED,
    CRASH,
    MEMORY,
    NO_INPUT,
    NOT_PULLED,
    NUMBER_BITS,
    OUT_OF_MEMORY,
    RAISED,
    RETRYABLE,
    TIMEOUT,
    UNREACHED,
    VALUES,
    VERSION,
    Assign,
    Assignment,
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
    portions,
)
from tests.support.hypothesis_profiles import examples
from tests.support.tasks import make_task

PATIENCE = 600
"""Rounds in which nothing settles: longer than a lease and the longest wait between two
requests.
"""
DEMANDS = [
    ANY,
    ANY,
    *map(
        Demand,
        (
            Cores(1),
            Cores(2),
            Cores(3) & Memory(1),
            Memory(2),
            Cores(1) & Token("t"),
            Token("none"),
            WTime(10),
            WTime(150, group="g"),
        ),
    ),
]
FEW_RETRIES = {"retries": st.integers(0, 1), "demand": st.sampled_from(DEMANDS)}
OPTIONS = {
    "retries": st.integers(0, 2),
    "demand": st.sampled_from(DEMANDS),
    "priority": st.sampled_from([0, 0, 0, 1, -1]),
}
WHO = st.tuples(st.sampled_from([0, 0, 1, 2]), st.integers(0, 2))
"""A client, and one of its submitters."""
FIRST_REFERENCE = 1 << 40
Calls = tuple[int, int, int]
"""A task, the first of some of its calls, and the one after the last."""
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
    """The results that it gets from other workers, and those that it did not get."""

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
        for name in self.unpulled - self.functions:
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


class Play(RuleBasedStateMachine):
    """Users, a scheduler and workers, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.little = [
            mock.patch.object(objects, "IDLE_FUNCTIONS", 1),
            mock.patch.object(objects, "IDLE_RESULTS", 1),
            mock.patch.object(assigner, "MOST_ASSIGNED", 3),
            mock.patch.object(objects, "SMALL_INPUT", len(b"1 0 1")),
        ]
        for one in self.little:
            one.start()

    @initialize(
        slots=st.integers(1, 3),
        how=st.sampled_from(["alike", "shared", "shared", "own"]),
        policy=st.fixed_dictionaries(
            {
                "max_workers": st.integers(1, 4),
                "jobs_per_worker": st.sampled_from([None, None, 1, 3]),
                "gather_seconds": st.sampled_from([0.0, 0.1]),
                "walltime": st.sampled_from([None, None, 20.0, 200.0]),
                "max_nesting": st.sampled_from([1, 2, 100, 100]),
            }
        ),
        closes=st.booleans(),
        lags=st.booleans(),
        crowded=st.booleans(),
        quick=st.booleans(),
        holding=st.booleans(),
        near=st.booleans(),
    )
    def begin(self, slots: int, how: str, policy: dict[str, Any], **flags: bool) -> None:
        if flags["quick"]:
            self.little.append(mock.patch.object(TaskQueue, "_sensible_calls", return_value=4))
            self.little[-1].start()
        if flags["near"]:
            self.little.append(mock.patch.object(assigner, "TRANSFER_RATE", 1.0))
            self.little[-1].start()
        slots = 1 if how == "own" else slots
        self.policy = Policy(
            **policy,
            pooled=how == "own",
            resources=HELD(slots) if how == "shared" else None,
            margin_seconds=60.0,
            overtake_seconds=5.0,
            slots=slots,
            version="1",
            python="3.11",
            run_id="run",
        )
        self.core = StateMachine(self.policy, checked=True)
        self.now = 100.0
        self.closes = flags["closes"]
        self.left: dict[int, set[int]] = {}
        self.peers: list[Peer] = []
        self.known: set[bytes] = set()
        self.stopped: set[bytes] = set()
        self.launches: deque[Launch] = deque()
        self.needs: dict[int, set[bytes]] = {}
        self.begun_once: set[tuple[int, int]] = set()
        self.released: set[bytes] = set()
        self.recalled: dict[int, set[int]] = {}
        self.counts: dict[int, int] = {}
        self.last_reference = FIRST_REFERENCE
        self.held: set[int] = set()
        self.clients: set[int] = set()
        self.told: set[int] = set()
        self.ever_kept: set[int] = set()
        self.asking: set[int] = set()
        self.after: dict[int, tuple[int, ...]] = {}
        self.kept: dict[int, dict[int, int]] = {}
        self.unmade: set[int] = set()
        self.made: dict[int, ResultData] = {}
        self.children: dict[int, set[int]] = {}
        self.done = self.failed = 0
        self.last_task = self.last_handle = self.generation = 0
        self.honest = self.drained = False
        self.lags = flags["lags"]
        if flags["crowded"]:
            self.crowd()
        if flags["holding"]:
            self.hold()

    def crowd(self) -> None:
        """Have workers that are at calls."""
        demands = DEMANDS[1:4] if self.has_demands else [ANY, ANY]
        for demand in demands:
            self.submit([1, 3], 0, set(), False, None, (0, 0), {"demand": demand, "retries": 1})
        self.pass_time(1.0, True)
        while self.launches:
            self.answer_launch(5, "takes", True)
        for peer in self.peers:
            if not peer.called:
                peer.hello()
                self.deliver_from(peer)
            peer.read()

    def hold(self) -> None:
        """Have workers with results, which other workers get."""
        options = {"demand": ANY, "retries": 1, "watched": False}
        self.submit_graph([(0, 0)] * 4, False, options, False, True, True)
        self.make(0, "value")
        self.crowd()
        for _ in range(6):
            self.all_go_on("keeps")
        if self.told:
            self.spread([0, 0, 1, 2, 3], False, False)

    # ------------------------------------------------------------ the shell: performs effects and
    # checks each

    def play(self, event: Event) -> None:
        if isinstance(event, Received) and isinstance(event.message, Hello):
            self.known.add(event.worker)
        self.perform(event)
        if not self.lags:
            self.go_on()

    @rule()
    def go_on(self) -> None:
        while self.core.state.deferred:
            self.perform(Continue())

    def perform(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now):
            if isinstance(effect, CallsFinished):
                self.settle(effect)
            elif isinstance(effect, WantAnswered) and effect.missing:
                self.unmade.add(effect.reference)
            elif isinstance(effect, ResultStays):
                self.told.add(effect.payload.reference)
            elif isinstance(effect, ResultFetched):
                self.asking.discard(effect.reference)
                data = effect.data
                made = None if data.payload is None else list(data.payload)
                assert data.raised or made in (None, [kept_text(effect.reference)])
            elif isinstance(effect, Send):
                self.send(effect)
            elif isinstance(effect, Lost):
                self.known.discard(effect.worker)
                self.stopped.discard(effect.worker)
                for peer in self.peers:
                    if peer.id == effect.worker:
                        peer.forgotten = True
            elif isinstance(effect, Grant):
                assert effect.worker in self.known
                assert effect.worker not in self.stopped
                for peer in self.peers:
                    if peer.id == effect.worker and peer.alive:
                        peer.inbox.append(effect)
            elif isinstance(effect, Drained):
                self.drained = True
            elif isinstance(effect, Launch):
                assert effect.count > 0
                assert all(one.demand != effect.demand for one in self.launches), (
                    "asked before the last answer"
                )
                self.launches.append(effect)
            elif isinstance(effect, Withdraw):
                for peer in self.peers:
                    if peer.handle in effect.handles:
                        peer.end()

    def settle(self, effect: CallsFinished) -> None:
        calls = set(range(effect.start, effect.stop))
        assert calls
        assert calls <= self.left[effect.task], "settled twice, or never submitted"
        self.left[effect.task] -= calls
        assert effect.last == (not self.left[effect.task])
        assert (effect.payload is None) == (effect.error is not None)
        assert (
            not effect.recalled or effect.path or calls <= self.recalled.get(effect.task, set())
        ), "taken back, and nobody asked for it"
        self.done += len(calls) * (effect.error is None and not effect.raised)
        self.failed += len(calls) * (
            effect.raised or (effect.error is not None and not effect.recalled)
        )
        if effect.path:
            self.check_failed_for_another(effect)
        elif type(effect.payload) is PayloadAtWorker:
            reference = effect.payload.reference
            assert self.kept[effect.task][effect.start] == reference
            assert reference in self.told
            self.ever_kept.add(reference)
            effect = msgspec.structs.replace(effect, payload=[kept_text(reference)])
        elif effect.payload is not None:
            assert [bytes(buffer) for buffer in effect.payload] == [
                f"{effect.task} {effect.start} {effect.stop}".encode()
            ]
        for index in calls:
            item = 0 if effect.raised else index - effect.start
            data = ResultData(effect.payload, item, effect.raised, effect.error)
            kept = self.kept.get(effect.task, {}).pop(index, None)
            if kept is not None and effect.recalled and not effect.path:
                self.unmade.add(kept)
            elif kept is not None:
                self.made.setdefault(kept, data)

    def check_failed_for_another(self, effect: CallsFinished) -> None:
        if any(one in self.ever_kept for one in self.after[effect.task]):
            return  # it may have failed when it was made again
        failed = [
            made
            for one in self.after[effect.task]
            if (made := self.made.get(one)) is not None and (made.payload is None or made.raised)
        ]
        assert any(one.payload == effect.payload for one in failed), "failed for no reason"
        assert effect.raised or effect.error is not None

    def check_inputs(self, to: Worker, message: Assign, buffers: Sequence[bytes]) -> None:
        """A call gets what it needs, and all of it."""
        for one, payload in portions(message.assignments, buffers):
            own = len(payload) - sum(given.buffers for given in one.inputs)
            assert list(payload[:own]) == [b"calls"]
            given_now = {given.reference for given in one.inputs}
            inputs = self.core.state.open_tasks[one.task].inputs
            assert given_now == {needed.reference for needed in inputs}, "begun without its inputs"
            for given in [given for given in one.inputs if given.run]:
                [source] = [other for other in message.assignments if other.run == given.run]
                assert given.run < one.run
                assert list(source.kept) == [(0, given.reference)]
            for given in [given for given in one.inputs if not given.run]:
                made, begin, own = self.made[given.reference], own, own + given.buffers
                remote = self.core.state.objects.get(input_name(given.reference))
                if remote is not None and remote.away:
                    assert to.id in {*remote.workers, *remote.pulls}, "its input is not there"
                    continue
                sent = payload[begin:own] if given.buffers else remote.function.payload
                assert (list(sent), given.item) == (list(made.payload), made.item)

    def send(self, effect: Send) -> None:
        assert effect.worker in self.known, "sent to a worker that is gone"
        assert effect.worker not in self.stopped or not isinstance(
            effect.message, (Assign, Define)
        ), "work for a worker that leaves"
        if isinstance(effect.message, Stop):
            self.stopped.add(effect.worker)
        if isinstance(effect.message, Assign):
            worker = self.core.state.workers[effect.worker]
            assert worker.generation == self.core.state.generation, "its modules are outdated"
            for one in effect.message.assignments:
                self.check_assignment(one)
            self.check_inputs(worker, effect.message, effect.buffers)
        for peer in self.peers:
            if peer.id == effect.worker and peer.alive:
                peer.inbox.append(effect.message)

    def check_assignment(self, one: Assignment) -> None:
        calls = set(range(one.start, one.stop))
        assert calls
        assert one.task < 0 or calls <= self.left[one.task], "handed out what is settled"
        for unwanted in self.core.state.open_tasks[one.task].details.unwanted:
            back = calls & set(range(unwanted.start, unwanted.stop))
            assert not back or (one.attempt > 1 and not unwanted.signal), "not wanted any more"
        assert one.attempt <= self.core.state.open_tasks[one.task].options.retries + 1

    # ------------------------------------------------------------ users

    def new_task(self, count: int = 1, **options: Any) -> Task:
        """Return the next task, of so many calls."""
        self.last_task += 1
        self.left[self.last_task] = set(range(count))
        self.counts[self.last_task] = count
        self.needs[self.last_task] = set()
        if not self.has_demands:
            options["demand"] = ANY
        return make_task(self.last_task, (b"calls",), count, **options)

    def number_of(self, who: tuple[int, int]) -> int:
        """Return the number of a submitter of a client, or of nobody's when the client is gone."""
        return (who[0] if who[0] in self.clients else 0) << NUMBER_BITS | who[1]

    @rule(
        sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
        function=st.integers(0, 2),
        needs=st.sets(st.integers(0, 2), max_size=2),
        changed=st.booleans(),
        kept=st.sampled_from([None, None, 0, 1]),
        who=WHO,
        options=st.fixed_dictionaries({**OPTIONS, "watched": st.booleans()}),
    )
    def submit(
        self,
        sizes: list[int],
        function: int,
        needs: set[int],
        changed: bool,
        kept: int | None,
        who: tuple[int, int],
        options: dict[str, Any],
    ) -> None:
        self.generation += changed
        needed = tuple(SHARED[number] for number in sorted(needs))
        of_function = NEEDS_OF_FUNCTION.get(function, ())
        names = {one.name for one in all_needed(needed, of_function)}
        tasks = []
        for size in sizes:
            who_asks = {"submitter": self.number_of(who), "escalate_memory": 2.0}
            task = self.new_task(size, needs=needed, **who_asks, **options)
            self.needs[task.id] = names
            if kept is not None and kept < size:
                own = self.keep(task.id, kept, self.new_reference())
                task = msgspec.structs.replace(task, kept=own)
            tasks.append(task)
        self.play(
            Submitted(
                Function(bytes([function]), (b"function",), (), b"/", f"f{function}", of_function),
                tasks,
                self.generation,
                detached=who[1] == 2,
            )
        )
        for name in sorted(names & self.released):
            self.play(NamesForgotten(shared=[name]))

    @rule(number=st.integers(1, 2), weight=st.sampled_from([0.5, 1.0, 2.0, 10.0]))
    def join(self, number: int, weight: float) -> None:
        self.clients.add(number)
        self.play(ClientJoined(number, weight))

    @precondition(lambda self: self.clients)
    @rule(place=st.integers(0, 9))
    def go_away(self, place: int) -> None:
        """A client leaves: what it has submitted ends."""
        number = sorted(self.clients)[place % len(self.clients)]
        self.clients.remove(number)
        self.play(ClientLeft(number))
        for one in self.core.state.open_tasks.values():
            client = one.submitter.client
            if client.number == number and not one.details.remade:
                assert one.details.parent or one.runs, "nobody wants it"

    @rule(minimum=st.integers(0, 2), more=st.integers(0, 3), first=st.booleans())
    def scale(self, minimum: int, more: int, first: bool) -> None:
        self.play(Scaled() if first else Scaled(minimum, minimum + more))

    @property
    def has_demands(self) -> bool:
        return self.policy.resources is not None or self.policy.pooled

    def new_reference(self) -> int:
        self.last_reference += 1
        self.held.add(self.last_reference)
        return self.last_reference

    def keep(self, task: int, index: int, reference: int) -> tuple[tuple[int, int], ...]:
        self.kept.setdefault(task, {})[index] = reference
        self.unmade.discard(reference)
        return ((index, reference),)

    @rule(
        places=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
        backwards=st.booleans(),
        options=st.fixed_dictionaries({**FEW_RETRIES, "watched": st.booleans()}),
        drop=st.booleans(),
        ahead=st.booleans(),
        chain=st.booleans(),
    )
    def submit_graph(
        self,
        places: list[tuple[int, int]],
        backwards: bool,
        options: dict[str, Any],
        drop: bool,
        ahead: bool,
        chain: bool,
    ) -> None:
        """Calls that need the results of two others each, or of one; perhaps of one that nobody
        makes yet.
        """
        places = [(0, 0)] * len(places) if chain else places
        if ahead or not self.held:
            self.unmade.add(self.new_reference())
        tasks, inner = [], []
        for place in places:
            held = sorted(self.held)
            own, task = self.new_reference(), self.new_task(**options)
            self.after[task.id] = tuple(held[-1 - one % len(held)] for one in place)
            inner.append(own)
            kept = self.keep(task.id, 0, own)
            tasks.append(msgspec.structs.replace(task, after=self.after[task.id], kept=kept))
        function = Function(b"g", (b"function",), (), b"/", "g")
        self.play(Submitted(function, tasks[::-1] if backwards else tasks, self.generation))
        if drop:
            self.drop(inner[:-1])

    @precondition(lambda self: self.told)
    @rule(
        places=st.lists(st.integers(0, 3), min_size=2, max_size=5),
        two=st.booleans(),
        starts=st.booleans(),
    )
    def spread(self, places: list[int], two: bool, starts: bool) -> None:
        """Several calls need results that stay at workers, and other workers are idle."""
        if starts:
            self.all_go_on("values")
        told = sorted(self.told)
        tasks = []
        for place in places:
            task = self.new_task(retries=1)
            found = {told[-1 - one % len(told)] for one in ([place, place + 1] if two else [place])}
            self.after[task.id] = tuple(sorted(found))
            tasks.append(msgspec.structs.replace(task, after=self.after[task.id]))
        function = Function(b"g", (b"function",), (), b"/", "g")
        self.play(Submitted(function, tasks, self.generation))
        for peer in self.peers:
            if peer.able:
                peer.read()

    def drop(self, references: list[int]) -> None:
        self.held -= set(references)
        self.play(NamesForgotten(references=references))

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0, 9))
    def release_reference(self, place: int) -> None:
        self.drop([sorted(self.held)[-1 - place % len(self.held)]])

    @rule(
        place=st.integers(0, 9),
        runner=st.integers(0, 2),
        sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        options=st.fixed_dictionaries(FEW_RETRIES),
        waits=st.lists(st.booleans(), min_size=1, max_size=4),
    )
    def nest(
        self,
        place: int,
        runner: int,
        sizes: list[int],
        options: dict[str, Any],
        waits: list[bool],
    ) -> None:
        """Calls make calls, inside each other, and perhaps wait for them."""
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.inbox or peer.batches))
        for each in waits if peer is not None else ():
            peer.read()
            self.deliver_from(peer)
            if not peer.running:
                return
            self.make_calls(peer.running[runner % len(peer.running)][0].run, sizes, options)
            if each:
                peer.wait(runner)
                self.deliver_from(peer)

    def make_calls(self, parent: int, sizes: list[int], options: dict[str, Any]) -> None:
        tasks = [self.new_task(size, submitter=1000 + parent, **options) for size in sizes]
        self.children.setdefault(parent, set()).update(task.id for task in tasks)
        function = Function(b"n", (b"function",), (), b"/", "n")
        self.play(Submitted(function, tasks, self.generation, parent))

    @rule(place=st.integers(0, 9), runner=st.integers(0, 2))
    def wait(self, place: int, runner: int) -> None:
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.running))
        if peer is not None:
            peer.wait(runner)

    @rule(place=st.integers(0, 9), which=st.sampled_from([0, 0, 2]), deliver=st.booleans())
    def resume(self, place: int, which: int, deliver: bool) -> None:
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.waiting))
        if peer is not None:
            peer.resume(lambda run: run % 4 >= which)
            if deliver:
                self.deliver_from(peer)

    def has_children(self, run: int) -> bool:
        return any(self.left[task] for task in self.children.get(run, ()))

    @precondition(lambda self: self.told)
    @rule(place=st.integers(0, 9), how=st.sampled_from(["asks", "lets go"]))
    def turn_to_kept(self, place: int, how: str) -> None:
        """The caller asks for a result that stays at its worker, or has it no more."""
        reference = sorted(self.told)[-1 - place % len(self.told)]
        if how == "asks":
            self.asking.add(reference)
            self.play(ResultAsked(reference))
        else:
            self.let_go([reference])

    def let_go(self, references: list[int]) -> None:
        self.told -= set(references)
        self.asking -= set(references)
        self.play(NamesForgotten(references=references))

    @rule(which=st.integers(0, 5), index=st.integers(0, 3))
    def want(self, which: int, index: int) -> None:
        task = self.last_task - which
        if index < self.counts.get(task, 0) and index not in self.kept.get(task, {}):
            reference, ended = self.new_reference(), index not in self.left[task]
            if not ended:
                self.keep(task, index, reference)
            self.play(ResultWanted(task, index, reference))
            assert ended == (reference in self.unmade)

    @precondition(lambda self: self.unmade)
    @rule(
        place=st.integers(0, 9),
        how=st.sampled_from(["value", "value", "raised", "cancelled", "submit"]),
        twice=st.booleans(),
    )
    def make(self, place: int, how: str, twice: bool = False) -> None:
        """Supply what nobody makes, or hand in a call that makes it."""
        reference = sorted(self.unmade)[place % len(self.unmade)]
        self.unmade.discard(reference)
        if how == "submit":
            task = self.new_task()
            task = msgspec.structs.replace(task, kept=self.keep(task.id, 0, reference))
            self.play(Submitted(Function(b"f", (b"function",), (), b"/", "f"), [task]))
            return
        data = ResultData(None if how == "cancelled" else [b"supplied"], raised=how == "raised")
        for _ in range(1 + (twice and reference in self.held)):
            self.made.setdefault(reference, data)
            self.play(Supplied(reference, data))

    @rule(which=st.sampled_from(SHARED))
    def release(self, which: SharedObject) -> None:
        self.released.add(which.name)
        self.play(NamesForgotten(shared=[which.name]))

    @rule(which=st.integers(0, 5), number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]))
    def cancel(self, which: int, number: int) -> None:
        self.play(TasksCancelled([self.last_task - which, self.last_task - which - 1], number))

    def some_calls(self, which: int, start: int, count: int, both: bool) -> list[Calls]:
        calls = []
        for task in (self.last_task - which, self.last_task - which - 1)[: 1 + both]:
            stop = min(start + count, self.counts.get(task, 0))
            if start < stop:
                calls.append((task, start, stop))
        return calls

    def waiting(self, last_attempt: float) -> set[tuple[int, int]]:
        return {
            (span.open_task.id, call)
            for queue in self.core.state.queues.values()
            for span in queue.waiting
            if span.attempt <= last_attempt
            for call in range(span.start, span.stop)
        } | {
            (task, 0)
            for task, one in self.core.state.open_tasks.items()
            if one.missing and not one.runs and one.only_span().attempt <= last_attempt
        }

    def check_settled(self, calls: list[Calls], waiting: set[tuple[int, int]]) -> None:
        for task, first, stop in calls:
            assert not any(
                (task, call) in waiting and call in self.left[task] for call in range(first, stop)
            ), "not taken back"

    @rule(
        which=st.integers(0, 5),
        start=st.integers(0, 3),
        count=st.sampled_from([1, 2, 100]),
        both=st.booleans(),
    )
    def recall(self, which: int, start: int, count: int, both: bool) -> None:
        calls = self.some_calls(which, start, count, both)
        for task, first, stop in calls:
            self.recalled.setdefault(task, set()).update(range(first, stop))
        waiting = self.waiting(1)
        self.play(CallsRecalled(calls))
        self.check_settled(calls, waiting)

    @rule(
        which=st.integers(0, 5),
        start=st.integers(0, 3),
        count=st.sampled_from([1, 2, 100]),
        both=st.booleans(),
        number=st.sampled_from([signal.SIGTERM, signal.SIGKILL]),
    )
    def cancel_calls(self, which: int, start: int, count: int, both: bool, number: int) -> None:
        calls = self.some_calls(which, start, count, both)
        waiting = self.waiting(math.inf)
        self.play(TasksCancelled([], number, calls))
        self.check_settled(calls, waiting)

    @rule()
    def look(self) -> None:
        self.play(Rebalance())

    # ------------------------------------------------------------ the scheduler

    @precondition(lambda self: self.launches)
    @rule(
        many=st.integers(0, 5),
        how=st.sampled_from(["takes", "takes", "takes", "for now", "for good"]),
        log=st.booleans(),
    )
    def answer_launch(self, many: int, how: str, log: bool) -> None:
        launch = self.launches.popleft()
        if how != "takes":
            self.play(
                LaunchFailed(ClusterError("no"), for_now=how == "for now", demand=launch.demand)
            )
            return
        peers = [self.new_peer(log) for _ in range(min(launch.count, many))]
        if peers and many % 2:
            peers[0].hello()
            self.deliver_from(peers[0])
        self.play(Launched([peer.handle for peer in peers], launch.demand))

    def new_peer(self, log: bool) -> Peer:
        self.last_handle += 1
        handle = Handle(
            str(self.last_handle), f"/home/run/logs/{self.last_handle}.log" if log else ""
        )
        version = "0" if not self.honest and self.last_handle % 7 == 0 else "1"
        shared = self.policy.resources is not None
        says = shared and self.last_handle % 3 == 0
        peer = Peer(
            f"w{self.last_handle}".encode(),
            handle,
            self.policy.slots + says,  # it holds more than the others
            version,
            self.needs,
            self.begun_once,
            shared,
            says,
        )
        self.peers.append(peer)
        return peer

    @rule(
        queued=st.booleans(),
        blameless=st.booleans(),
        fault=st.sampled_from([None, OutOfMemory, TimeoutError]),
    )
    def poll(
        self, queued: bool, blameless: bool = False, fault: type[GridEngineError] | None = None
    ) -> None:
        reports = {}
        for peer in self.peers:
            state = WorkerStatus.QUEUED if queued and not peer.called else WorkerStatus.RUNNING
            if not peer.alive:
                state = WorkerStatus.ENDED if peer.said_goodbye else WorkerStatus.FAILED
            elif peer.suspended:
                state = WorkerStatus.SUSPENDED
            deleted = len(peer.id) % 2 == 0
            reports[peer.handle] = Report(
                state, "its own words", deleted=deleted, fault=fault, blameless=blameless
            )
        self.play(Polled(reports))

    # ------------------------------------------------------------ workers

    def one_of(self, place: int, which: Callable[[Peer], bool]) -> Peer | None:
        fit = [peer for peer in self.peers if which(peer)]
        return fit[place % len(fit)] if fit else None

    @rule(place=st.integers(0, 9))
    def call_home(self, place: int) -> None:
        peer = self.one_of(
            place, lambda peer: peer.alive and not peer.called and not peer.suspended
        )
        if peer is not None:
            peer.hello()
            self.deliver_from(peer)

    @rule(
        place=st.integers(0, 9),
        runner=st.integers(0, 2),
        act=st.sampled_from(
            [
                "values",
                "values",
                "values",
                "keeps",
                "keeps",
                "keeps",
                "raise",
                "retry",
                "fills its memory",
                "crash",
                "memory",
                "timeout",
                "returned",
            ]
        ),
        many=st.integers(1, 12),
        deliver=st.booleans(),
    )
    def work(self, place: int, runner: int, act: str, many: int, deliver: bool) -> None:
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.inbox or peer.batches))
        if peer is not None:
            peer.read()
            peer.work(runner, act, many)
            if deliver:
                self.deliver_from(peer)

    @rule(place=st.integers(0, 9))
    def read(self, place: int) -> None:
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.inbox))
        if peer is not None:
            peer.read()

    @rule(place=st.integers(0, 9), connects=st.sampled_from([True, True, False]))
    def end_pulls(self, place: int, connects: bool) -> None:
        """A worker has got what it pulls, or cannot get it."""
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.pulls))
        if peer is not None:
            self.end_pulls_of(peer, connects=connects)

    def end_pulls_of(self, peer: Peer, *, connects: bool = True) -> None:
        for name, pull in list(peer.pulls.items()):
            [address] = pull.addresses
            [source] = [one for one in self.peers if one.id == address.encode()]
            if not (connects and source.alive and not source.suspended):
                peer.end_pull(name, UNREACHED)
            else:
                peer.end_pull(name, "" if name in source.functions else ABSENT)

    @rule(place=st.integers(0, 9), many=st.integers(1, 9))
    def deliver(self, place: int, many: int) -> None:
        peer = self.one_of(place, lambda peer: bool(peer.result_buffer))
        if peer is not None:
            self.deliver_from(peer, many)

    def deliver_from(self, peer: Peer, many: int = 1000) -> None:
        for _ in range(min(many, len(peer.result_buffer))):
            message, buffers = peer.result_buffer.popleft()
            self.play(Received(peer.id, message, buffers))

    @rule(place=st.integers(0, 9), which=st.integers(0, 50))
    def repeat(self, place: int, which: int) -> None:
        """An old message comes once more. A greeting does not: the connection numbers its messages,
        and that is number one.
        """
        peer = self.one_of(place, lambda peer: len(peer.said) - len(peer.result_buffer) > 1)
        if peer is not None:
            told = peer.said[1 : len(peer.said) - len(peer.result_buffer)]
            message, buffers = told[which % len(told)]
            if not isinstance(message, Waits | Resumes):  # numbered too, and they mean something
                self.play(Received(peer.id, message, buffers))

    @rule(place=st.integers(0, 9), how=st.sampled_from(["dies", "leaves", "stops", "goes on"]))
    def turn(self, place: int, how: str) -> None:
        if how == "goes on":
            peer = self.one_of(place, lambda peer: peer.suspended)
            if peer is not None:
                peer.suspended = False
            return
        peer = self.one_of(place, lambda peer: peer.able)
        if peer is None:
            return
        if how == "dies":
            peer.end()
        elif how == "leaves":
            peer.leave("terminated")
        else:
            peer.suspended = True

    @rule(act=st.sampled_from(["keeps", "keeps", "values"]))
    def all_go_on(self, act: str) -> None:
        """Workers are started and come one step further."""
        if self.launches:
            self.answer_launch(2, "takes", log=True)
        for peer in self.peers:
            if peer.alive and not peer.called and not peer.suspended:
                peer.hello()
                self.deliver_from(peer)
            if peer.able:
                peer.read()
                self.end_pulls_of(peer)
                peer.work(0, act, 1)
                self.deliver_from(peer)

    @precondition(lambda self: any(peer.able and peer.holds for peer in self.peers))
    @rule(place=st.integers(0, 9), asks=st.booleans())
    def lose_holder(self, place: int, asks: bool) -> None:
        """A worker dies that has results, and that is seen."""
        peer = self.one_of(place, lambda peer: peer.able and bool(peer.holds))
        assert peer is not None
        gone = set(peer.holds.values())
        peer.end()
        self.poll(queued=False)
        self.pass_time(1.0, beats=True)
        for reference in sorted(gone & self.told) if asks else ():
            self.asking.add(reference)
            self.play(ResultAsked(reference))

    @rule(place=st.integers(0, 9))
    def drain_host(self, place: int) -> None:
        if (peer := self.one_of(place, lambda peer: peer.called)) is not None:
            self.play(DrainHosts({peer.host}))

    @precondition(lambda self: hasattr(self, "core") and len(self.left) > 3)
    @rule(is_drained=st.sampled_from([False] * 7 + [True]))
    def drain(self, is_drained: bool) -> None:
        """Let the calls that run end, with those that they make; no other may begin."""
        if is_drained and not self.core.state.draining:
            self.play(Draining())

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 0.3, 1.0, 6.0, 40.0, 70.0]), beats=st.booleans())
    def pass_time(self, seconds: float, beats: bool) -> None:
        self.now += seconds
        if beats:
            self.beat()
        self.play(Tick())

    def beat(self) -> None:
        for peer in self.peers:
            if peer.able and peer.id in self.known:
                self.play(Received(peer.id, Beat()))

    # ------------------------------------------------------------ what is always so

    @invariant()
    def books_agree(self) -> None:
        if hasattr(self, "core"):
            state = self.core.state
            check_calls(state, self.left)
            self.check_results(state)
            assert (state.done, state.failed + state.cancelled) == (self.done, self.failed)
            for worker in state.workers.values() if state.shared is not None else ():
                allocated = sum(group.slots for group in worker.slot_groups)
                assert allocated <= worker.hello.slots, "more is allocated than there is"

    def check_results(self, state: CoreState) -> None:
        """A result is there while a call that has not ended needs it, or one may come that does,
        and no longer.
        """
        inputs = [one for task in state.open_tasks.values() for one in task.inputs]
        open_needs = {one.reference for one in inputs}
        made, held = self.made.keys(), self.held | self.told
        heirs = {one.reference for one in state.awaited.values() if one.heirs and not one.maker}
        remade = {
            reference
            for one in state.open_tasks.values()
            if one.details.remade
            for _, reference in one.kept_within(0, one.count)
        }
        assert state.awaited.keys() - held - open_needs - heirs == set(), "kept for nobody"
        assert open_needs | (held & made) <= state.awaited.keys(), "gone too early"
        for reference, awaited in state.awaited.items():
            assert awaited.data is not None or (reference not in made) or (reference in remade)
            assert awaited.data is None or reference in made
            assert awaited.held == (reference in self.held) + (reference in self.told)
        coming = {one for kept in self.kept.values() for one in kept.values()}
        coming |= self.unmade
        assert state.released_early <= (coming | remade) - self.held, "noted for ever"

    # ------------------------------------------------------------ the end

    def teardown(self) -> None:
        for one in self.little:
            one.stop()
        if not hasattr(self, "core"):
            return
        self.honest, self.lags = True, False
        for peer in self.peers:
            peer.suspended = False
        if self.core.state.draining:
            self.play(Scaled())
            self.finish(lambda: self.drained)
        if self.closes or self.core.state.draining:
            self.closes = True
            self.play(Closing())
            assert not any(self.left.values()), "not settled at closing"
        self.play(Scaled())
        while self.unmade:
            self.make(0, "value")
        if self.closes:
            self.asking.clear()
        self.finish(lambda: not self.core.state.open_tasks and not self.asking)
        assert not any(self.left.values()), "never settled"
        self.finish(
            lambda: (
                not self.core.state.workers
                and not any(one.launched for one in self.core.state.provisioners.values())
            )
        )
        self.books_agree()
        assert not self.core.state.unmatched
        for one in SHARED:
            self.play(NamesForgotten(shared=[one.name]))
        while self.unmade:  # what was taken back only now
            self.make(0, "value")
        self.drop(sorted(self.held))
        self.let_go(sorted(self.told))
        assert not self.core.state.away
        assert not any(
            known.shared or known.result for known in self.core.state.objects.values()
        ), "an object is kept for nobody"
        assert not self.core.state.awaited
        assert not self.core.state.released_early

    def finish(self, done: Callable[[], bool]) -> None:
        """From here on nothing fails, but what is dead stays dead."""
        left, rounds = -1, 0
        while not done():
            rounds = rounds + 1 if left == sum(map(len, self.left.values())) else 0
            left = sum(map(len, self.left.values()))
            assert rounds < PATIENCE, "it hangs"
            self.now += 0.3
            while self.launches:
                launch = self.launches.popleft()
                self.play(
                    Launched(
                        [self.new_peer(True).handle for _ in range(launch.count)], launch.demand
                    )
                )
            for peer in self.peers:
                if peer.alive and not peer.called:
                    peer.hello()
                if peer.alive and peer.forgotten:
                    peer.end()
                peer.read()
                if peer.alive:
                    self.end_pulls_of(peer)
                peer.resume(lambda run: not self.has_children(run))
                while peer.alive and peer.running:
                    peer.work(0, "keeps", 100)
                self.deliver_from(peer)
            self.beat()
            self.poll(queued=False)
            self.play(Tick())
            self.books_agree()


def check_calls(state: CoreState, left: dict[int, set[int]]) -> None:
    """The calls that are open are those that were never settled."""
    for task, one in state.open_tasks.items():
        its = {index for index in range(one.count) if not one.is_settled(index)}
        assert one.details.remade or its == left[task]


TestPlay = pytest.mark.timeout(600)(Play.TestCase)
TestPlay.settings = examples(80, stateful_step_count=60)
