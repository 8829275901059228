"""A client of a dispatcher that is killed at any moment and started again, with its journal: each
of its calls ends, once, those that need results of others too, and none begins twice that may run
only once.
"""

from __future__ import annotations

import itertools
import pickle
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridengine.calls import remote
from gridengine.calls.remote import RemoteDispatcher
from gridengine.calls.requesting import Question
from gridengine.dispatcher.core.events import Continue, Event, Lost, Rebalance, Received, Send, Tick
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.serving import journaled_client
from gridengine.dispatcher.serving.client_listener import ClientListener
from gridengine.dispatcher.serving.clients import Clients
from gridengine.dispatcher.serving.journaled_workers import RecordedLink
from gridengine.dispatcher.serving.shared_journal import Journal
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import WorkerLost
from gridengine.journal.dispatcher_file import ADDED, SCHEMA
from gridengine.requests import CallsFinished, ResultData, WantAnswered
from gridengine.serialize.payload import Payload
from gridengine.settings.schema import Settings
from gridengine.wire.connection_file import ClientConnection
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    NUMBER_BITS,
    VALUES,
    Beat,
    ClientHello,
    Hello,
    Message,
    Rejoin,
    Results,
)
from tests.support.core_play import SQUARE
from tests.support.hypothesis_profiles import examples
from tests.support.manual_clock import ManualClock
from tests.support.played_journal import Connection, File
from tests.support.returning_workers import Link, Worker
from tests.support.tasks import make_task

ROUNDS, STEPS = 400, 300
PEER = b"c" * 16
VALUE = b"\x80\x05K\x07."


class Dispatcher(RemoteDispatcher):
    """A client's, whose thread is the test."""

    _connection: Connection  # type: ignore[assignment]

    def __init__(self, world: World) -> None:
        self._world = world
        # How long a play takes is no silence of the dispatcher's.
        super().__init__(SimpleNamespace(), clock=ManualClock())  # type: ignore[arg-type]

    def _begin(self, hello: Message, name: str) -> None:
        self._poller = SimpleNamespace(poll=lambda timeout: [])  # type: ignore[assignment]
        self._world.connection = self._connection
        self._connection.introduced_to = self._world.epoch
        self._questions[0] = Question()
        self._send(hello)
        self.step()
        self._world.to_dispatcher(1)
        self.step()
        assert not self._questions

    def step(self) -> None:
        for message, buffers in self._receive():
            self._handlers[type(message)](message, buffers)

    def tell(self) -> None:
        if not self._resuming:
            self._tell_ended()


@dataclass(eq=False)
class Call:
    """A call of the user's, as a future is one."""

    retries: int
    needs: tuple[Call, ...] = ()
    place: tuple[int, int] = (0, 0)
    waits: bool = True
    unwanted: bool = False
    recalled: bool = False
    outcome: ResultData | None = None
    reference: int = 0
    released: bool = False
    acts: list[Callable[[], object]] = field(default_factory=list)


class World:
    """A client, and a dispatcher, process after process, with its journal and its workers."""

    def __init__(self, *, lasts: bool) -> None:
        self.tables = sqlite3.connect(":memory:", isolation_level=None)
        self.tables.executescript(f"{SCHEMA}{ADDED};")
        self.workers: dict[bytes, Worker] = {}
        self.heard: dict[bytes, float] = {}
        self.silent = set[bytes]()
        self.begun: Counter[tuple[int, int]] = Counter()
        self.lasts = lasts
        self.now, self.epoch = 100.0, 0
        self.calls: list[Call] = []
        self.batches: dict[int, list[Call]] = {}
        self.new_reference = itertools.count(1 << 50).__next__
        self.connection: Connection
        self.fd, self.watchers = 0, set[bytes]()
        self.start()
        self.client = Dispatcher(self)

    # ---------------------------------------------------------------- the dispatcher

    def restarted(self) -> None: ...

    def start(self) -> None:
        """Be the next process, which has what is committed of the journal."""
        self.file = File(self.tables)
        self.epoch = self.file.epoch
        self.known_session = -1
        self.coming: deque[tuple[bytes, Message, Payload]] = deque()
        policy = Policy(
            max_workers=4, epoch=self.epoch, version="1", python="3.11", run_id="run", pooled=True
        )
        self.core = StateMachine(policy, checked=True)
        self.link = Link(self.workers)
        self.link.lasts = lambda peer: self.lasts  # type: ignore[method-assign]
        self.recorded = RecordedLink(
            self.link,  # type: ignore[arg-type]
            self.file,
            self.core.state.runs,
            lambda: None,
        )
        self.unsettled = UnsettledTasks()
        self.clients = Clients(
            self.core.state,
            lambda *one: None,
            self.play,
            self.unsettled,
            lambda demand: None,
            slots=4,
        )
        self.clients.record_in(Journal(self.file))
        self.heard = dict.fromkeys(self.workers, self.now)
        self.listener = ClientListener(self, self.clients, {}, Settings())  # type: ignore[arg-type]
        for event in self.listener.restore():
            self.play(event)

    def play(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now):
            if isinstance(effect, Send):
                self.recorded.send(effect.worker, effect.message, effect.buffers)
            elif isinstance(effect, Lost):
                self.recorded.forget(effect.worker)
            elif isinstance(effect, CallsFinished):
                self.unsettled.settle(effect)
            elif isinstance(effect, WantAnswered):
                self.clients.answer_want(effect)
        self.clients.flush()
        if self.core.state.deferred:
            self.play(Continue())

    # as its socket for clients

    @property
    def pending(self) -> bool:
        return bool(self.coming)

    def receive(self, most: int) -> Iterator[tuple[bytes, Message, Payload]]:
        while self.coming:
            yield self.coming.popleft()

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        if self.known_session == self.connection.session:
            self.connection.down.append(decode(encode(message, buffers)))

    def beat(self, peer: bytes) -> None: ...

    def forget(self, peer: bytes) -> None:
        raise AssertionError("the client is sent away")

    def to_dispatcher(self, choice: int) -> None:
        """Have it get some messages of the client, or its sign of life."""
        up = self.connection.up
        for _ in range(choice % 3 + 1):
            session, message, buffers = (
                up.popleft() if up else (self.connection.session, Beat(), [])
            )
            if isinstance(message, ClientHello):
                if session == self.known_session:
                    continue  # it has come before
                assert self.known_session < 0
                self.known_session = session
            if session != self.known_session:
                self.connection.down.append((Rejoin(self.epoch), []))
            else:
                self.coming.append((PEER, message, buffers))
        for event in self.listener.events(self.now, 100):
            self.play(event)

    def commit(self, choice: int) -> None:
        self.recorded.flush()
        self.file.writer.commit(choice % 30)

    def write_what_was_for_later(self, choice: int) -> None:
        self.file.have_later(choice % 5)

    def kill(self, choice: int) -> None:
        self.connection.up.clear()
        arrive = 0 if self.client._resuming else choice % 7
        while len(self.connection.down) > arrive:  # what is on its way may still arrive
            self.connection.down.pop()
        for worker in self.workers.values():
            worker.out.clear()
            while len(worker.inbox) > choice % 4:
                worker.inbox.pop()
            worker.alive = worker.alive and self.lasts
        self.start()

    def fill_disk(self, choice: int) -> None:
        """Have the disk take nothing, or something again."""
        self.file.writer.failure = OSError("disk full") if choice % 3 else None
        for event in self.listener.look(self.now):
            self.play(event)

    def wait(self, choice: int) -> None:
        self.pass_time(choice % 40)

    def pass_time(self, seconds: float) -> None:
        """Have so much time pass; who is not heard of for as long as a lease may be taken for lost
        though it lives.
        """
        self.now += seconds
        lease = self.core.state.policy.lease_seconds
        self.silent |= {id for id, at in self.heard.items() if self.now - at >= lease}
        self.play(Tick())

    def rebalance(self, choice: int) -> None:
        self.play(Rebalance())

    # ---------------------------------------------------------------- its workers

    def living(self) -> list[Worker]:
        return [one for one in self.workers.values() if one.alive]

    def connect(self, choice: int) -> None:
        if len(self.living()) < 2:
            id = f"w{len(self.workers)}".encode()
            self.workers[id] = Worker(id, self.begun)

    def from_worker(self, choice: int) -> None:
        if living := self.living():
            self.deliver(living[choice % len(living)])

    def deliver(self, worker: Worker) -> None:
        """Have the dispatcher get the next message of a worker, or its sign of life."""
        number, message, buffers = worker.out.popleft() if worker.out else (0, Beat(), ())
        known = self.link.known.get(worker.id) == worker.session
        if not known and type(message) is not Hello:
            while worker.inbox and worker.alive:  # it came before it is asked who it is
                worker.handle()
            worker.rejoin(self.epoch)
            return
        self.link.known[worker.id] = worker.session
        self.heard[worker.id] = self.now
        if number:
            self.link.receipts[worker.id] = number
        if not (isinstance(message, Results) and message.results[0].status == VALUES):
            buffers = [VALUE] * len(buffers)
        self.link.incoming.append((worker.id, message, buffers))
        for peer, said, payload in self.recorded.receive((), self.now, 10):
            self.play(Received(peer, said, tuple(payload)))  # type: ignore[arg-type]

    def to_worker(self, choice: int) -> None:
        if waiting := [one for one in self.living() if one.inbox]:
            waiting[choice % len(waiting)].handle()

    def work(self, choice: int) -> None:
        if living := self.living():
            living[choice % len(living)].step(choice // 2)

    def lose(self, choice: int) -> None:
        if living := self.living():
            living[choice % len(living)].alive = False

    # ---------------------------------------------------------------- the client

    daemon = True

    def to_client(self, choice: int) -> None:
        self.connection.most = choice % 5 + 1
        self.client.step()

    def tell(self, choice: int) -> None:
        self.client.tell()

    def submit(self, choice: int) -> None:
        """Hand in a group of calls, or one that needs results of others."""
        retries = 2 * (choice % 3 > 0)
        calls = [one for one in self.calls if not one.released]
        if choice % 2 and calls:
            others = [calls[-1 - choice % min(len(calls), k)] for k in (3, 7)]
            self._hand_in([Call(retries, needs=tuple(others))])
        else:
            self._hand_in([Call(retries) for _ in range(choice % 5 + 1)])

    def _hand_in(self, calls: list[Call], *, again: bool = False) -> None:
        if not again:
            self.calls += calls
        for need in {id(one): one for one in calls[0].needs}.values():
            self._refer_to(need)
        number = self.client.new_id()
        kept = [(place, one.reference) for place, one in enumerate(calls) if one.reference]
        for place, one in enumerate(calls):
            one.waits, one.place = False, (number, place)
        self.batches[number] = calls
        after = tuple(dict.fromkeys(one.reference for one in calls[0].needs))
        task = make_task(
            number,
            (b"calls",),
            len(calls),
            retries=calls[0].retries,
            submitter=(self.client._number << NUMBER_BITS) + 1,
            after=after,
            kept=tuple(kept),
        )
        self.client.submit(SQUARE, [task], self)  # type: ignore[arg-type]

    def _refer_to(self, call: Call) -> None:
        if call.reference:
            return
        call.reference = self.new_reference()
        if call.outcome is not None:
            self._supply(call)
        elif not call.waits:
            task, index = call.place
            self.client.want(task, index, call.reference, lambda: self._missing(call))

    def _missing(self, call: Call) -> None:
        if call.outcome is not None:
            self._supply(call)
        else:
            call.acts.append(lambda: self._supply(call))

    def _supply(self, call: Call) -> None:
        assert call.outcome is not None
        self.client.supply(call.reference, call.outcome)

    def release(self, choice: int) -> None:
        """Have no more calls that need the result of one."""
        again = {id(one) for call in self.calls if call.recalled for one in (call, *call.needs)}
        referred = [one for one in self.calls if one.reference and id(one) not in again]
        if referred and not (call := referred[choice % len(referred)]).released:
            call.released = True
            self.client.release_references([call.reference])

    def settled(self, event: CallsFinished) -> None:
        """Take what came of calls, as their listener."""
        if event.payload is not None and not event.raised:
            values = [(event.task, index) for index in range(event.start, event.stop)]
            assert pickle.loads(event.payload[0]) == values
        if isinstance(event.error, WorkerLost):
            for worker in (one for one in self.living() if one.id not in self.silent):
                assert (event.task, event.start) not in worker.answered, "a result is lost"
        for call in self.batches[event.task][event.start : event.stop]:
            assert not call.waits, f"it ends twice: {event}"
            assert call.outcome is None, f"it ends twice: {event}"
            if event.recalled and not event.path and not call.unwanted:
                call.waits = True
                continue
            if event.payload is not None:
                self._end(call, ResultData(event.payload, raised=event.raised))
            elif event.recalled:
                self._end(call, ResultData(cancelled=True, path=("it",)), supplies=True)
            else:
                self._end(call, ResultData(error=event.error, path=("it",)))

    def _end(self, call: Call, outcome: ResultData, *, supplies: bool = False) -> None:
        call.outcome = outcome
        if supplies and call.reference:
            self._supply(call)
        for act in call.acts:
            act()

    def hand_in_again(self, choice: int) -> None:
        """Hand in some of what was taken back."""
        waiting = [one for one in self.calls if one.waits]
        if waiting:
            first = waiting[choice % len(waiting)]
            alike = [one for one in waiting if one.retries == first.retries and not one.needs]
            self._hand_in([first] if first.needs else alike[: choice % 3 + 1], again=True)

    def recall(self, choice: int) -> None:
        """Take back a task, to be handed in again, or one call, for good."""
        if not self.calls:
            return
        call = self.calls[choice % len(self.calls)]
        if call.outcome is not None or call.waits:
            return
        task, index = call.place
        if choice % 2:
            batch = self.batches[task]
            if any(one.released for call in batch for one in (call, *call.needs)):
                return
            for call in batch:
                call.recalled = True
            self.client.recall([(task, 0, len(self.batches[task]))])
        else:
            call.unwanted = True
            self.client.recall([(task, index, index + 1)])

    def cancel(self, choice: int) -> None:
        """Kill a call, or a task."""
        if not self.calls:
            return
        call = self.calls[choice % len(self.calls)]
        if call.outcome is None and not call.waits:
            task, index = call.place
            if choice % 2:
                self.client.cancel([task], 9)
            else:
                self.client.cancel((), 9, [(task, index, index + 1)])

    # ---------------------------------------------------------------- the end

    def finish(self) -> None:
        """Have all go on until nothing is left to do."""
        for _ in range(ROUNDS):
            left = [one for one in self.calls if one.outcome is None]
            if not left and not self.core.state.open_tasks and not self.rows():
                return
            if not self.living():
                self.connect(0)
            for worker in self.living():
                while worker.inbox and worker.alive:
                    worker.handle()
                worker.step(0)
                self.deliver(worker)
            self.to_dispatcher(2)
            self.to_client(3)
            self.tell(0)
            self.hand_in_again(0)
            self.write_what_was_for_later(4)
            self.commit(29)
            self.pass_time(1)
            self.play(Rebalance())
        raise AssertionError(f"it does not end: {left}, {self.core.state.open_tasks}")

    def most_begun(self) -> int:
        """How often a call has begun that may run only once, at the most."""
        counts = Counter[int]()
        for (task, index), count in self.begun.items():
            counts[id(self.batches[task][index])] += count
        return max(counts.values(), default=0)

    def rows(self) -> int:
        """How many outcomes, and requests of tasks and about them, the journal has."""
        found = self.tables.execute(
            "SELECT (SELECT count(*) FROM outcomes), "
            "(SELECT count(*) FROM requests WHERE kind != 1)"
        ).fetchone()
        return sum(found)


ACTIONS: Sequence[Callable[[World, int], None]] = (
    *[World.submit] * 2,
    World.connect,
    *[World.to_dispatcher] * 4,
    *[World.to_client] * 4,
    World.tell,
    *[World.from_worker] * 4,
    *[World.to_worker] * 4,
    *[World.work] * 4,
    *[World.commit] * 3,
    World.write_what_was_for_later,
    World.kill,
    World.lose,
    World.wait,
    World.rebalance,
    World.recall,
    World.cancel,
    World.release,
    World.hand_in_again,
)


def play(
    world: Callable[[], World],
    actions: Sequence[Callable[[World, int], None]],
    random: Random,
    steps: int,
) -> World:
    """Have so many things happen, and then all end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journaled_client, "LARGE", random.choice([0, journaled_client.LARGE]))
        patch.setattr(remote, "DispatcherConnection", lambda connection, **_: Connection())
        patch.setattr(
            remote,
            "load_private",
            lambda path, kind: ClientConnection("night", (), "1", "host", 1, 5.0, "", "", ""),
        )
        patch.setattr(remote, "atexit", SimpleNamespace(register=lambda act: None))
        played = world()
        played.connect(0)
        for _ in range(steps):
            random.choice(actions)(played, random.randrange(1000))
        played.file.writer.failure = None
        played.finish()
    return played


@pytest.mark.parametrize("lasts", [False, True])
@examples(80)
@given(random=st.randoms(use_true_random=True), steps=st.integers(0, STEPS))
def test_whenever_it_is_killed_each_call_of_its_client_ends_once(
    lasts: bool, random: Random, steps: int
) -> None:
    world = play(lambda: World(lasts=lasts), ACTIONS, random, steps)
    assert world.most_begun() <= 1


@examples(80)
@given(random=st.randoms(use_true_random=True), steps=st.integers(0, STEPS))
def test_though_its_disk_was_full_each_call_of_its_client_ends_once(
    random: Random, steps: int
) -> None:
    world = play(lambda: World(lasts=True), (*ACTIONS, *[World.fill_disk] * 2), random, steps)
    assert world.most_begun() <= 1
