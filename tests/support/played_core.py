"""A core with its workers as property tests play it: each effect is performed, and checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import msgspec
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gridengine.dispatcher.core import assigner, objects
from gridengine.dispatcher.core.events import (
    Continue,
    Drained,
    Event,
    Grant,
    Launch,
    Lost,
    Received,
    ResultFetched,
    ResultStays,
    Send,
    Withdraw,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.dispatcher.core.workers_and_queues import TaskQueue, Worker
from gridengine.requests import (
    CallsFinished,
    Function,
    NamesForgotten,
    ResultData,
    Submitted,
    Task,
    WantAnswered,
)
from gridengine.resources.demand import ANY
from gridengine.schedulers.launcher import Handle
from gridengine.serialize.payload import PayloadAtWorker
from gridengine.wire.messages import (
    ABSENT,
    NUMBER_BITS,
    UNREACHED,
    Assign,
    Assignment,
    Beat,
    Define,
    Hello,
    Stop,
    input_name,
    portions,
)
from tests.support.played_peer import HELD, Peer, kept_text
from tests.support.tasks import make_task

FIRST_REFERENCE = 1 << 40
Calls = tuple[int, int, int]
"""A task, the first of some of its calls, and the one after the last."""


class PlayedCore(RuleBasedStateMachine):
    """A core with its workers, whose effects are performed and checked; without rules yet."""

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

    def start(self, slots: int, how: str, policy: dict[str, Any], **flags: bool) -> None:
        """Start a core without workers."""
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

    def make_calls(self, parent: int, sizes: list[int], options: dict[str, Any]) -> None:
        tasks = [self.new_task(size, submitter=1000 + parent, **options) for size in sizes]
        self.children.setdefault(parent, set()).update(task.id for task in tasks)
        function = Function(b"n", (b"function",), (), b"/", "n")
        self.play(Submitted(function, tasks, self.generation, parent))

    def number_of(self, who: tuple[int, int]) -> int:
        """Return the number of a submitter of a client, or of nobody's when the client is gone."""
        return (who[0] if who[0] in self.clients else 0) << NUMBER_BITS | who[1]

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

    def drop(self, references: list[int]) -> None:
        self.held -= set(references)
        self.play(NamesForgotten(references=references))

    def let_go(self, references: list[int]) -> None:
        self.told -= set(references)
        self.asking -= set(references)
        self.play(NamesForgotten(references=references))

    def has_children(self, run: int) -> bool:
        return any(self.left[task] for task in self.children.get(run, ()))

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

    # ------------------------------------------------------------ workers

    def one_of(self, place: int, which: Callable[[Peer], bool]) -> Peer | None:
        fit = [peer for peer in self.peers if which(peer)]
        return fit[place % len(fit)] if fit else None

    def deliver_from(self, peer: Peer, many: int = 1000) -> None:
        for _ in range(min(many, len(peer.result_buffer))):
            message, buffers = peer.result_buffer.popleft()
            self.play(Received(peer.id, message, buffers))

    def beat(self) -> None:
        for peer in self.peers:
            if peer.able and peer.id in self.known:
                self.play(Received(peer.id, Beat()))

    # ------------------------------------------------------------ what is always so

    def end_pulls_of(self, peer: Peer, *, connects: bool = True) -> None:
        for name, pull in list(peer.pulls.items()):
            [address] = pull.addresses
            [source] = [one for one in self.peers if one.id == address.encode()]
            if not (connects and source.alive and not source.suspended):
                peer.end_pull(name, UNREACHED)
            else:
                peer.end_pull(name, "" if name in source.functions else ABSENT)

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


def check_calls(state: CoreState, left: dict[int, set[int]]) -> None:
    """The calls that are open are those that were never settled."""
    for task, one in state.open_tasks.items():
        its = {index for index in range(one.count) if not one.is_settled(index)}
        assert one.details.remade or its == left[task]
