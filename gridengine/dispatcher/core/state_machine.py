"""The event table, and the loop that works off the agenda: see the head of this room."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from gridengine.dispatcher.core import (
    allocator,
    assigner,
    books,
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
from gridengine.dispatcher.core.calls import OpenTask, Story
from gridengine.dispatcher.core.events import Event, Warn
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import SILENT, WorkerPhase
from gridengine.display import plural
from gridengine.requests import (
    CallsRecalled,
    Effect,
    NamesForgotten,
    ResultWanted,
    Submitted,
    Supplied,
    TasksCancelled,
    Told,
)
from gridengine.wire.messages import Hello

LONG_WAIT_SECONDS = 10.0
MOST_NAMED = 5


class LongWait(Struct):
    """Warns when calls have waited for a long time and none can begin, since nothing else tells the
    user. Either jobs hold all workers, which may wait for one another or never end. Or calls need
    results that no call makes, such as a future that a script sets after these calls.

    `since`: from when on calls have waited and none was assigned. `blocked`: all of them need
    something from elsewhere. The first warning comes after `patience` seconds, the next after twice
    as many. Before `look_at` the waiting calls are not looked at.
    """

    last_run: int = 0
    blocked: bool = False
    since: float = -math.inf
    patience: float = LONG_WAIT_SECONDS
    look_at: float = -math.inf

    def check(self, state: CoreState) -> list[Effect]:
        """Return a warning if something has waited long enough."""
        blocked = bool(state.open_tasks) and not state.runs and not state.calls_waiting
        waits = blocked or state.calls_waiting > 0
        if (self.last_run, self.blocked) != (state.last_run, blocked) or not waits:
            self.last_run, self.blocked, self.since = state.last_run, blocked, state.now
        if state.now - self.since < self.patience:
            return []
        if blocked:
            return [self._of_results(state)]
        if any(one.expected or one.requested for one in state.provisioners.values()):
            return []  # the calls wait for workers to start, which is reported elsewhere
        if state.now < self.look_at:
            return []
        self.look_at = state.now + LONG_WAIT_SECONDS
        under_way = [run.span.open_task for run in state.runs.values()]
        if not any(one.options.watched for one in under_way):
            return []  # of calls alone it is clear what they wait for
        waiting = [span.open_task for queue in state.queues.values() for span in queue.waiting]
        jobs = [one.options.watched for one in under_way]
        if not (all(jobs) or any(one.options.watched for one in waiting)):
            return []
        self.patience *= 2
        text = (
            f"waiting for a free worker for {state.now - self.since:.0f} s: "
            f"{_named(waiting, state.calls_waiting)}"
        )
        room = state.policy.max_workers * state.policy.slots
        most = f" (max_workers={room})" if room else ""
        return [Warn(f"{text}; these hold all of them{most}: {_named(under_way, len(under_way))}")]

    def _of_results(self, state: CoreState) -> Warn:
        """Return the warning that no call can begin before a result comes from elsewhere."""
        self.patience *= 2
        open_tasks = list(state.open_tasks.values())
        return Warn(
            f"waiting for {state.now - self.since:.0f} s for results that no call of this "
            f"scheduler makes, of other schedulers or of futures that a script sets itself: "
            f"{_named(open_tasks, len(open_tasks))}"
        )


def _named(tasks: Sequence[OpenTask], calls: int) -> str:
    """Return the names of some jobs, and how many others there are."""
    jobs = [task.options.name for task in tasks if task.options.watched]
    names = jobs[:MOST_NAMED]
    if len(jobs) > MOST_NAMED:
        names.append(plural(len(jobs) - MOST_NAMED, "more job"))
    if calls > len(jobs):
        names.append(plural(calls - len(jobs), "call"))
    return ", ".join(names)


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
                nested.work_off(state)
            if agenda.linked or agenda.begun:
                _begin_dependents(state)
            if tick or agenda.freed_slots or agenda.changed_queues or agenda.room_freed:
                allocator.assign_all(state, again=tick)
            if not (agenda.linked or agenda.begun):
                break
            tick = False
        if agenda.scale:
            agenda.scale = False
            if not (state.closing or (state.draining and not state.has_nested)):
                scaling.scale(state)
        if state.draining and not state.runs:
            state.effects.append(events.Drained())
        return state.effects

    def _handle_checked(self, event: Event, now: float) -> list[Effect]:
        from gridengine.dispatcher.core.invariants import check  # few ask

        assert self.state.story is not None
        self.state.story.begin(event, now)
        effects = StateMachine.handle(self, event, now)
        check(self.state, ticked=type(event) is events.Tick)
        return effects


def _begin_dependents(state: CoreState) -> None:
    """Pass outcomes on to the calls that need them, and assign the calls whose inputs have come."""
    dependencies.pass_on(state)
    agenda = state.agenda
    begun, agenda.begun = agenda.begun, {}
    agenda.changed_queues.update(dict.fromkeys(begun))
    for queue, one in begun.items():
        clients.provide(state, (queue,), one.submitter, one.options.name)


def _restored(state: CoreState, event: events.Restored) -> None:
    worker_startup.restored(state, event)
    for submitted in event.submitted:
        clients.submitted(state, submitted)
    worker_startup.assign_restored(state, event)
    for worker in [one for one in state.workers.values() if one.hello is worker_startup.UNKNOWN]:
        worker_lifecycle.lose(state, worker, "ended with its dispatcher")
    state.agenda.scale = True


def _draining(state: CoreState, event: events.Draining) -> None:
    state.draining = True
    for worker in state.workers.values():  # nested calls alone may begin
        books.set_floor(state, worker)
    state.agenda.scale = True


def _closing(state: CoreState, event: events.Closing) -> None:
    state.closing = True
    everything = [(task, 0, one.count) for task, one in state.open_tasks.items()]
    clients.reject(state, everything, signal.SIGKILL)
    for run in list(state.runs.values()):
        outcomes.end_run(state, run)
        outcomes.requeue(state, run.rest)
    dependencies.forget_before_closing(state, everything=event.for_good)
    for worker in list(state.workers.values()):
        if worker.exit_reason:
            worker_lifecycle.lose(state, worker, worker.exit_reason)
        elif worker.phase is not WorkerPhase.STOPPING:
            worker_lifecycle.stop(state, worker)
    for provisioner in state.provisioners.values():
        state.effects += provisioner.withdraw()
    state.say(state.log.closed(state.figures, state.now))


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
    if event.late:
        worker_lifecycle.forgive_silence(state, event.late)
    worker_lifecycle.check_workers(state, event.unread)
    if state.retiring:
        scaling.keep_bounds(state)
    if state.active_clients > 1 and state.policy.pooled:
        scaling.make_room(state)
    scaling.check_launches(state)
    assigner.give_up_waiting(state)
    assigner.try_passed_over(state)
    state.say(state.log.tick(state.figures, state.now, busy=bool(state.open_tasks)))
    state.agenda.scale = True


def _continue(state: CoreState, event: events.Continue) -> None:
    state.agenda.changed_queues.update(state.deferred)
    state.deferred = {}


_HANDLERS: dict[type, Callable[[CoreState, Any], None]] = {
    events.ClientJoined: clients.joined,
    events.ClientLeft: clients.left,
    Submitted: clients.submitted,
    TasksCancelled: clients.cancel_requested,
    CallsRecalled: clients.recall_requested,
    ResultWanted: dependencies.wanted,
    Supplied: dependencies.supplied,
    Told: clients.told,
    NamesForgotten: dependencies.forgotten,
    events.ResultAsked: dependencies.asked,
    events.Restored: _restored,
    events.DrainHosts: worker_lifecycle.drain,
    events.Received: _received,
    events.Scaled: scaling.scaled,
    events.Launched: scaling.launched,
    events.LaunchFailed: scaling.launch_failed,
    events.Polled: scaling.polled,
    events.Explained: scaling.explained,
    events.Tick: _tick,
    events.Rebalance: clients.rebalance,
    events.Continue: _continue,
    events.Draining: _draining,
    events.Closing: _closing,
}
"""The event table."""
