"""Handle the messages of runners to their agent, and the runs of runners that die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gridengine.call_context.process_resources import KillCounter, killed_for_memory
from gridengine.errors import CallError, ProtocolError
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.references import can_go_on
from gridengine.serialize.shared_memory import LARGE, ResultBlocks, disown
from gridengine.wire.clock import Clock
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    MEMORY,
    OUT_OF_MEMORY,
    PROCESS_LEFT,
    RAISED,
    VALUES,
    Assignment,
    Crashed,
    Keep,
    Message,
    Pushed,
    Result,
    Results,
    Returned,
    Saved,
    Shortened,
    Started,
    Waits,
    input_name,
    portions,
)
from gridengine.worker.definition_store import DefinitionStore
from gridengine.worker.forkserver import Exited, Forked
from gridengine.worker.runner_handle import RunnerHandle
from gridengine.worker.runner_pool import RunnerPool

MOST_LATE = 1000
"""For how many runs the agent remembers a `Keep` message: that other calls need their results,
which was not known when the runs were assigned.
"""
MOST_FAILED_STARTS = 3
"""Give up after this many consecutive runners died before their first call."""


class RunnerMessages:
    """Passes the runners' answers on to the dispatcher, and reports how runners end.

    Args:
        pool: the pool of these runners, which calls when one of them can be read.
        send: sends a message with its buffers to the dispatcher.
        flush_log: called before a crash or a lack of memory is reported, so that the worker's log
            has the runner's output.
        result_blocks: stores large results that other calls need.
        definitions: holds such results if `holds_results`; else they are sent on at once.
        sent_blocks: keeps descriptors of all other large results; None closes them.
        clock: the agent's.
    """

    def __init__(
        self,
        pool: RunnerPool,
        send: Callable[[Message, Payload], None],
        flush_log: Callable[[], None],
        result_blocks: ResultBlocks,
        definitions: DefinitionStore,
        *,
        holds_results: bool,
        sent_blocks: ResultBlocks | None,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._pool = pool
        pool.on_readable = self.handle_runner
        self._send = send
        self._flush_log = flush_log
        self._definitions = definitions
        self.holds_results = holds_results
        self._note_sent = disown if sent_blocks is None else sent_blocks.keep
        self._failed_starts = 0
        self.kills = KillCounter()
        self._result_blocks = result_blocks
        self.begin_waiting: Callable[[RunnerHandle, Waits], object] = lambda runner, message: None
        """Called when a call gives back its slot without having made calls."""
        self._wanted_late: dict[int, list[tuple[int, int]]] = {}
        """Results found to be needed after the assignment, in the form of `Assignment.kept`."""

    def handle_runner(self, runner: RunnerHandle) -> None:
        """Handle the messages of a runner."""
        if runner.stalled:
            self._pool.note_stall(runner, stalled=not runner.channel.flush())
        try:
            for message, buffers in runner.channel.poll():
                handler = HANDLERS.get(type(message))
                if handler is None:
                    raise ProtocolError(f"a runner sends no {type(message).__name__}")
                runner.has_answered = True
                handler(self, runner, message, buffers)
        except ProtocolError:
            runner.channel.ended = True  # user code wrote into the channel, or over its memory
            if not runner.dead:
                runner.kill()
        if runner.channel.ended:
            self._pool.unregister(runner)

    def _handle_results(self, runner: RunnerHandle, message: Results, buffers: Payload) -> None:
        self._failed_starts = 0
        wanted = dict[int, Assignment]()
        for result in message.results:
            assignment = runner.given.get(result.run)
            if assignment is None:
                raise ProtocolError(
                    f"a runner answers for run {result.run}, which it does not have"
                )
            if assignment.kept or result.run in self._wanted_late:
                kept = [*assignment.kept, *self._wanted_late.get(result.run, ())]
                wanted[result.run] = msgspec.structs.replace(assignment, kept=kept)
            if result.stop == assignment.stop:
                if assignment.watched:
                    message, buffers = _with_output(message, buffers, runner.take_output())
                self._pool.end_run(runner, result.run)
            else:
                runner.answered[result.run] = result.stop
            if result.status == OUT_OF_MEMORY:  # the error has the end of the log
                runner.take_output()
                self._flush_log()
        if wanted:
            message, buffers = self._store_wanted(message, buffers, wanted)
        elif max(map(len, buffers), default=0) >= LARGE:
            self._note_sent(buffers)
        self._send(message, buffers)
        self._pool.go_on(runner)

    def want_result(self, message: Keep) -> None:
        """Keep the result of a call that has been assigned: other calls need it after all."""
        late = self._wanted_late
        late.setdefault(message.run, []).append((message.index, message.reference))
        if len(late) > MOST_LATE:
            del late[next(iter(late))]

    def _store_wanted(
        self, message: Results, buffers: Payload, wanted: Mapping[int, Assignment]
    ) -> tuple[Results, Payload]:
        """Store the results that other calls need. Return the message and buffers to be sent."""
        try:
            self._result_blocks.keep(buffers)
        except OSError as error:
            return _without_large(message, buffers, self._no_room(error))
        if not self.holds_results:
            return message, buffers
        return _with_held(message, buffers, wanted, self._definitions)

    def _no_room(self, error: OSError) -> CallError:
        return CallError(
            f"its result, which other calls need, cannot be kept: such results fill "
            f"{self._result_blocks.most_bytes:,.0f} bytes of memory, and "
            f"{self._result_blocks.folder} takes no more ({error.strerror})",
            hint="free space there, or say more GRIDENGINE_KEPT_BYTES or another "
            "GRIDENGINE_RUN_DIRECTORY",
            host=socket.gethostname(),
        )

    def _handle_crashed(self, runner: RunnerHandle, message: Crashed, buffers: Payload) -> None:
        """Tell the dispatcher that a runner has dropped a cancelled run."""
        if message.run not in runner.given:
            raise ProtocolError(f"a runner drops run {message.run}, which it does not have")
        self._pool.end_run(runner, message.run)
        self._send(message, buffers)
        self._pool.go_on(runner)

    def _handle_returned(self, runner: RunnerHandle, message: Returned, buffers: Payload) -> None:
        """Handle runs that a runner has skipped. Runs that it was certain to skip were taken back
        before this message; of the others, some may have been cancelled since.
        """
        given = [run for run in message.runs if run in runner.given]
        again = [(run, runner.cancelled.get(run), runner.forget(run)) for run in given]
        runner.skipped(message.runs)
        returned = []
        for run, number, work in again:
            if number is not None:
                self.send_cancelled(run, number)
            elif work is not None and not message.reason:
                self._pool.enqueue_again(runner, [work])
            else:
                returned.append(run)
        if returned:
            self._send(Returned(returned, message.reason), ())
        if given:
            self._pool.go_on(runner)
        else:
            self._pool.assign_queued()  # the runner can be given runs again that it has skipped

    def _handle_shortened(self, runner: RunnerHandle, message: Shortened, buffers: Payload) -> None:
        """Handle that a runner ended a run early, after it sent all results. The dispatcher may
        have been told already that the run ends there.
        """
        assignment = runner.given.get(message.run)
        if assignment is not None:
            self._pool.end_run(runner, message.run)
            if message.stop < assignment.stop:
                self._send(message, ())
            self._pool.go_on(runner)

    def _handle_saved(self, runner: RunnerHandle, message: Saved, buffers: Payload) -> None:
        """Pass on the state that a call has saved. If the dispatcher is this process, it stays in
        the runner's block, or in a file, as large results do.
        """
        if message.run not in runner.given:
            raise ProtocolError(f"a runner saves for run {message.run}, which it does not have")
        with contextlib.suppress(OSError):  # no room for blocks: the memory itself is passed on
            self._result_blocks.keep(buffers)
        self._send(message, buffers)

    def _handle_waits(self, runner: RunnerHandle, message: Waits, buffers: Payload) -> None:
        if message.runner != runner.id:
            raise ProtocolError(f"runner {runner.id} speaks for runner {message.runner}")
        self.begin_waiting(runner, message)

    def _pass_on(self, runner: RunnerHandle, message: Message, buffers: Payload) -> None:
        disown(buffers)
        self._send(message, buffers)

    # Events of the fork server

    def handle_fork_server(self) -> None:
        """Handle the events of the fork server."""
        pool = self._pool
        try:
            events = pool.fork_server.receive()
        except EOFError as error:
            pool.give_up(str(error))
            return
        for event in events:
            runner = pool.runners[event.runner]
            if isinstance(event, Forked):
                runner.pid = event.pid
            elif isinstance(event, Exited):
                self._reap(runner, event)
            else:
                pool.remove(runner)
                pool.stop_growing(event.errno)
                why = f"no process could be started: {os.strerror(event.errno)}"
                self._send_returned(runner, why)

    def _reap(self, runner: RunnerHandle, event: Exited) -> None:
        """Report the outcome of a dead runner's work. Answers before its death count."""
        self.handle_last_messages(runner)
        worked = runner.has_answered or runner.status.run
        self._failed_starts = 0 if worked else self._failed_starts + 1
        self._send_crashed(runner, event)
        for run, number in list(runner.cancelled.items()):
            self.send_cancelled(run, number)
            runner.forget(run)
        left = runner.has_answered and not event.exitcode
        self._send_returned(runner, PROCESS_LEFT if left else "")
        self._pool.remove(runner)
        if self._failed_starts >= MOST_FAILED_STARTS:
            self._pool.broken = (
                f"runners die before they do anything (exit status {event.exitcode})"
            )
        self._pool.assign_queued()

    def handle_last_messages(self, runner: RunnerHandle) -> None:
        """Handle the messages that a runner sent before it died."""
        runner.dead = True
        self.handle_runner(runner)
        while runner.channel.more:
            self.handle_runner(runner)

    def _send_crashed(self, runner: RunnerHandle, event: Exited) -> None:
        failed = runner.failed_call()
        if failed is None:
            return
        run, index = failed
        reason = (
            runner.ending.reason
            if runner.ending is not None and runner.ending.run == run
            else self._why_died(event, runner.given[run])
        )
        output = runner.take_output()
        self._flush_log()
        crashed = Crashed(
            run=run,
            index=index,
            exitcode=event.exitcode,
            reason=reason,
            pid=runner.pid,
            peak_memory=event.peak_memory,
            step=runner.status.step if runner.status.run == run else 0,
        )
        self._send(crashed, output)
        runner.forget(run)

    def _why_died(self, event: Exited, assignment: Assignment) -> str:
        out = killed_for_memory(
            exitcode=event.exitcode,
            peak=event.peak_memory,
            limit=assignment.memory,
            kernel=event.exitcode == -signal.SIGKILL and self.kills.claim(self._clock.monotonic()),
        )
        return MEMORY if out else CRASH

    def _send_returned(self, runner: RunnerHandle, reason: str = "") -> None:
        """Give back the runs that the runner has not ended."""
        runs = [*runner.given, *(assignment.run for assignment, _ in runner.backlog)]
        if runs:
            self._send(Returned(runs, reason), ())

    def send_cancelled(self, run: int, number: int) -> None:
        """Report that a run was cancelled by this signal before it began."""
        self._send(
            Crashed(run=run, index=-1, exitcode=-number, reason=CANCELLED, pid=0), [b"", b""]
        )


def _with_output(
    message: Results, buffers: Payload, output: Sequence[bytes]
) -> tuple[Results, Payload]:
    """Return the results, with the output of the run that the last of them ends."""
    *others, last = message.results
    last = msgspec.structs.replace(last, buffers=last.buffers + len(output), output=True)
    return Results([*others, last]), [*buffers, *output]


def _without_large(message: Results, buffers: Payload, error: CallError) -> tuple[Results, Payload]:
    """Return the results, with this error in place of each large value."""
    from gridengine.serialize import pickling  # agents of workers elsewhere start without

    payload, results, left = pickling.dump_exception(error), list[Result](), list[Buffer]()
    for result, its in portions(message.results, buffers):
        is_large = result.status == VALUES and size_of(its) >= LARGE
        changed = {"status": RAISED, "buffers": len(payload)} if is_large else {}
        results.append(msgspec.structs.replace(result, **changed))
        left += payload if is_large else its
    return Results(results), left


def _with_held(
    message: Results,
    buffers: Payload,
    wanted: Mapping[int, Assignment],
    definitions: DefinitionStore,
) -> tuple[Results, Payload]:
    """Return the results without the values that stay at this worker: large values that other calls
    need, if they can be made again.
    """
    results, left = list[Result](), list[Buffer]()
    for result, payload in portions(message.results, buffers):
        assignment, size = wanted.get(result.run), size_of(payload)
        reference = dict(assignment.kept).get(result.start) if assignment is not None else None
        if (
            assignment is None
            or reference is None
            or assignment.once
            or result.output
            or result.stop - result.start != 1
            or not can_go_on(payload, 1)
            or result.status != VALUES
            or size < LARGE
        ):
            results.append(result)
            left += payload
        else:
            definitions.hold(input_name(reference), payload)
            results.append(msgspec.structs.replace(result, buffers=0, held=(reference, size)))
    return Results(results), left


HANDLERS: dict[type, Callable[[RunnerMessages, RunnerHandle, Any, Payload], None]] = {
    Results: RunnerMessages._handle_results,
    Crashed: RunnerMessages._handle_crashed,
    Returned: RunnerMessages._handle_returned,
    Shortened: RunnerMessages._handle_shortened,
    Saved: RunnerMessages._handle_saved,
    Started: RunnerMessages._pass_on,
    Pushed: RunnerMessages._pass_on,
    Waits: RunnerMessages._handle_waits,
}
