"""`StateMachine.handle(event, now)` takes one event and returns the effects to perform, in order.

There is no clock, socket, thread, file or pickle in the core, so a test can play every failure. The
core promises two things. Each call of each task is settled exactly once, whatever workers do. And
the work for one event does not grow with the calls that wait or the workers that are connected; but
cancelling, a tick and the scheduler's reports look at all that they are about.

    task --> spans --> run --> outcome        a span: consecutive calls of a task that wait, with
               ^        |                     their attempt; a run: calls that a worker was given
               +--------+  lost, given back   a batch: the runs that one runner is given at a time

**Two state machines**, both tables in `states`. A *call* is waiting (in a queue), missing (inputs),
assigned (in a run) or settled. Its place is its state: a field for each of a million calls that
wait would cost memory, and could disagree with the place. A *worker* has a `Phase`. Whether it is
given calls depends on four more facts that change independently (`draining`, `withheld`, `floor`,
its share of calls): one state for each combination would be thirty states and no clearer.
Runs are numbered, and no number is used again: an answer to a run that is no more is late, and
dropped. The number of the attempt would not do, since calls that are given back keep theirs.

**Kept in step.** Counts stand beside the tables (`books`, the only module that changes them), since
a walk over all calls for each event is too slow. `invariants.check` derives each count again from
the tables; a core that is `checked` does so after each event. Where order decides, a dictionary
stands in for a set: effects must not depend on hash values.

**The loop.** A handler changes the tables, and notes in the `agenda` what follows. It does
not do it at once: an event with a hundred outcomes assigns calls once, and no loop walks over a
table that another changes. Then `handle` works the agenda off, until nothing new comes:

1. `returning`, `orphans`: calls that go on get their slots; children of ended calls are cancelled.
2. `linked`, `begun`: outcomes are passed on to the calls that need them, which are queued.
3. `freed_slots`, `changed_queues`, `room_freed`: calls are assigned (`allocator.settle`).
4. `scale`: workers are requested or withdrawn, once, by what is left waiting then.

Slots go first to calls that have begun (1), then to calls whose inputs are here (2: their inputs
take memory), then to others (3): so what is begun ends before more is begun.

Modules, by what they decide: `clients` (what clients ask); `dependencies`, `objects` (results and
functions); `allocator`, `assigner`, `fair_queue` (who runs what where); `nested` (calls that make
calls); `outcomes`, `failures` (how calls end); `worker_startup`, `worker_lifecycle`,
`worker_messages`, `adoption` (workers, from their launch to their end); `provisioner`, `scaling`
(how many there are).
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from gridengine.dispatcher.core import (
    adoption,
    allocator,
    assigner,
    clients,
    dependencies,
    events,
    nested,
    outcomes,
    scaling,
    worker_lifecycle,
    worker_messages,
    worker_startup,
)
from gridengine.dispatcher.core.events import Event
from gridengine.dispatcher.core.long_waits import LongWait
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.states import SILENT, Phase, Story, Subject
from gridengine.dispatcher.core.tasks import Effect, Submitted, Supplied
from gridengine.wire.messages import ClientCancel, ClientForget, ClientRecall, Hello, Want


class StateMachine:
    """Decides for one dispatcher. `handle` is the only way in; `state` is for looking.

    Args:
        policy: the limits and intervals to keep to.
        checked: check all invariants after each event, which takes time that grows with all that
            waits and runs, and keep the last events of tasks and workers.
    """

    def __init__(self, policy: Policy, *, checked: bool = False) -> None:
        self.state = CoreState(policy)
        self._long_wait = LongWait()
        if checked:
            self.state.story = Story()
            self.handle = self._handle_checked  # type: ignore[method-assign]

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Return the effects of one event, in order.

        Args:
            event: what has happened.
            now: when, in seconds of a clock that never jumps.

        Raises:
            Broken: the core is checked, and its tables disagree.
        """
        state = self.state
        state.effects, state.now = [], now
        if state.log.events is not None:
            state.log.events.now = now
        tick = type(event) is events.Tick
        _HANDLERS[type(event)](state, event)
        if tick:
            state.effects += self._long_wait.check(state)
        agenda = state.agenda
        while True:
            if agenda.returning or agenda.orphans:
                nested.settle(state)
            if agenda.linked or agenda.begun:
                _begin_dependents(state)
            if tick or agenda.freed_slots or agenda.changed_queues or agenda.room_freed:
                allocator.settle(state, again=tick)
            if not (agenda.linked or agenda.begun):
                break
            tick = False
        if agenda.scale:
            agenda.scale = False
            if not (state.closing or state.draining):
                scaling.scale(state)
        if state.draining and not state.runs:
            state.effects.append(events.Drained())
        return state.effects

    def _handle_checked(self, event: Event, now: float) -> list[Effect]:
        from gridengine.dispatcher.core.invariants import check  # few ask

        assert self.state.story is not None
        self.state.story.begin(event, now)
        effects = StateMachine.handle(self, event, now)
        check(self.state)
        return effects

    def story_of(self, subject: Subject) -> list[str]:
        """Return the last events of a task, by its number, or of a worker, by its id, the oldest
        first; none unless the core is checked.
        """
        return [] if self.state.story is None else self.state.story.of(subject)


def _begin_dependents(state: CoreState) -> None:
    """Pass outcomes on to the calls that need them, and assign those whose inputs are here."""
    dependencies.settle(state)
    agenda = state.agenda
    begun, agenda.begun = agenda.begun, {}
    agenda.changed_queues.update(dict.fromkeys(begun))
    for queue, one in begun.items():
        clients.provide(state, (queue,), one.submitter, one.task.name)


def _restored(state: CoreState, event: events.Restored) -> None:
    worker_startup.restored(state, event)
    for submitted in event.submitted:
        clients.submitted(state, submitted)
    adoption.assign_restored(state, event)
    for worker in [one for one in state.workers.values() if one.hello is worker_startup.UNKNOWN]:
        worker_lifecycle.lose(state, worker, "ended with its dispatcher")
    state.agenda.scale = True


def _draining(state: CoreState, event: events.Draining) -> None:
    state.draining = True


def _closing(state: CoreState, event: events.Closing) -> None:
    state.closing = True
    state.open_all()
    everything = [(task, 0, one.task.count) for task, one in state.open_tasks.items()]
    clients.reject(state, everything, signal.SIGKILL)
    for run in list(state.runs.values()):
        outcomes.end_run(state, run)
        outcomes.requeue(state, run.rest)
    dependencies.forget_before_closing(state, everything=event.for_good)
    for worker in list(state.workers.values()):
        if worker.exit_reason:
            worker_lifecycle.lose(state, worker, worker.exit_reason)
        elif worker.phase is not Phase.STOPPING:
            worker_lifecycle.stop(state, worker)
    for provisioner in state.provisioners.values():
        state.effects += provisioner.withdraw()
    state.effects += state.log.closed(state.figures, state.now)


def _received(state: CoreState, event: events.Received) -> None:
    message, worker = event.message, state.workers.get(event.worker)
    if type(message) is Hello:
        worker_startup.connected(state, event.worker, message)
        return
    if worker is None:
        state.effects.append(events.Lost(event.worker))
        return
    worker.heard_at = state.now
    if worker.phase is SILENT:
        worker_lifecycle.heard_again(state, worker)
        worker_lifecycle.finished_batch(state, worker)
    handler = worker_messages.HANDLERS.get(type(message))
    if handler is not None:
        handler(state, worker, message, event.buffers)


def _tick(state: CoreState, event: events.Tick) -> None:
    worker_lifecycle.check_workers(state)
    if state.retiring:
        scaling.keep_bounds(state)
    if state.active_clients > 1 and state.policy.pooled:
        scaling.make_room(state)
    worker_startup.check_launches(state)
    assigner.give_up_waiting(state)
    state.effects += state.log.tick(state.figures, state.now, busy=state.has_tasks)
    state.agenda.scale = True


def _continue(state: CoreState, event: events.Continue) -> None:
    state.agenda.changed_queues.update(state.deferred)
    state.deferred = {}


_HANDLERS: dict[type, Callable[[CoreState, Any], None]] = {
    events.ClientJoined: clients.joined,
    events.ClientLeft: clients.left,
    Submitted: clients.submitted,
    events.SubmittedAlike: clients.submitted_alike,
    ClientCancel: clients.cancel_requested,
    ClientRecall: clients.recall_requested,
    Want: dependencies.wanted,
    Supplied: dependencies.supplied,
    ClientForget: dependencies.forgotten,
    events.ResultAsked: dependencies.asked,
    events.Restored: _restored,
    events.DrainHosts: worker_lifecycle.drain,
    events.Received: _received,
    events.Scaled: scaling.scaled,
    events.Launched: worker_startup.launched,
    events.LaunchFailed: worker_startup.launch_failed,
    events.Polled: worker_startup.polled,
    events.Explained: worker_startup.explained,
    events.Tick: _tick,
    events.Rebalance: clients.rebalance,
    events.Continue: _continue,
    events.Draining: _draining,
    events.Closing: _closing,
}
"""The event table."""
