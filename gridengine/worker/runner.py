"""The process that calls user code: work comes in by a channel, outcomes go out by it, and shared
words say where it is.

It may crash, hang, leak or be killed at any moment; that is why it is a process of its own, and why
it writes down the run and the call it is about to make in memory that its agent shares.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, monotonic_ns
from typing import Any, NoReturn

from gridengine.errors import ConfigurationError, out_of_memory
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.estimates import replaced
from gridengine.resources.kinds import Cores, GPUs
from gridengine.serialize import main_module, pickling, shared_objects
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.main_module import CallersMain
from gridengine.serialize.payload import SINGLE, STAR, Payload
from gridengine.serialize.shared_memory import fetch
from gridengine.wire.channel import Channel
from gridengine.wire.messages import (
    CANCELLED,
    OUT_OF_MEMORY,
    RAISED,
    RETRYABLE,
    Allocate,
    Assign,
    Assignment,
    Cancel,
    Crashed,
    Define,
    Forget,
    Pushed,
    Returned,
    Shortened,
    Started,
    portions,
)
from gridengine.worker import background_work, multiprocessing_state
from gridengine.worker.affinity import keep_to
from gridengine.worker.call_context import GVAR, CurrentJob, process_name
from gridengine.worker.forkserver import Ends
from gridengine.worker.memory_limit import MemoryLimit, data_of, forget_peak, peak_memory
from gridengine.worker.process_setup import (
    Controller,
    flush_output,
    leave,
    move_to,
    take_over_streams,
)
from gridengine.worker.result_buffer import ResultBuffer

RUN, INDEX, START, HOLD, CUT_RUN, CUT, BARRED_FROM, BARRED_TO, LATE, DATA, BACKGROUND = range(11)
"""The shared words: the run and the call in progress (run 0: none), when that call began
(nanoseconds of the monotonic clock; 0: no call with a time limit is in progress), how many times
the agent has asked the runner to hear it before going on; what the agent has taken back: of one run
the calls from `CUT` on, and the runs from one number to another; the beginning of the call that the
agent has found to be over its time; the bytes of data that the runner had when it was new; and
whether calls have left threads running."""
WORDS_SIZE = 11 * 8
MANY, STEP = 64, 16
"""In runs of more than `MANY` calls, quick ones, only every `STEP`th looks whether the agent has
taken back the rest.
"""


def step_of(assignment: Assignment) -> int:
    """Return how many calls of a run are made between two looks whether the rest has been taken
    back.
    """
    return (
        1 if assignment.stop - assignment.start <= MANY or assignment.timeout is not None else STEP
    )


def map_words(fd: int) -> memoryview:
    """Return the words in the shared memory that a descriptor stands for, as unsigned 64-bit
    numbers.
    """
    return memoryview(mmap.mmap(fd, WORDS_SIZE)).cast("Q")


def main(ends: Ends) -> NoReturn:
    """Be a runner until the agent closes the channel."""
    GVAR.in_runner = True
    for fd in (ends.channel, ends.words):
        os.set_inheritable(fd, False)
    words = map_words(ends.words)
    os.close(ends.words)
    take_over_streams(ends)
    multiprocessing_state.prepare(ends.questions)
    runner = Runner(Channel(socket.socket(fileno=ends.channel)), words)
    sys.modules["__main__"] = runner.main  # user code must not find ours
    try:
        runner.serve()
    except EOFError:
        if background_work.is_running():
            background_work.finish()
        leave(0)


class Runner:
    """Reads work from the channel, makes the calls, answers."""

    def __init__(self, channel: Channel, words: memoryview) -> None:
        self._channel = channel
        self._words = words
        self._result_buffer = ResultBuffer(channel)
        self._queue: deque[tuple[Assignment, Payload]] = deque()
        self._defined: dict[bytes, tuple[list[str], Define, Payload]] = {}
        """Of each function the module search path to run it with, and how it is pickled."""
        self._loaded: dict[bytes, tuple[Callable[..., Any], tuple[type[BaseException], ...]]] = {}
        self.main = CallersMain()
        self._current: Assignment | None = None
        self._lend = Allocate(0)
        self._lend_payload: Payload = ()
        self._given: Resource | None = ZERO
        self._unfit: ConfigurationError | None = None
        self._retry_on: tuple[type[BaseException], ...] = ()
        words[DATA] = data_of()
        self._memory = MemoryLimit(words[DATA])
        self._held = 0
        self._finished = False
        """Whether this process has waited for its threads, and can only end."""
        self._own_path = tuple(sys.path)
        # Should user code fork, and its child come back out of the call, then it gets no further
        # than to the next.
        os.register_at_fork(after_in_child=words.release)

    def serve(self) -> NoReturn:
        """Work until the agent closes the channel.

        Raises:
            EOFError: it has.
        """
        while True:
            for message, buffers in self._channel.wait():
                HANDLERS[type(message)](self, message, buffers)
            self._work()

    def _define(self, message: Define, buffers: Payload) -> None:
        if message.shared:
            shared_objects.register(
                message.function, lambda: _fetch(message, buffers, writable=False)
            )
        given = list(map(os.fsdecode, message.path))
        path = [*given, *(entry for entry in self._own_path if entry not in given)]
        self._defined[message.function] = path, message, buffers

    def _take(self, message: Allocate, buffers: Payload) -> None:
        """Take what all calls from here on are given."""
        self._lend, self._lend_payload = message, buffers
        self._given = None if message.allocation else ZERO
        try:
            keep_to(message)
            self._unfit = None
        except ConfigurationError as error:
            self._unfit = error

    def _resources(self) -> Resource:
        """Return what calls are given, with this machine's own numbers.

        Raises:
            Exception: there is none to give; or its class cannot be loaded here.
        """
        if self._unfit is not None:
            raise self._unfit
        if self._given is None:
            if self._lend.failed:
                raise pickling.load_exception(self._lend_payload)
            cores, gpus = self._lend.cores or (), self._lend.gpus or ()
            given = replaced(
                pickling.load(self._lend_payload), Cores, lambda part: Cores(len(cores), cores)
            )
            self._given = replaced(given, GPUs, lambda part: GPUs(len(gpus), gpus))
        return self._given

    def _forget(self, message: Forget, buffers: Payload) -> None:
        large = False
        for digest in message.functions:
            _, define, _ = self._defined.pop(digest, ([], None, ()))
            self._loaded.pop(digest, None)
            main_module.forget(self.main, digest)
            shared_objects.unregister(digest)
            large = large or (define is not None and bool(define.block))
        if large:
            # a function may be part of a circle, and then its memory would stay until some other
            # time
            gc.collect()

    def _assign(self, message: Assign, buffers: Payload) -> None:
        self._queue.extend(portions(message.assignments, buffers))

    def _cancel(self, message: Cancel, buffers: Payload) -> None:
        """Drop runs that have not begun. The agent has bumped the word `HOLD` for this message, and
        waits for the answers.
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
            self._result_buffer.deliver(Crashed(run, -1, -message.signal, CANCELLED, 0), [b"", b""])

    def _work(self) -> None:
        several = sum(assignment.stop - assignment.start for assignment, _ in self._queue) > 1
        with self._result_buffer.backstop() if several else contextlib.nullcontext():
            while self._queue:
                assignment, _ = self._queue[0]
                self._words[START] = 0
                self._words[INDEX] = assignment.start
                self._words[RUN] = assignment.run
                if self._words[HOLD] == self._held:
                    begun = not self._words[BARRED_FROM] <= assignment.run <= self._words[BARRED_TO]
                    entry = self._queue.popleft()
                    if begun:
                        self._run(*entry)
                    self._words[RUN] = 0
                    if not begun:
                        self._result_buffer.deliver(Returned([assignment.run]))
                else:
                    self._words[RUN] = 0
                    self._listen()
        flush_output()
        self._words[BACKGROUND] = background_work.is_running()
        self._result_buffer.flush()

    def _listen(self) -> None:
        """Hear the agent before going on. It may also be about to kill this process: then not in a
        call that has nothing to do with it.
        """
        self._words[START] = 0
        self._result_buffer.flush()
        while self._words[HOLD] != self._held:
            for message, buffers in self._channel.wait():
                HANDLERS[type(message)](self, message, buffers)

    def _run(self, assignment: Assignment, payload: Payload) -> None:
        self._result_buffer.begin(
            assignment.run, assignment.start, named=assignment.first, measured=assignment.watched
        )
        if assignment.watched:
            forget_peak()
            self._result_buffer.deliver(Started(assignment.run, os.getpid()))
        self._current, self._retry_on = assignment, ()
        self._memory.set(assignment.memory)
        try:
            call = self._callable(assignment)
            self._occupy(assignment)
            calls, complete = pickling.load_items(payload)
            if not complete:
                call = _if_loaded(call)
        except BaseException as error:
            self._fail(assignment, error)
        else:
            (self._call if assignment.timeout is None else self._call_timed)(
                call, calls, assignment
            )
        self._result_buffer.end()
        if assignment.watched:
            flush_output()
            ctypes.CDLL(None).fflush(None)
            self._result_buffer.flush()
            if self._finished:
                self._words[RUN] = 0
                leave(0)

    def _occupy(self, assignment: Assignment) -> None:
        first, words = assignment.first, self._words
        resources = ZERO if self._given is ZERO else self._resources()
        GVAR.occupy(
            CurrentJob(assignment.task, assignment.attempt, resources, lambda: first + words[INDEX])
        )

    def _fail(self, assignment: Assignment, error: BaseException) -> None:
        """Answer each call of a run that cannot even begin."""
        self._leave_if_forked(error)
        if isinstance(error, MemoryError):
            self._run_out(assignment, assignment.start, error)
        if assignment.watched:
            with contextlib.suppress(
                Exception
            ):  # user code may have closed or replaced standard error
                traceback.print_exception(
                    error
                )  # as a process does that cannot begin; those that can tell by themselves
        payload = pickling.dump_exception(error)
        for index in range(assignment.start, assignment.stop):
            self._result_buffer.add_raised(index, payload)

    def _call(
        self, call: Callable[[Any], Any], calls: Sequence[Any], assignment: Assignment
    ) -> None:
        """Make the calls of a run. What stands in the inner loop is paid for each call."""
        words, result_buffer = self._words, self._result_buffer
        append, step = result_buffer.values.append, step_of(assignment)
        try:
            for first in range(assignment.start, assignment.stop, step):
                words[INDEX] = (
                    # before looking: the agent cuts, then looks here, so that one of the two sees
                    # the other
                    first
                )
                if self._cut_off(assignment, first):
                    break
                for index in range(first, min(first + step, assignment.stop)):
                    words[INDEX] = index
                    try:
                        append(call(calls[index]))
                    except BaseException as error:
                        self._add_raised(index, error, assignment)
                result_buffer.ended = now = monotonic()
                if now >= result_buffer.due:
                    self._send()
        except ValueError:
            # the words are gone in a process that user code forked and that came back out of it
            self._leave_if_forked()
            raise

    def _cut_off(self, assignment: Assignment, index: int) -> bool:
        """Return whether the agent has taken back the calls from this one on, and say so."""
        if self._words[CUT_RUN] != assignment.run or index < self._words[CUT]:
            return False
        self._result_buffer.deliver(Shortened(assignment.run, index))
        return True

    def _call_timed(
        self, call: Callable[[Any], Any], calls: Sequence[Any], assignment: Assignment
    ) -> None:
        """Make the calls of a run that has a time limit for each. The agent kills only in a call
        that it has seen to be late.
        """
        words, result_buffer = self._words, self._result_buffer
        for index in range(assignment.start, assignment.stop):
            words[INDEX] = index
            if self._cut_off(assignment, index):
                break
            words[START] = monotonic_ns()
            while words[HOLD] != self._held:
                self._listen()
                words[START] = monotonic_ns()
            try:
                value = call(calls[index])
                self._leave_if_late()
                result_buffer.values.append(value)
            except BaseException as error:
                self._leave_if_late()
                self._add_raised(index, error, assignment)
            result_buffer.ended = now = monotonic()
            if now >= result_buffer.due:
                self._send()
        words[START] = 0

    def _leave_if_late(self) -> None:
        """End with a call that was asked to end for being over its time and has come back: it has
        failed all the same.
        """
        if (
            self._words[LATE]
            and self._words[LATE] == self._words[START]
            and not self._result_buffer.forked()
        ):
            self._send()
            leave(1)

    def _add_raised(self, index: int, error: BaseException, assignment: Assignment) -> None:
        self._leave_if_forked(error)
        if isinstance(error, MemoryError):
            self._run_out(assignment, index, error)
        status = RETRYABLE if isinstance(error, self._retry_on) else RAISED
        self._result_buffer.add_raised(index, pickling.dump_exception(error), status)

    def _run_out(self, assignment: Assignment, index: int, error: MemoryError) -> NoReturn:
        """Answer a call that ran out of memory, and end: another process has what its heap has
        grown by.

        When calls before it, of the same run, may have had the memory, it is not answered: it is
        made again by a new runner.
        """
        limit = self._memory.limit
        self._memory.set(0)  # before anything that takes memory
        peak = max(peak_memory(), data_of() - self._words[DATA])
        if index == assignment.start or not assignment.memory:
            function, _ = self._loaded.get(
                assignment.function, (None, ())
            )  # it may itself have been too large to load
            name = getattr(function, "__qualname__", None) or getattr(
                function, "__name__", "a function"
            )
            what = (
                f"the call of {name}"
                if assignment.watched
                else f"call {assignment.first + index} of {name}"
            )
            late = out_of_memory(what, limit=limit, peak=peak, host=socket.gethostname())
            late.__cause__ = error
            late.__traceback__ = error.__traceback__
            self._result_buffer.add_raised(
                index, pickling.dump_exception(late), OUT_OF_MEMORY, peak
            )
        self._words[RUN] = 0
        self._send()
        leave(0)

    def _send(self) -> None:
        """Send all there is. What it takes to pickle it is not the calls' own."""
        self._leave_if_forked()
        flush_output()
        self._words[BACKGROUND] = (
            background_work.is_running()
        )  # before whoever waits for the results closes all
        with self._memory.lifted():
            self._result_buffer.flush()

    def _leave_if_forked(self, error: BaseException | None = None) -> None:
        """End a process that user code forked and that came back out of it, as it would have ended
        at the end of a script.
        """
        if not self._result_buffer.forked():
            return
        if isinstance(error, SystemExit):
            leave(error.code if isinstance(error.code, int) else int(error.code is not None))
        if error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
        leave(int(error is not None))

    def _callable(self, assignment: Assignment) -> Callable[[Any], Any]:
        """Return what takes one entry of the list of calls, with the caller's folder and path in
        place.
        """
        path, define, payload = self._defined[assignment.function]
        move_to(path, os.fsdecode(define.directory))
        main_module.enter(self.main, assignment.function)
        if assignment.function not in self._loaded:
            self._loaded[assignment.function] = _load(define, payload)
        function, self._retry_on = self._loaded[assignment.function]
        if assignment.controlled:
            function = self._controlled(function, assignment)
        if assignment.watched:
            function = self._to_its_end(function, assignment.name)
        if assignment.form == SINGLE:
            return function
        if assignment.form == STAR:
            return lambda arguments: function(*arguments)
        return lambda pair: function(*pair[0], **pair[1])

    def _to_its_end(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return the function of a job of this name. It has ended when the threads and processes
        that it leaves have.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                with process_name(name):
                    return function(*args, **kwargs)
            finally:
                if not self._result_buffer.forked() and background_work.is_running():
                    self._finished = True
                    background_work.finish()

        return call

    def _controlled(
        self, function: Callable[..., Any], assignment: Assignment
    ) -> Callable[..., Any]:
        """Return the function with a controller given to it. While it runs SIGTERM asks it to end,
        and does not kill.
        """

        def push(value: Any) -> None:
            payload = pickling.dump(value)
            self._result_buffer.deliver(Pushed(assignment.run, len(payload)), payload)

        def call(*args: Any, **kwargs: Any) -> Any:
            controller = Controller(job_id=assignment.task, attempt=assignment.attempt, push=push)
            before = signal.signal(signal.SIGTERM, lambda number, frame: controller.cancel())
            try:
                return function(*args, **kwargs, controller=controller)
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

        return call


def _load(
    define: Define, payload: Payload
) -> tuple[Callable[..., Any], tuple[type[BaseException], ...]]:
    """Return a function, and what has its calls made again, from its pickled form; an error says
    where it was tried, and the path.
    """
    # a module may have been written since a folder was last looked into
    importlib.invalidate_caches()
    try:
        return pickling.load_function(_fetch(define, payload))
    except BaseException as error:
        error.add_note(
            f"while loading the function on {socket.gethostname()}, where sys.path is {sys.path}"
        )
        raise


def _if_loaded(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what calls this, but raises what kept a call from being loaded."""

    def checked(one: Any) -> Any:
        if type(one) is Unloadable:
            raise one.error
        return call(one)

    return checked


def _fetch(define: Define, payload: Payload, *, writable: bool = True) -> Payload:
    return (
        fetch(define.block, define.places, payload, writable=writable) if define.block else payload
    )


HANDLERS: dict[type, Callable[[Runner, Any, Payload], None]] = {
    Define: Runner._define,
    Forget: Runner._forget,
    Allocate: Runner._take,
    Assign: Runner._assign,
    Cancel: Runner._cancel,
}
