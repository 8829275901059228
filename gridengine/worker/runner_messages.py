"""What runners say to their agent, and what becomes of the work of those that die. Functions over
the agent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    MEMORY,
    Assignment,
    Crashed,
    Message,
    Pushed,
    Results,
    Returned,
    Shortened,
    Started,
)
from gridengine.worker.forkserver import Exited, Forked, Refused
from gridengine.worker.memory_limit import killed_for_memory
from gridengine.worker.runner_handle import RunnerHandle

if TYPE_CHECKING:
    from gridengine.worker.agent import Agent

MOST_STILLBORN = 3
"""After how many runners in a row that died before they did anything the agent gives up."""


def hear_runner(agent: Agent, hand: RunnerHandle, events: int = 0) -> None:
    """Act on what a runner says."""
    if hand.stalled:
        agent.mind_stall(hand, stalled=not hand.channel.flush())
    try:
        for message, buffers in hand.channel.poll():
            handler = RUNNER_HANDLERS.get(type(message))
            if handler is None:
                raise ProtocolError(f"a runner says no {type(message).__name__}")
            hand.spoke = True
            handler(agent, hand, message, buffers)
    except ProtocolError:
        hand.channel.ended = True  # user code wrote into the channel, or over our memory
        if not hand.dead:
            hand.kill()
    if hand.channel.ended:
        agent.unwatch(hand.channel.fileno())


def _results(agent: Agent, hand: RunnerHandle, message: Results, buffers: Payload) -> None:
    agent.stillborn = 0
    for result in message.results:
        assignment = hand.given.get(result.run)
        if assignment is None:
            raise ProtocolError(f"a runner answers for run {result.run}, which it does not have")
        if result.stop == assignment.stop:
            if assignment.watched:
                message, buffers = _with_output(message, buffers, hand.take_output())
            hand.forget(result.run)
        else:
            hand.answered[result.run] = result.stop
    agent.send(message, buffers)
    _go_on(agent, hand)


def _dropped(agent: Agent, hand: RunnerHandle, message: Crashed, buffers: Payload) -> None:
    if message.run not in hand.given:
        raise ProtocolError(f"a runner drops run {message.run}, which it does not have")
    hand.forget(message.run)
    agent.send(message, buffers)
    _go_on(agent, hand)


def _not_begun(agent: Agent, hand: RunnerHandle, message: Returned, buffers: Payload) -> None:
    """A runner says which runs it left out. What it was sure to leave out was given back before."""
    runs = [run for run in message.runs if run in hand.given]
    for run in runs:
        hand.forget(run)
    if runs:
        agent.send(Returned(runs), ())
        _go_on(agent, hand)


def _shortened(agent: Agent, hand: RunnerHandle, message: Shortened, buffers: Payload) -> None:
    """A runner says where it ended a run that was cut, all its results being told. That it would
    end there may be known already.
    """
    assignment = hand.given.get(message.run)
    if assignment is not None:
        hand.forget(message.run)
        if message.stop < assignment.stop:
            agent.send(message, ())
        _go_on(agent, hand)


def _pass_on(agent: Agent, hand: RunnerHandle, message: Message, buffers: Payload) -> None:
    agent.send(message, buffers)


def _go_on(agent: Agent, hand: RunnerHandle) -> None:
    """When a runner has done all it was given: give it the next, or end it if that was asked
    for.
    """
    if hand.given or hand.dead:
        return
    if hand.ending is not None:
        hand.kill()
    elif hand.backlog:
        agent.feed(hand)
    else:
        agent.leave_lane(hand)
        agent.idle.append(hand)
        agent.hand_out()


def hear_nursery(agent: Agent, events: int = 0) -> None:
    """Act on what became of runners."""
    try:
        fates = agent.fork_server.receive()
    except EOFError as error:
        agent.broken = str(error)
        agent.unwatch(agent.fork_server.fileno())
        return
    for event in fates:
        hand = agent.hands[event.runner]
        if isinstance(event, Forked):
            hand.pid = event.pid
        elif isinstance(event, Exited):
            _bury(agent, hand, event)
        else:
            _return_refused(agent, hand, event)


def _return_refused(agent: Agent, hand: RunnerHandle, event: Refused) -> None:
    agent.remove(hand)
    agent.make_do(event.errno)
    reason = f"no process could be started: {os.strerror(event.errno)}"
    agent.send(
        Returned([*hand.given, *(assignment.run for assignment, _ in hand.backlog)], reason), ()
    )


def _bury(agent: Agent, hand: RunnerHandle, event: Exited) -> None:
    """Say what became of a dead runner's work; what it had answered before counts."""
    hear_last_words(agent, hand)
    agent.stillborn = 0 if hand.spoke or hand.run else agent.stillborn + 1
    _send_crashed(agent, hand, event)
    _send_returned(agent, hand)
    agent.remove(hand)
    if agent.stillborn >= MOST_STILLBORN:
        agent.broken = f"runners die before they do anything (exit status {event.exitcode})"
    agent.hand_out()


def hear_last_words(agent: Agent, hand: RunnerHandle) -> None:
    """Act on what a runner said before it died."""
    hand.dead = True
    hear_runner(agent, hand)
    while hand.channel.more:
        hear_runner(agent, hand)


def _send_crashed(agent: Agent, hand: RunnerHandle, event: Exited) -> None:
    accused = hand.accused()
    if accused is None:
        return
    run, index = accused
    reason = (
        hand.ending.reason
        if hand.ending is not None and hand.ending.run == run
        else _why_died(agent, event, hand.given[run])
    )
    output = hand.take_output()
    agent.finish_log()
    agent.send(Crashed(run, index, event.exitcode, reason, hand.pid, event.peak_memory), output)
    hand.forget(run)


def _why_died(agent: Agent, event: Exited, assignment: Assignment) -> str:
    out = killed_for_memory(
        exitcode=event.exitcode,
        peak=event.peak_memory,
        limit=assignment.memory,
        kernel=event.exitcode == -signal.SIGKILL and agent.kills.claim(time.monotonic()),
    )
    return MEMORY if out else CRASH


def _send_returned(agent: Agent, hand: RunnerHandle) -> None:
    """Give back what the runner did not end; of that, what was to be cancelled is."""
    for run, number in list(hand.cancelled.items()):
        send_cancelled(agent, run, number)
        hand.forget(run)
    runs = [*hand.given, *(assignment.run for assignment, _ in hand.backlog)]
    if runs:
        agent.send(Returned(runs), ())


def send_cancelled(agent: Agent, run: int, number: int) -> None:
    """Say that a run was ended before it began."""
    agent.send(Crashed(run, -1, -number, CANCELLED, 0), [b"", b""])


def _with_output(
    message: Results, buffers: Payload, output: Sequence[bytes]
) -> tuple[Results, Payload]:
    """Return the results with the output of the run that the last of them ends."""
    *others, last = message.results
    last = msgspec.structs.replace(last, buffers=last.buffers + len(output), output=True)
    return Results([*others, last]), [*buffers, *output]


RUNNER_HANDLERS: dict[type, Callable[[Agent, RunnerHandle, Any, Payload], None]] = {
    Results: _results,
    Crashed: _dropped,
    Returned: _not_begun,
    Shortened: _shortened,
    Started: _pass_on,
    Pushed: _pass_on,
}
