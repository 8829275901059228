"""The worker's own part: takes batches of work from the dispatcher, has runners run them, and
reports what becomes of them.

It knows no transport and never waits: a loop gives it messages (`handle`), calls it when something
can be read (`fileno`, `on_ready`) and when time has passed (`tick`); it sends by the function it
was given.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from gridengine._version import __version__
from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Payload
from gridengine.serialize.shared_memory import KeptBlocks, in_shared_block
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.messages import (
    CANCELLED,
    VERSION,
    Allocate,
    Assign,
    Cancel,
    Define,
    Fetch,
    Fetched,
    Forget,
    Hello,
    Keep,
    Message,
    OutputTaken,
    Recall,
    Release,
    Reload,
    Returned,
    ToParent,
    large_inputs,
    portions,
)
from gridengine.worker import parent_requests
from gridengine.worker.affinity import Processors, threads_of_call
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.forkserver import ForkServer
from gridengine.worker.nested_calls import NestedCalls
from gridengine.worker.output import OutputReaders
from gridengine.worker.output_relay import Relay
from gridengine.worker.poller import Poller
from gridengine.worker.runner_handle import RunnerHandle
from gridengine.worker.runner_messages import RunnerMessages
from gridengine.worker.runner_pool import RunnerPool
from gridengine.worker.stream_writer import StandardStreams

log = logging.getLogger("gridengine")

_LOG_SECONDS = 3.0
"""For how long the report of a crash waits when the worker's log takes nothing."""


class Agent:
    """Runs assignments on up to `slots` runners, each a process of its own.

    Args:
        send: is given each message for the dispatcher, with its buffers; must not block.
        fork_server: where runners are forked; the agent closes it.
        spare: how many runners with nothing to do are kept (default: all).
        grace_seconds: between the signal that asks a runner to end and SIGKILL.
        output_bytes: how much of each of a watched run's standard output and error is kept.
        streams: where what runners write is passed on to; whoever gave them closes them.
        relay: where what watched runs write is passed on to, too, or alone.
        answer: answers what runners request.
        kept: has those large results in memory, or in files, that other calls need, made here or
            not.
        holds_results: these stay here until they are asked for.
        clock: that of the loop which calls it, from which `tick` has its time.
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
        answer: Callable[[bytes], parent_requests.Answer] = parent_requests.answer_on_any_machine,
        kept: KeptBlocks | None = None,
        holds_results: bool = False,
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
        self._kept = kept or KeptBlocks()
        self._processors = Processors(slots)
        self._poller = Poller()
        self.on_ready = self._poller.poll
        """Read and write what can be without waiting."""
        self._readers = OutputReaders(streams, self._poller)
        self.pool = RunnerPool(
            fork_server,
            self._poller,
            self._definitions,
            self._readers,
            lambda runner: self._runner_messages.handle_runner(runner),
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
            self._kept,
            self._definitions,
            holds_results=holds_results,
            clock=clock,
        )
        self._nested_calls = NestedCalls(self.pool, self._poller, send)
        self._poller.register(fork_server.fileno(), self._runner_messages.handle_fork_server)
        self._poller.register(fork_server.requests.fileno(), self._answer_requests)

    @property
    def broken(self) -> str:
        """Why this agent can run nothing any more; empty while it can."""
        return self.pool.broken

    def fileno(self) -> int:
        """Return a descriptor that polls as readable when `on_ready` has something to do."""
        return self._poller.fileno()

    def handle(self, message: Message, buffers: Payload = ()) -> None:
        """Act on a message of the dispatcher.

        Raises:
            ProtocolError: it is none that an agent understands, or it uses a function that was not
            defined.
        """
        handler = HANDLERS.get(type(message))
        if handler is None:
            raise ProtocolError(f"an agent understands no {type(message).__name__}")
        handler(self, message, buffers)

    def tick(self, now: float) -> float:
        """End what is due (`now` in monotonic seconds), and return after how many seconds to be
        called again.
        """
        self._runner_messages.kills.update(now)
        return min(self.pool.tick(now), self._readers.tick(now))

    def _flush_log(self) -> None:
        """Have what runners wrote in this worker's log, if it has one: whoever reads of a crash, or
        that this worker leaves, may look there at once.
        """
        if self._relay is not None and not self._relay.alone:
            self._streams.flush(_LOG_SECONDS)

    def _answer_requests(self) -> None:
        if not parent_requests.reply(self._fork_server.requests, self._answer_request):
            self._poller.unregister(self._fork_server.requests.fileno())

    def _answer_request(self, request: bytes) -> parent_requests.Answer:
        is_for_children = request[:1] == parent_requests.CHILDREN
        return self._nested_calls.open(request) if is_for_children else self._answer(request)

    def finish_background(self) -> None:
        """Before it is closed: let runners without work end what calls have left in them, within
        the grace time.
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
                log.warning(
                    "threads that calls have left running go on for more than %g s, and are cut "
                    "off",
                    pool.grace_seconds,
                )
                return
            self._poller.poll(remaining)

    def hand_over(self) -> None:
        """Send all results that lie here alone, before it is closed, and keep none from here on."""
        self._runner_messages.holds_results = False
        self._fetch(Fetch(list(self._definitions.held)), ())

    def allocations(self) -> list[int]:
        return self.pool.allocations()

    def defined(self) -> list[bytes]:
        return list(self._definitions.messages)

    def end_nested_calls(self) -> None:
        """End the processes whose calls make calls: their dispatcher is gone, and with it these."""
        self._nested_calls.end_all()

    def forget_output(self, under_way: Mapping[int, int]) -> None:
        """Note that of what runs wrote only so many bytes of each are on their way to the
        dispatcher.
        """
        if self._relay is not None:
            self._relay.begin_again(under_way)

    def close(self) -> list[int]:
        """End all runners and what they left behind; send what they had answered before, and have
        what they wrote in the log. Return the runs that they were at. May be called twice.
        """
        self._fork_server.close()
        begun = []
        for runner in list(self.pool.runners.values()):
            self._runner_messages.handle_last_messages(runner)
            if failed := runner.failed_call():
                begun.append(failed[0])
            self.pool.remove(runner)
        self._flush_log()
        self._poller.close()
        self._definitions.clear()  # whoever still refers to this agent wants no data of it
        self._processors.close()
        return begun

    # Messages of the dispatcher

    def _define(self, message: Define, buffers: Payload) -> None:
        if message.result:
            buffers = self._kept.take_in(buffers, in_shared_block)
        self._definitions.add(message, buffers)
        if message.shared:
            for runner in self.pool.runners.values():
                self.pool.define_to(runner, message.function)

    def _forget(self, message: Forget, buffers: Payload) -> None:
        self._definitions.remove(message.functions)
        for runner in self.pool.runners.values():
            if not runner.defined.isdisjoint(message.functions):
                runner.defined.difference_update(message.functions)
                self.pool.send(runner, message)

    def _fetch(self, message: Fetch, buffers: Payload) -> None:
        for name in message.names:
            payload = self._definitions.held.pop(name, ())  # from here on it lies there, too
            self._send(Fetched(name, len(payload)), payload)

    def _reload(self, message: Reload, buffers: Payload) -> None:
        for runner in self.pool.runners.values():
            runner.outdated = runner.outdated or bool(runner.defined)

    def _assign(self, message: Assign, buffers: Payload) -> None:
        defined = self._definitions.messages
        for assignment in message.assignments:
            if assignment.function not in defined:
                raise ProtocolError(f"run {assignment.run} uses a function that was not defined")
            if assignment.inputs and not defined.keys() >= {*large_inputs(assignment)}:
                raise ProtocolError(f"run {assignment.run} uses a result that was not defined")
        self.pool.enqueue(deque(portions(message.assignments, buffers)), message.allocation)

    def _cancel(self, message: Cancel, buffers: Payload) -> None:
        runs = set(message.runs)
        for run in self.pool.take_queued(runs):
            self._runner_messages.send_cancelled(run, message.signal)
        for runner in list(self.pool.runners.values()):
            asked = [run for run in runner.given if run in runs]
            if asked:
                self._cancel_given(runner, asked, message.signal)

    def _cancel_given(self, runner: RunnerHandle, asked: Sequence[int], number: int) -> None:
        """End runs that a runner has. Held first, it cannot get from one of them into another that
        is innocent while it is being killed.
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

    def _output_taken(self, message: OutputTaken, buffers: Payload) -> None:
        if self._relay is not None:
            self._relay.taken(message.run, message.size)


def make_hello(
    *, run_id: str, slots: int, pid: int, log: str, elapsed: float = 0.0, **other: Any
) -> Hello:
    """Return the first message of a worker in this process, whose cluster job has run for `elapsed`
    seconds.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Hello(
        VERSION,
        __version__,
        python,
        run_id,
        socket.gethostname(),
        pid,
        slots,
        log,
        max(0.0, elapsed),
        **other,
    )


HANDLERS: dict[type, Callable[[Agent, Any, Payload], None]] = {
    Define: Agent._define,
    Forget: Agent._forget,
    Keep: lambda agent, message, _: agent._runner_messages.keep(message),
    Fetch: Agent._fetch,
    Reload: Agent._reload,
    Allocate: lambda agent, message, buffers: agent.pool.allocate(
        agent._processors.resolve(message), buffers
    ),
    Release: lambda agent, message, _: agent.pool.release(message.allocations),
    Assign: Agent._assign,
    Cancel: Agent._cancel,
    Recall: Agent._recall,
    OutputTaken: Agent._output_taken,
    **dict.fromkeys(
        get_args(ToParent),
        lambda agent, message, buffers: agent._nested_calls.pass_on(message, buffers),
    ),
}
