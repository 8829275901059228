"""A runner: the process that calls user code. Work arrives by a channel, outcomes leave by it, and
the status block says which call is in progress.

A runner may crash, hang, leak or be killed at any moment. Therefore it is a process of its own, and
writes the run and the call that it is about to begin into memory that its agent shares.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, NoReturn

from gridengine.call_context import KEPT
from gridengine.call_context.current_call import (
    GVAR,
    CallingProcess,
    CallStates,
    CurrentJob,
    Interrupted,
    ProcessSpent,
)
from gridengine.call_context.environment import SiteEnvironment, matches, place_variables
from gridengine.call_context.process_resources import MemoryLimit, peak_memory
from gridengine.call_context.status_block import (
    BACKGROUND,
    BARRED_FROM,
    BARRED_TO,
    CALL_STEP,
    DATA,
    HOLD,
    INDEX,
    LATE,
    RUN,
    START,
    UNTIL,
    map_words,
)
from gridengine.errors import call_words
from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import SINGLE, Payload
from gridengine.serialize.users_modules import CallersMain
from gridengine.system import data_bytes
from gridengine.wire.channel import Channel
from gridengine.wire.messages import (
    CANCELLED,
    NO_INPUT,
    RAISED,
    RETRYABLE,
    Allocate,
    Assign,
    Assignment,
    CallerState,
    Cancel,
    Crashed,
    Define,
    Deliver,
    Forget,
    Returned,
    Shortened,
    portions,
)
from gridengine.worker import multiprocessing_state
from gridengine.worker.call_strides import CallStrides
from gridengine.worker.forkserver import RunnerDescriptors, be_fork_server
from gridengine.worker.loaded_functions import LoadedFunctions, modules_before_fork, taking_item
from gridengine.worker.process_setup import (
    AllocatedResources,
    exit_forked,
    exit_process,
    flush_output,
    redirect_streams,
    seed_by_chance,
)
from gridengine.worker.result_buffer import ResultBuffer
from gridengine.worker.watched_runs import WatchedRuns

if TYPE_CHECKING:
    from gridengine.worker.failed_calls import FailedCalls
    from gridengine.worker.log_forwarder import LogForwarder


def main(descriptors: RunnerDescriptors, site: SiteEnvironment | None = None) -> NoReturn:
    """Run as a runner until the agent closes the channel. `site` is the environment of a machine
    other than the caller's.
    """
    GVAR.in_runner = True
    for fd in (descriptors.channel, descriptors.words):
        os.set_inheritable(fd, False)
    words = map_words(descriptors.words)
    redirect_streams(descriptors)
    seed_by_chance()
    requests = socket.socket(fileno=descriptors.requests)
    multiprocessing_state.prepare(requests, descriptors.number)
    channel = Channel(socket.socket(fileno=descriptors.channel), takes_blocks=True)
    runner = Runner(channel, words, site, descriptors.threads, spare=descriptors.words)
    GVAR.process = runner.as_calling_process(descriptors.number, requests)
    sys.modules["__main__"] = runner.main  # user code must not find the runner's own module
    try:
        runner.serve()
    except EOFError:
        multiprocessing_state.finish()
        exit_process(0)


def fork_server() -> NoReturn:
    """Run as a fork server in a fresh process that was started for it with a disabled garbage
    collector; the last argument is the descriptor of the socket to its agent.

    Used for an agent in a dispatcher's own process, which may have threads and sockets, or be a
    notebook. So its fork server is not forked from it.
    """
    site = SiteEnvironment.here(local=True) if KEPT in os.environ else None
    modules_before_fork()
    sock = socket.socket(fileno=int(sys.argv[1]))
    be_fork_server(sock, partial(main, site=site), gc.enable)


def make_ready() -> None:
    """Do in a fork server, while its agent connects, what each runner would have to do."""
    matches(place_variables(), b"")  # compiles the pattern
    modules_before_fork()  # last: it counts them
    gc.enable()


class Runner:
    """Reads work from the channel, makes the calls, and sends the outcomes."""

    def __init__(
        self,
        channel: Channel,
        words: memoryview,
        site: SiteEnvironment | None = None,
        threads: int = 0,
        *,
        spare: int = -1,
    ) -> None:
        self._channel = channel
        self._words = words
        self._spare = spare
        """A descriptor to give up for an import, after a call that has used up all others."""
        self._strides = CallStrides(words)
        self._result_buffer = ResultBuffer(channel, self._strides.look)
        self._queue: deque[tuple[Assignment, Payload]] = deque()
        self.main = CallersMain()
        self.functions = LoadedFunctions(self.main, site, threads)
        self._resources = AllocatedResources()
        self._retry_on: tuple[type[BaseException], ...] = ()
        words[DATA] = data_bytes()
        GVAR.note_step = self._note_step
        self._memory = MemoryLimit(words[DATA])
        self._assignment: Assignment | None = None
        """The run that began last."""
        self._log_forwarder: LogForwarder | None = None
        self._logs_for: CallerState | None = None
        self.states = CallStates(self._result_buffer.tell)
        self._watched = WatchedRuns(self._result_buffer, words, self._read)
        self._held = 0
        """How many `Cancel` messages this runner has read."""
        # If user code forks and the child returns from the call, the child gets no further than
        # the next access to the words.
        os.register_at_fork(after_in_child=words.release)

    def as_calling_process(self, number: int, requests: socket.socket) -> CallingProcess:
        """Return this process as its calls see it, by the agent's number for it and the socket for
        its requests.
        """
        return CallingProcess(
            number=number,
            pid=os.getpid(),
            words=self._words,
            requests=requests,
            allocate=self.reallocate,
            states=self.states,
            hear=self._watched.hear,
            push=self._watched.push,
        )

    def _note_step(self, step: int) -> None:
        with contextlib.suppress(ValueError):  # released, in a process that user code has forked
            self._words[CALL_STEP] = step

    def serve(self) -> NoReturn:
        """Work until the agent closes the channel.

        Raises:
            EOFError: the channel is closed, or this process has made all the calls that it may
            make.
        """
        while True:
            self._read()
            self._run_queue()

    def _read(self) -> None:
        for message, buffers in self._channel.wait():
            HANDLERS[type(message)](self, message, buffers)

    def _forward_logs(self) -> None:
        """Send the log records of calls to their caller, if the new caller wants them."""
        caller = self._logs_for = self.functions.environment.caller
        if self._log_forwarder is None and caller is not None and caller.levels is not None:
            from gridengine.worker.log_forwarder import LogForwarder  # few need it

            self._log_forwarder = LogForwarder(self._result_buffer, self._present_call)
        if self._log_forwarder is not None:
            self._log_forwarder.serve(caller)

    def _present_call(self) -> tuple[int, str]:
        """Return the run in progress, and the label of its present call."""
        assignment = self._assignment
        if assignment is None:
            return 0, "no call"
        name = self.functions.name_of(assignment.function)
        index = self._words[INDEX]
        return assignment.run, call_words(name, assignment.first, index, assignment.name)

    def reallocate(self, message: Allocate, buffers: Payload) -> None:
        """Change to another allocation in the midst of a call, in any thread.

        Raises:
            Exception: the allocation has nothing to give, or its class cannot be loaded here.
        """
        self._resources.allocate(message, buffers)
        if GVAR.process_job is not None:
            GVAR.process_job.resources = self._resources.get()
        self.functions.environment.give(self._resources.variables)

    def _take_saved(self, assignment: Assignment, payload: Payload) -> Payload:
        """Take the states that earlier attempts have saved; return the rest of the payload."""
        offset = own = len(payload) - sum(buffers for _, buffers in assignment.saved)
        for index, buffers in assignment.saved:
            self.states.saved[index] = payload[offset : offset + buffers]
            offset += buffers
        return payload[:own]

    def _assign(self, message: Assign, buffers: Payload) -> None:
        self._queue.extend(portions(message.assignments, buffers))
        for assignment in message.assignments:
            for one in assignment.inputs:
                if one.run:
                    self._result_buffer.passed_on[one.run] = ()

    def _cancel(self, message: Cancel, buffers: Payload) -> None:
        """Drop runs that have not begun. The agent has raised the word `HOLD` for this message and
        awaits the answers.
        """
        self._held += 1
        runs = set(message.runs)
        dropped = [assignment.run for assignment, _ in self._queue if assignment.run in runs]
        self._queue = deque(
            (assignment, payload)
            for assignment, payload in self._queue
            if assignment.run not in runs
        )
        for run in dropped:
            self._result_buffer.deliver(
                Crashed(run=run, index=-1, exitcode=-message.signal, reason=CANCELLED, pid=0),
                [b"", b""],
            )

    def _run_queue(self) -> None:
        """Make the calls of all queued runs."""
        if not self._queue:
            return
        first, _ = self._queue[0]
        several = len(self._queue) > 1 or first.stop - first.start > 1
        if several:
            self._result_buffer.begin_batch()
        try:
            while self._queue and not GVAR.is_spent:
                assignment, _ = self._queue[0]
                self._words[START] = 0
                self._words[INDEX] = self._words[UNTIL] = assignment.start
                self._words[RUN] = assignment.run
                if self._words[HOLD] == self._held:
                    barred = self._words[BARRED_FROM] <= assignment.run <= self._words[BARRED_TO]
                    begun = not barred and (not assignment.inputs or self._has_inputs(assignment))
                    entry = self._queue.popleft()
                    if begun:
                        self._run(*entry)
                    self._words[RUN] = 0
                    if not begun:
                        reason = "" if barred else NO_INPUT
                        self._result_buffer.deliver(Returned([assignment.run], reason))
                else:
                    self._words[RUN] = 0
                    self._wait_for_cancel()
        finally:
            if several:
                self._result_buffer.end_batch()
        self._result_buffer.passed_on.clear()
        flush_output()
        self._words[BACKGROUND] = multiprocessing_state.is_left(self._result_buffer.threads)
        self._result_buffer.flush()
        if GVAR.is_spent:
            raise EOFError

    def _has_inputs(self, assignment: Assignment) -> bool:
        """Return whether earlier runs of this batch have passed on the results that these calls
        need. An earlier run may have failed, or have run elsewhere.
        """
        for one in assignment.inputs:
            if one.run and not self._result_buffer.passed_on.get(one.run):
                return False
        return True

    def _wait_for_cancel(self) -> None:
        """Read the agent's `Cancel` before going on. The agent may instead be about to kill this
        process, which must not happen in an innocent call.
        """
        self._words[START] = 0
        self._result_buffer.flush()
        while self._words[HOLD] != self._held:
            self._read()

    def _run(self, assignment: Assignment, payload: Payload) -> None:
        if GVAR.pairs_set and self.functions.is_left_by_another(assignment.function):
            self._words[RUN] = 0  # another process makes these calls
            self._flush()
            raise EOFError
        self._result_buffer.begin(
            assignment.run,
            assignment.start,
            named=assignment.first,
            job=assignment.name,
            measured=assignment.watched,
            once=assignment.once,
            apart=bool(assignment.kept),
        )
        if assignment.watched:
            self._watched.begin(assignment.run)
        codec = self.functions.codecs.get(assignment.function)
        if codec is not None:
            self._result_buffer.form = codec
        self._retry_on = ()
        self._assignment = assignment
        if assignment.memory != self._memory.wanted:
            self._memory.set(assignment.memory)
        self.states.saved = {}
        try:
            if assignment.saved:
                payload = self._take_saved(assignment, payload)
            if assignment.inputs:
                passed_on = self._result_buffer.passed_on
                payload = self.functions.register_inputs(assignment, payload, passed_on)
            function, self._retry_on = self.functions.load(
                assignment.function, self._resources.variables, alone=assignment.watched
            )
            if self.functions.environment.caller is not self._logs_for:
                self._forward_logs()
            if assignment.watched or assignment.controlled:
                function = self._watched.extended(function, assignment)
            GVAR.process_job = self._job_of(assignment)
            if codec is None:
                items, complete = pickling.load_items(payload)
            else:
                items, complete = codec.load_items(payload), True
            self.functions.namespaces.is_loading = False
            if not self.functions.namespaces.is_entered:  # the arguments have brought variables
                self.functions.namespaces.enter_again()
            if assignment.inputs:
                self.functions.forget_inputs(assignment)
            call = function
            if not complete or assignment.form != SINGLE:
                call = taking_item(function, assignment, complete)
            if self._log_forwarder is not None:
                call = self._log_forwarder.around(call)
        except BaseException as error:
            self._fail(assignment, error)
        else:
            if assignment.timeout is None:
                self._call(call, items, assignment)
            else:
                self._call_timed(call, items, assignment)
        self._end_run(assignment)

    def _end_run(self, assignment: Assignment) -> None:
        """Pickle the remaining return values of a run, outside its memory limit. Send the results
        at once if the run is watched or its calls run once.
        """
        if GVAR.at_end is not None:
            GVAR.at_end()
        if self._memory.wanted:
            with self._memory.lifted():
                self._result_buffer.end()
        else:
            self._result_buffer.end()
        if assignment.watched or assignment.once:
            self._flush()
        if self._watched.has_finished:
            self._words[RUN] = 0
            exit_process(0)

    def _job_of(self, assignment: Assignment) -> CurrentJob:
        first, words = assignment.first, self._words
        return CurrentJob(
            assignment.task,
            assignment.attempt,
            self._resources.present or self._resources.get(),
            lambda: max(first, 0) + words[INDEX],
        )

    def _fail(self, assignment: Assignment, error: BaseException) -> None:
        """Answer each call of a run that cannot begin with the same error."""
        self._exit_if_forked(error)
        if self._memory.was_met(error):
            self._fail_for_memory(assignment, assignment.start, error, Unloadable(error))
        if assignment.watched:
            # As a process that cannot begin does. User code may have closed or replaced the stream.
            with contextlib.suppress(Exception):
                traceback.print_exception(error)
        self.functions.forget_inputs(assignment)
        self._failed_calls.add_run(error, assignment)

    @cached_property
    def _failed_calls(self) -> FailedCalls:
        with contextlib.suppress(OSError):  # user code may have closed it
            os.close(self._spare)
        from gridengine.worker.failed_calls import FailedCalls  # most calls do not fail

        return FailedCalls(self._result_buffer, self.functions)

    def _call(
        self, call: Callable[[Any], Any], calls: Sequence[Any], assignment: Assignment
    ) -> None:
        """Make the calls of a run."""
        strides, first, stop = self._strides, assignment.start, assignment.stop
        alone = stop - first == 1  # then none can be taken back
        if not alone:
            strides.begin_run(monotonic(), one_by_one=assignment.once)
        try:
            while first < stop:
                if alone:
                    strides.stop = stop
                elif not strides.begin(first, stop):
                    self._result_buffer.deliver(Shortened(assignment.run, first))
                    return
                first = self._make_calls(call, calls, first, assignment)
                if not alone:
                    strides.ended(self._result_buffer.ended)
        except ValueError:
            # The words are released: user code forked this process, and it returned from the call.
            self._exit_if_forked()
            raise

    def _make_calls(
        self, call: Callable[[Any], Any], calls: Sequence[Any], first: int, assignment: Assignment
    ) -> int:
        """Make the calls of a stride, from `first` on. Return the index of the first that was not
        made. Each statement in the loop is paid for by each call.
        """
        words, strides, result_buffer = self._words, self._strides, self._result_buffer
        values, index = result_buffer.values, first - 1
        for index in range(first, min(strides.stop, assignment.stop)):
            words[INDEX] = index
            if index >= strides.stop:
                break
            try:
                values.append(call(calls[index]))
            except BaseException as error:
                self._add_raised(index, error, assignment, calls[index])
        else:
            index += 1
        if GVAR.at_end is not None:
            GVAR.at_end()
        result_buffer.ended = now = monotonic()
        if now >= result_buffer.due:
            self._answer(assignment)
        return index

    def _call_timed(
        self, call: Callable[[Any], Any], calls: Sequence[Any], assignment: Assignment
    ) -> None:
        """Make the calls of a run that has a time limit for each. The agent kills only in a call
        that it has found late.
        """
        words, strides, result_buffer = self._words, self._strides, self._result_buffer
        strides.begin_run(monotonic(), one_by_one=True)
        for index in range(assignment.start, assignment.stop):
            words[INDEX] = index
            if not strides.begin(index, assignment.stop):
                result_buffer.deliver(Shortened(assignment.run, index))
                break
            words[START] = monotonic_ns()
            while words[HOLD] != self._held:
                self._wait_for_cancel()
                words[START] = monotonic_ns()
            try:
                value = call(calls[index])
                self._exit_if_late()
                result_buffer.values.append(value)
            except BaseException as error:
                self._exit_if_late()
                self._add_raised(index, error, assignment, calls[index])
            if GVAR.at_end is not None:
                GVAR.at_end()
            result_buffer.ended = now = monotonic()
            strides.ended(now)
            if now >= result_buffer.due:
                self._answer(assignment)
        words[START] = 0

    def _answer(self, assignment: Assignment) -> None:
        """Send all results. Where calls run once, end this process if too little of a memory limit
        is left for the next call, which would fail and could not be made again.
        """
        self._flush()
        grown = data_bytes() - self._words[DATA] if assignment.once and assignment.memory else 0
        if grown > assignment.memory // 2:
            self._words[RUN] = 0
            exit_process(0)

    def _exit_if_late(self) -> None:
        """End this process if the present call was found over its time limit, even if the call has
        returned: it counts as failed.
        """
        if (
            self._words[LATE]
            and self._words[LATE] == self._words[START]
            and not self._result_buffer.is_forked()
        ):
            self._flush()
            exit_process(1)

    def _add_raised(
        self, index: int, error: BaseException, assignment: Assignment, call: Any
    ) -> None:
        self._exit_if_forked(error)
        if type(error) is ProcessSpent:
            self._words[START] = self._words[RUN] = 0
            self._flush()
            raise EOFError
        if self._memory.was_met(error):
            self._fail_for_memory(assignment, index, error, call)
        if isinstance(error, Interrupted):
            told = self.states.told == (assignment.run, index)
            self._failed_calls.add_interrupted(index, assignment, told=told)
            return
        status = RETRYABLE if isinstance(error, self._retry_on) else RAISED
        self._failed_calls.add_raised(index, error, assignment, call, status)

    def _fail_for_memory(
        self, assignment: Assignment, index: int, error: BaseException, call: Any
    ) -> NoReturn:
        """Answer a call that ran out of memory, and end this process: its heap has grown, and only
        a new process has that memory back.

        The call is not answered if earlier calls of its run may have taken the memory and it may
        run twice: then a new runner makes it again.
        """
        limit = self._memory.limit
        self._memory.set(0)  # lift the limit before anything below allocates memory
        peak = max(peak_memory(), data_bytes() - self._words[DATA])
        if index == assignment.start or not assignment.memory or assignment.once:
            self._failed_calls.add_out_of_memory(
                index, error, assignment, call, limit=limit, peak=peak
            )
        self._words[RUN] = 0
        self._flush()
        exit_process(0)

    def _flush(self) -> None:
        """Send all results. Pickling them is not limited by the calls' memory limit."""
        self._exit_if_forked()
        flush_output()
        if self._assignment is not None and self._assignment.watched:
            ctypes.CDLL(None).fflush(None)  # C's own buffers: the result comes with all output
        # Set this before the results arrive: their receiver may close this worker at once.
        self._words[BACKGROUND] = multiprocessing_state.is_left(self._result_buffer.threads)
        with self._memory.lifted():
            self._result_buffer.flush()

    def _exit_if_forked(self, error: BaseException | None = None) -> None:
        """End this process if user code forked it and it returned from the call, as it would have
        ended at the end of a script.
        """
        if self._result_buffer.is_forked():
            exit_forked(error)


HANDLERS: dict[type, Callable[[Runner, Any, Payload], None]] = {
    Define: lambda runner, message, buffers: runner.functions.define(message, buffers),
    Forget: lambda runner, message, _: runner.functions.forget(message.functions),
    Allocate: lambda runner, message, buffers: runner._resources.allocate(message, buffers),
    Assign: Runner._assign,
    Cancel: Runner._cancel,
    Deliver: lambda runner, message, buffers: runner._watched.deliver(message, buffers),
}
