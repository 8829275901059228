"""The agent: takes batches from the dispatcher, gives them to runners, and reports their outcomes.

The agent knows no transport and never waits. A loop gives it messages (`handle`), calls it when a
descriptor is ready (`fileno`, `on_ready`) and when time has passed (`tick`). It sends by the
function that it was given.
"""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from gridengine.call_context.process_resources import Processors, threads_of_call
from gridengine.display import log
from gridengine.errors import ProtocolError
from gridengine.output.stream_writer import StandardStreams
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import ResultBlocks, in_shared_block
from gridengine.system.polling import Poller
from gridengine.wire import agent_requests
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import (
    CANCELLED,
    Allocate,
    Assign,
    Cancel,
    Define,
    Deliver,
    Fetch,
    Fetched,
    Forget,
    Keep,
    LeaveBy,
    Message,
    OutputTaken,
    Pull,
    Recall,
    Release,
    Reload,
    Returned,
    ToClient,
    large_inputs,
    portions,
)
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.nested_relay import NestedCalls
from gridengine.worker.runner_handle import RunnerHandle
from gridengine.worker.runner_messages import RunnerMessages
from gridengine.worker.runner_output import OutputReaders, Relay
from gridengine.worker.runner_pool import RunnerPool

if TYPE_CHECKING:
    from gridengine.worker.pulls import PeerKeys


_LOG_SECONDS = 3.0
"""How long the report of a crash waits for the worker's log when nobody reads the log."""


class Agent:
    """Runs assignments on up to `slots` runners, each a process of its own.

    Args:
        send: sends a message with its buffers to the dispatcher; must not block.
        fork_server: forks the runners; the agent closes it.
        spare: how many idle runners stay (default: all).
        grace_seconds: between the signal that asks a runner to end and SIGKILL.
        output_bytes: how much of a watched run's standard output, and of its error, is recorded.
        streams: where the runners' output is written; the caller closes them.
        relay: sends the output of watched runs to their callers, too, or only there.
        answer: answers the requests of runners.
        result_blocks: stores large results that other calls need, in memory or in files.
        holds_results: large results that were made here stay here until they are fetched.
        sent_blocks: keeps descriptors of large results that no other call needs; None closes them.
        peer_keys: with these, other workers get the results that stay here, and this one theirs.
        clock: the clock of the loop that calls `tick`.
    """

    def __init__(
        self,
        send: Callable[[Message, Payload], None],
        fork_server: ForkServer,
        *,
        slots: int,
        spare: int | None = None,
        grace_seconds: float,
        output_bytes: int,
        streams: StandardStreams,
        relay: Relay | None = None,
        answer: Callable[[bytes], agent_requests.Answer] = agent_requests.answer_on_any_machine,
        result_blocks: ResultBlocks | None = None,
        holds_results: bool = False,
        sent_blocks: ResultBlocks | None = None,
        peer_keys: PeerKeys | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._send = send
        self._fork_server = fork_server
        fork_server.threads = threads_of_call(slots)
        self._streams = streams
        self._relay = relay
        self._answer = answer
        self._definitions = DefinitionStore()
        self._result_blocks = result_blocks or ResultBlocks()
        self._processors = Processors(slots)
        self._poller = Poller()
        self.on_ready = self._poller.poll
        """Read and write as much as is possible without waiting."""
        self._readers = OutputReaders(streams, self._poller)
        self.pool = RunnerPool(
            fork_server,
            self._poller,
            self._definitions,
            self._readers,
            slots=slots,
            spare=slots if spare is None else spare,
            grace_seconds=grace_seconds,
            output_bytes=output_bytes,
            relay=relay,
            clock=clock,
        )
        self._runner_messages = RunnerMessages(
            self.pool,
            send,
            self._flush_log,
            self._result_blocks,
            self._definitions,
            holds_results=holds_results,
            sent_blocks=sent_blocks,
            clock=clock,
        )
        self._pulls = None
        if peer_keys is not None:
            from gridengine.worker.pulls import Pulls  # not for workers of this machine

            self._pulls = Pulls(
                peer_keys,
                poller=self._poller,
                definitions=self._definitions,
                take_in=self._take_in,
                send=send,
                pool=self.pool,
                clock=clock,
            )
            self._definitions.when_held = self._pulls.serve
        self._nested_calls = NestedCalls(self.pool, self._poller, send)
        self._runner_messages.begin_waiting = self._nested_calls.begin_waiting
        self._poller.register(fork_server.fileno(), self._runner_messages.handle_fork_server)
        self._poller.register(fork_server.requests.fileno(), self._answer_requests)

    @property
    def broken(self) -> str:
        """Why this agent cannot run anything any more; empty while it can."""
        return self.pool.broken

    def fileno(self) -> int:
        """Return a descriptor that is readable when `on_ready` has work."""
        return self._poller.fileno()

    def handle(self, message: Message, buffers: Payload = ()) -> None:
        """Act on a message of the dispatcher.

        Raises:
            ProtocolError: an agent does not understand such a message, or it uses a function that
            was not defined.
        """
        handler = HANDLERS.get(type(message))
        if handler is None:
            raise ProtocolError(f"an agent understands no {type(message).__name__}")
        handler(self, message, buffers)

    def tick(self, now: float) -> float:
        """Enforce deadlines that have passed (`now` in monotonic seconds), and return after how
        many seconds to call this again.
        """
        self._runner_messages.kills.update(now)
        wait = math.inf if self._pulls is None else self._pulls.tick(now)
        return min(wait, self.pool.tick(now), self._readers.tick(now))

    def _flush_log(self) -> None:
        """Write the runners' output to this worker's log, if it has one: a reader of the coming
        report of a crash, or of this worker's leaving, may look there at once.
        """
        if self._relay is not None and not self._relay.alone:
            self._streams.flush(_LOG_SECONDS)

    def _answer_requests(self) -> None:
        if not agent_requests.reply(self._fork_server.requests, self._answer_request):
            self._poller.unregister(self._fork_server.requests.fileno())

    def _answer_request(self, request: bytes) -> agent_requests.Answer:
        is_nested = request[:1] == agent_requests.NESTED
        return self._nested_calls.open(request) if is_nested else self._answer(request)

    def finish_background(self) -> None:
        """Give idle runners the grace time to end everything that calls left in them: threads,
        processes, semaphores, exit handlers. Call this before `close`.
        """
        pool = self.pool
        left = (runner for runner in pool.runners.values() if runner.status.background)
        dismissed = [runner for runner in left if runner.ending or runner in pool.idle]
        if not dismissed:
            return
        pool.clear()
        deadline = self._clock.monotonic() + pool.grace_seconds
        for runner in dismissed:
            if runner.ending is None:
                runner.dismiss(float("inf"))
        while not self.broken and any(runner.id in pool.runners for runner in dismissed):
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                log().warning(
                    "threads or exit handlers that calls have left go on for more than %g s, and "
                    "are cut off",
                    pool.grace_seconds,
                )
                return
            self._poller.poll(remaining)

    def hand_over(self) -> None:
        """Send the dispatcher all results that only this worker has, and hold no more from here on.
        Call this before `close`.
        """
        self._runner_messages.holds_results = False
        self._fetch(Fetch(list(self._definitions.held)), ())

    def allocations(self) -> list[int]:
        return self.pool.allocations()

    def defined(self) -> list[bytes]:
        return list(self._definitions.messages)

    def end_nested_calls(self) -> None:
        """Kill the runners that have submitted nested calls, which ended with their dispatcher."""
        self._nested_calls.end_all()

    def forget_output(self, under_way: Mapping[int, int]) -> None:
        """Set how many bytes of each run's output are under way to the dispatcher; for runs that
        are not listed, none.
        """
        if self._relay is not None:
            self._relay.begin_again(under_way)

    def close(self) -> list[int]:
        """End all runners and the processes that they left behind. Send the answers that they gave
        before, and flush their output to the log. Return the runs that were in progress. May be
        called twice.
        """
        self._fork_server.close()
        begun = []
        for runner in list(self.pool.runners.values()):
            self._runner_messages.handle_last_messages(runner)
            if failed := runner.failed_call():
                begun.append(failed[0])
            self.pool.remove(runner)
        self._flush_log()
        if self._pulls is not None:
            self._pulls.close()
        self._poller.close()
        self._definitions.clear()  # free the memory even if something still refers to this agent
        self._processors.close()
        return begun

    # Messages of the dispatcher

    def _define(self, message: Define, buffers: Payload) -> None:
        if message.result:
            buffers = self._take_in(buffers)
        self._definitions.add(message, buffers)
        if message.shared:
            for runner in self.pool.runners.values():
                self.pool.define_to(runner, message.function)

    def _take_in(self, buffers: Payload) -> Payload:
        """Return a result that has come in blocks that runners can map."""
        return self._result_blocks.take_in(buffers, in_shared_block)

    def _pull(self, message: Pull, buffers: Payload) -> None:
        if self._pulls is None:
            raise ProtocolError("this worker gets no results from others")
        self._pulls.pull(message)

    def _forget(self, message: Forget, buffers: Payload) -> None:
        if self._pulls is not None:
            self._pulls.forget(message.functions)
        self._definitions.remove(message.functions)
        for runner in self.pool.runners.values():
            if not runner.defined.isdisjoint(message.functions):
                runner.defined.difference_update(message.functions)
                self.pool.send(runner, message)

    def _fetch(self, message: Fetch, buffers: Payload) -> None:
        for name in message.names:
            payload = self._definitions.held.pop(name, ())  # from here on the dispatcher has it too
            self._send(Fetched(name, len(payload)), payload)

    def _reload(self, message: Reload, buffers: Payload) -> None:
        for runner in self.pool.runners.values():
            runner.outdated = runner.outdated or bool(runner.defined)

    def _assign(self, message: Assign, buffers: Payload) -> None:
        defined, pulls = self._definitions.messages, self._pulls
        for assignment in message.assignments:
            if assignment.function not in defined:
                raise ProtocolError(f"run {assignment.run} uses a function that was not defined")
            if assignment.inputs and not all(
                name in defined or (pulls is not None and pulls.is_pulled(name))
                for name in large_inputs(assignment)
            ):
                raise ProtocolError(f"run {assignment.run} uses a result that was not defined")
        enqueue = self.pool.enqueue if pulls is None else pulls.hold_back
        enqueue(deque(portions(message.assignments, buffers)), message.allocation)

    def _cancel(self, message: Cancel, buffers: Payload) -> None:
        runs = set(message.runs)
        for run in self.pool.take_queued(runs):
            self._runner_messages.send_cancelled(run, message.signal)
        for runner in list(self.pool.runners.values()):
            asked = [run for run in runner.given if run in runs]
            if asked:
                self._cancel_given(runner, asked, message.signal)

    def _cancel_given(self, runner: RunnerHandle, asked: Sequence[int], number: int) -> None:
        """Cancel runs that a runner has been given. The runner is held first: otherwise it could go
        from a cancelled run into an innocent one while it is being killed.
        """
        runner.cancelled.update(dict.fromkeys(asked, number))
        if runner.ending is not None:
            if number == signal.SIGKILL and runner.status.run in runner.cancelled:
                runner.kill()
            return
        runner.status.hold()
        if runner.status.run in runner.cancelled:
            runner.end(CANCELLED, number, self._clock.monotonic() + self.pool.grace_seconds)
        else:
            self.pool.send(runner, Cancel(list(asked), number))

    def _recall(self, message: Recall, buffers: Payload) -> None:
        runs = set(message.runs)
        returned = self.pool.take_queued(runs)
        for runner in list(self.pool.runners.values()):
            asked, others, shortened = runner.recall(runs)
            returned += asked
            self.pool.enqueue_again(runner, others)
            if shortened is not None:
                self._send(shortened, ())
        if returned:
            self._send(Returned(returned), ())

    def _deliver(self, message: Deliver, buffers: Payload) -> None:
        """Pass a value on to the runner of a run; a run that has ended needs none."""
        for runner in self.pool.runners.values():
            if message.run in runner.given:
                self.pool.send(runner, message, buffers)

    def _leave_by(self, message: LeaveBy, buffers: Payload) -> None:
        self.leave_by(message.seconds, now=message.seconds is None)

    def leave_by(self, seconds: float | None, *, now: bool) -> None:
        """Tell calls in how many seconds this worker leaves; None if that is not known. With `now`,
        tell them to stop.
        """
        until = 0
        if seconds is not None:
            until = max(1, time.monotonic_ns() + int(seconds * 1e9))
        self.pool.leave_by(until, now=now)

    @property
    def listens(self) -> bool:
        """Whether a call in progress has asked whether it must stop."""
        return any(runner.status.listens for runner in self.pool.runners.values())

    def _output_taken(self, message: OutputTaken, buffers: Payload) -> None:
        if self._relay is not None:
            self._relay.taken(message.run, message.size)


HANDLERS: dict[type, Callable[[Agent, Any, Payload], None]] = {
    Define: Agent._define,
    Forget: Agent._forget,
    Keep: lambda agent, message, _: agent._runner_messages.want_result(message),
    Fetch: Agent._fetch,
    Pull: Agent._pull,
    Reload: Agent._reload,
    Allocate: lambda agent, message, buffers: agent.pool.allocate(
        agent._processors.resolve(message), buffers
    ),
    Release: lambda agent, message, _: agent.pool.release(message.allocations),
    Assign: Agent._assign,
    Cancel: Agent._cancel,
    Recall: Agent._recall,
    LeaveBy: Agent._leave_by,
    Deliver: Agent._deliver,
    OutputTaken: Agent._output_taken,
    **dict.fromkeys(
        get_args(ToClient),
        lambda agent, message, buffers: agent._nested_calls.pass_on(message, buffers),
    ),
}
