"""Whatever workers, schedulers and users do, and in whatever order: each call is settled once, and
the books agree.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from gridengine.dispatcher.core.events import (
    ClientJoined,
    ClientLeft,
    Closing,
    DrainHosts,
    Draining,
    Launched,
    LaunchFailed,
    Polled,
    Rebalance,
    Received,
    ResultAsked,
    Scaled,
    Tick,
)
from gridengine.errors import ClusterError, GridEngineError, OutOfMemory, TimeoutError
from gridengine.requests import (
    CallsRecalled,
    Function,
    NamesForgotten,
    ResultData,
    ResultWanted,
    Submitted,
    Supplied,
    TasksCancelled,
)
from gridengine.resources import Cores, Memory, Token, WTime
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Report, WorkerStatus
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import (
    Resumes,
    Waits,
)
from tests.support.hypothesis_profiles import examples
from tests.support.played_core import PlayedCore
from tests.support.played_peer import NEEDS_OF_FUNCTION, SHARED

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


class Play(PlayedCore):
    """Users, a scheduler and workers, as they come."""

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
        self.start(slots, how, policy, **flags)
        if flags["crowded"]:
            self.crowd()
        if flags["holding"]:
            self.hold()

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

    @rule(place=st.integers(0, 9), many=st.integers(1, 9))
    def deliver(self, place: int, many: int) -> None:
        peer = self.one_of(place, lambda peer: bool(peer.result_buffer))
        if peer is not None:
            self.deliver_from(peer, many)

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


TestPlay = pytest.mark.timeout(600)(Play.TestCase)
TestPlay.settings = examples(80, stateful_step_count=60)
