"""`RemoteDispatcher`: a stand-alone dispatcher, as seen by a client in another process.

While the dispatcher is silent, futures wait: the network may be down, or the dispatcher is being
restarted. Meanwhile the client reads the connection file again, because a restarted dispatcher may
have another address.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import math
import os
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from gridengine._version import __version__
from gridengine.calls.outstanding import ClientLimits, Left, PendingRequests, TakenOutcomes, Took
from gridengine.calls.remote_control import ControlledDispatcher, DispatcherSilence, check_process
from gridengine.calls.translation import Outgoing, outcomes_of, take_joinable
from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.errors import ConfigurationError, DispatcherGone, GridEngineError, VersionMismatch
from gridengine.output.jobs_output import JobsOutput
from gridengine.output.stream_writer import StandardStreams
from gridengine.requests import CallsFinished, Function, Submitted, Task
from gridengine.serialize.byte_code import PYTHON
from gridengine.serialize.payload import Payload
from gridengine.system.machine import started, this_machine
from gridengine.threads import in_pieces
from gridengine.wire.channel import Received
from gridengine.wire.clock import SYSTEM_CLOCK, Clock
from gridengine.wire.connection_file import ClientConnection, load_private
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.messages import (
    DETACHED,
    NUMBER_BITS,
    OLDEST,
    VERSION,
    WATCHER,
    ClientHello,
    ClientWelcome,
    Controlled,
    Durable,
    Finished,
    Goodbye,
    Message,
    OutcomesTaken,
    Output,
    Refuse,
    Rejoin,
    TaskItem,
    WantAnswer,
)
from gridengine.wire.processes import check_unpatched, keep_interrupt, program

log = logging.getLogger("gridengine")

CLOSE_SECONDS = 15.0


class RemoteDispatcher(ControlledDispatcher):
    """Runs tasks on the workers of a dispatcher in another process, over TCP with CURVE.

    Args:
        path: of the connection file for clients.
        weight: this client's part of the turns of all clients.
        max_calls, max_bytes: how much this client may have open; None is any number.
        origin: the name under which the calls that this client leaves pass to the next client.
            Outcomes that earlier clients of the name have left arrive in the queue `left`.
        python: the version of Python that the client's functions need; empty if it sends none, and
            only asks.
        patience: after how many seconds of silence the dispatcher is taken to be gone; by default
            the setting `client_lease`. At least 2.5 beats of the dispatcher, so that it had the
            time to send one.
        clock: measures the silence.

    Raises:
        VersionMismatch: the dispatcher shares no protocol with this client, or runs another version
            of Python.
        ConfigurationError: the connection file cannot be used, or nobody answers.
        DispatcherGone: the dispatcher was killed, and will not be restarted.
    """

    def __init__(
        self,
        path: Path,
        *,
        weight: float = 1.0,
        max_calls: int | None = None,
        max_bytes: int | None = None,
        origin: str = "",
        python: str = PYTHON,
        patience: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__()
        self._handlers |= {
            Output: self._printed,
            Refuse: self._refused,
            Rejoin: self._rejoin,
            Goodbye: self._left,
            Controlled: self._controlled,
            Durable: self._durable,
        }
        self._clock = clock
        self._path = path
        self._limits = ClientLimits(max_calls, max_bytes)
        self.check_room = self._limits.check if self._limits else None
        self._hello = _hello(weight, origin, python)
        self.left = queue.SimpleQueue[ClientWelcome | Left | GridEngineError]()
        """The outcomes that earlier clients of the name have left: first the welcome, which says
        how many, then the outcomes. Each epoch of the dispatcher begins the sequence again. An
        error means that nothing more will come.
        """
        self.file_fault: Callable[[], tuple[str, str]] = lambda: ("", "")
        """Returns the file of a named run that cannot be written, and the reason; empty strings
        while it can be written. Watchers of the dispatcher are told of it.
        """
        self._told_fault = "", ""
        keep_interrupt()
        check_unpatched()
        self._file = connection = load_private(self._path, ClientConnection)
        check_process(connection)
        self.name, self.identity = connection.name, connection.server_key
        self.output = f"`gridengine logs {self.name}` shows what calls printed"
        self._connection = DispatcherConnection(connection, clock=clock)
        self._connection.introduce = self._resume
        self._silence = DispatcherSilence(connection, patience, self._clock.monotonic())
        self._queue = EventQueue[Outgoing | threading.Event | Took]()
        """Messages to send, and events to set once everything before them is durable."""
        self._poller = select.poll()
        for fd in (self._connection.fd, self._queue.fd):
            self._poller.register(fd, select.POLLIN)
        self._closing = threading.Lock()
        self._number = 0
        self._requests = PendingRequests()
        self._taken = TakenOutcomes()
        self._streams = StandardStreams(self._queue.wake)
        self._output = JobsOutput(self._streams)
        """Receives the output of this client's jobs."""
        self._resuming = False
        """Whether this client waits for the welcome of a restarted dispatcher."""
        self._welcomed = self._closed = self._ends_calls = False
        # From here on the thread that reads closes the connection.
        self._begin(self._hello, "gridengine-client")
        self._welcomed = True
        self._jobs = self.new_id()
        atexit.register(self._at_exit)

    def close(self, *, wait: bool = True, detach: bool = False) -> None:
        """Disconnect, and end this client's calls, or with `detach` leave them to the next client
        of its name. Calls that are not settled here are settled with `Cancelled`. May be called
        twice.
        """
        # A forked child has a copy of this object, but the connection is its parent's.
        if os.getpid() != self._pid:
            return
        with self._closing:
            if not self._closed:
                self._ends_calls = not detach
                self._queue.post(Goodbye(DETACHED if detach else "closed"))
                self._closed = True  # only now: after a Ctrl-C in between it is posted again
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _at_exit(self) -> None:
        """Wait for jobs that are not daemons, unless an exception ends the interpreter; then
        disconnect.
        """
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(KeyboardInterrupt):
            self._unsettled.wait_for_jobs(lambda: self._lost is not None)
        self.close(detach=bool(self._hello.keep))
        try:
            self._streams.close()
        except KeyboardInterrupt:
            self._streams.drop("interrupted")

    def _submitter(self, number: int, run: int) -> int:
        """Return the number of a submitter at the dispatcher. All jobs share one."""
        return number or self._jobs

    def flush_output(self, seconds: float | None = None) -> None:
        self._streams.flush(seconds)

    def _note(self, tasks: Sequence[Task]) -> None:
        if tasks[0].options.watched:  # started now: no thread can start while the interpreter ends
            for stream in self._streams:
                stream.start()

    def _admit(self, tasks: Sequence[Task]) -> None:
        if self._limits:
            self._limits.enter(tasks)
        self._requests.expect(task.id for task in tasks)

    def _sendable(self, function: Function, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks that fit into the dispatcher's journal; the others get an error."""
        if not (self._requests.journaled and journal_limits.may_refuse(function, tasks)):
            return tasks
        refused = set()
        for task in tasks:
            error = journal_limits.why_refused(function, task)
            if error is not None:
                refused.add(task.id)
                self._refuse_task(task, error)
        return [task for task in tasks if task.id not in refused]

    def _refuse_task(self, task: Task | TaskItem, error: GridEngineError) -> None:
        if self._limits:
            self._limits.leave(CallsFinished(task.id, 0, task.count, None, last=True))
        self._requests.drop(task.id)
        super()._refuse_task(task, error)

    # ---------------------------------------------------------------- the connection

    def _request(self, request: Outgoing, /) -> None:
        if os.getpid() == self._pid:
            self._queue.post(request)

    def _deliver(self, message: Message, buffers: Payload = ()) -> None:
        self._connection.send(message, buffers)
        self._requests.add(message, buffers)

    def _receive(self) -> Received:
        """Send queued messages, wait, and return the messages that have arrived. Nothing from the
        queue is sent while the client resumes: it must first repeat its requests, in their order.
        """
        connection, queue = self._connection, self._queue
        if not self._resuming:
            for _, taken in self._output.taken():
                connection.send(taken)
        while queue.events and not self._resuming:
            self._send_queued(queue.events.popleft())
        if not self._resuming and self._taken.are_many:
            self._tell_ended()
        queue.sleeping = True
        try:
            more = queue.events and not self._resuming
            timeout = 0.0 if more else self._tick(self._clock.monotonic())
            came = connection.pending  # asked last, see `PolledSocket.pending`
            ready = dict(self._poller.poll(0 if came else max(0, math.ceil(timeout * 1000))))
        finally:
            queue.sleeping = False
        if queue.fd in ready:
            queue.drain()
        received = connection.receive() if came or connection.fd in ready else []
        if not received:
            self._look(self._clock.monotonic())
        return received

    def _send_queued(self, queued: Outgoing | threading.Event | Took) -> None:
        """Send a request of the queue, or do the other things that it stands for."""
        if isinstance(queued, threading.Event):
            self._requests.when_taken(queued)
        elif isinstance(queued, Took):
            # In a new epoch, unacknowledged messages arrive again.
            if queued.life == self._connection.epoch:
                self._taken.add(*queued.numbers)
        elif isinstance(queued, Goodbye):
            self._tell_ended()
            self._send(queued)
            raise EOFError("this client has disconnected")
        elif isinstance(queued, Submitted):  # submissions that have queued up meanwhile join it
            self._send(take_joinable(queued, self._queue.events))
        else:
            self._send(queued)

    def _tick(self, now: float) -> float:
        """Send the messages that are due; return the seconds until the next one is due."""
        left = math.inf if self._resuming else self._taken.seconds_left(now)
        if left <= 0.0:
            self._tell_ended()
            left = math.inf
        return min(self._connection.tick(now), left)

    def _tell_ended(self) -> None:
        if numbers := self._taken.take():
            self._connection.send(OutcomesTaken(numbers))

    def _look(self, now: float) -> None:
        """Look for the dispatcher if it is silent, and tell it when a file of this client can no
        longer be written.

        Raises:
            DispatcherGone: it was silent for the whole lease, or has ended for good.
        """
        path, error = fault = self.file_fault()
        if fault != self._told_fault and not self._resuming:
            self._told_fault = fault
            self._connection.send(self._control("note_fault", {"path": path, "error": error}))
        if self._silence.is_look_due(now, self._connection.received_at):
            check_process(self._file)
            with contextlib.suppress(ConfigurationError):  # no file: it has ended, or is starting
                self._connection.move(load_private(self._path, ClientConnection).addresses)

    def _work(self) -> None:
        """Read until the connection ends; then release everybody who waits, and close it."""
        try:
            with self._clock.waking(self._queue.wake):
                super()._work()
        finally:
            self._requests.release()
            self._streams.end()
            while self._queue.events:  # to which other threads may add some more
                event = self._queue.events.popleft()
                if isinstance(event, threading.Event):
                    event.set()
            heard = self._connection.close()
            if self._ends_calls and not heard and not isinstance(self._lost, DispatcherGone):
                log.warning(
                    "the dispatcher %r has not heard that this client has left: calls of named "
                    "runs go on, other calls end when it notices that the client is gone",
                    self.name,
                )
            self._queue.close()
            atexit.unregister(self._at_exit)

    # ---------------------------------------------------------------- a journal

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all requests so far are durable in the dispatcher's journal, for at most
        `timeout` seconds; return whether they are. Without a journal, return False at once.
        """
        if not self._requests.journaled or self._lost:
            return False
        done = threading.Event()
        self._queue.post(done)
        if self._lost:  # `_work` may have set its events before this one was queued
            return False
        return in_pieces(done.wait, timeout) and not self._lost

    def is_durable(self, task: int) -> bool:
        """Return whether a submitted task is durable in the dispatcher's journal."""
        sent = self._unsettled.listener(task) is not None
        return self._requests.journaled and sent and not self._requests.has(task)

    def _durable(self, message: Durable, buffers: Payload) -> None:
        self._requests.taken(message.requests)

    def _printed(self, message: Output, buffers: Payload) -> None:
        self._output.take(b"", message, bytes(buffers[0]))

    def _finished(self, message: Finished, buffers: Payload) -> None:
        if message.outcomes and message.outcomes[0].task >> NUMBER_BITS != self._number:
            outcomes = [event for _, event in outcomes_of(message, buffers)]
            self.left.put(Left(message.number, self._connection.epoch, outcomes))
            return
        super()._finished(message, buffers)
        if message.number:
            self._taken.add(message.number)

    def _settle_calls(self, event: CallsFinished) -> None:
        if self._limits:
            self._limits.leave(event)
        super()._settle_calls(event)

    def _result(self, message: WantAnswer, buffers: Payload) -> None:
        wanted = self._wanted.get(message.reference)
        if wanted is not None and not message.missing:
            self._requests.promised(wanted)
        super()._result(message, buffers)

    # ---------------------------------------------------------------- inherited outcomes

    def took(self, outcomes: Sequence[Left]) -> None:
        """Note that these outcomes are in their run's file: the dispatcher may delete them."""
        for life, those in itertools.groupby(outcomes, lambda one: one.life):
            self._queue.post(Took([one.number for one in those], life))

    def _fail(self, error: GridEngineError) -> None:
        super()._fail(error)
        self.left.put(error)

    def _resume(self) -> None:
        """Introduce this client to a restarted dispatcher, or once more if the first greeting was
        lost.
        """
        if not self._number:
            self._connection.begin_again()
            self._connection.send(self._hello)
            return
        if self._resuming:  # the new process may already have messages of the old session
            self._connection.send_again()
            return
        self._resuming = self._repeats = True
        # A new process does not count output that was taken before.
        self._output = JobsOutput(self._streams)
        self._taken.take()
        self._connection.begin_again()
        self._connection.send(self._hello_again())

    @property
    def only_looks(self) -> bool:
        """Whether the dispatcher knows this process as a watcher, by its keys."""
        return self._number == WATCHER

    def _hello_again(self) -> ClientHello:
        durable = self._requests.durable
        return replace(self._hello, resumes=self._number, durable=durable)

    def _welcome(self, message: ClientWelcome, buffers: Payload) -> None:
        """Take the number that the dispatcher gives to this client. Or, welcomed by a restarted
        dispatcher, send again everything that it may not have: requests, questions, followers, and
        wanted results.
        """
        if self._hello.keep:
            self.left.put(message)
        if not self._number:
            self._number = message.client
            if message.taken >= 0:
                self._requests.journaled = True
                self._connection.epoch = message.epoch
            else:
                # Without a journal a restarted dispatcher knows nothing of this client, so it must
                # not resume.
                self._connection.introduce = None
            super()._welcome(message, buffers)
            return
        self._resuming = False
        self._told_fault = "", ""
        self._connection.epoch = message.epoch
        self._requests.taken(message.taken)
        self._unsettled.restarted()
        self._wanted.update(self._requests.take_promises())
        for request, its in self._requests.left(self._unsettled):
            self._connection.send(request, its)
        for question in list(self._questions.values()):
            if question.message is not None:
                self._connection.send(question.message)
        for follow, _ in list(self._followed.values()):
            self._connection.send(follow)
        for want, _ in list(self._wanted.values()):
            if not self._requests.asks_for(want.reference):
                self._request(want)  # the journal has the question, but not the answer

    def _refused(self, message: Refuse, buffers: Payload) -> None:
        if message.mismatch:
            raise VersionMismatch(message.reason)
        if self._welcomed:
            raise DispatcherGone(
                f"the dispatcher {self.name!r} has given up this client: the client "
                f"was silent for too long, or the dispatcher was started anew ({message.reason})"
            )
        raise ConfigurationError(message.reason)

    def _rejoin(self, message: Rejoin, buffers: Payload) -> None:
        if not self._connection.rejoin(message):
            self._refused(Refuse("this dispatcher does not know this client"), ())

    def _left(self, message: Goodbye, buffers: Payload) -> None:
        raise DispatcherGone(f"{message.reason}: {self.name}")

    def _controlled(self, message: Controlled, buffers: Payload) -> None:
        if self._tell(message):
            self._connection.acknowledge()  # the dispatcher sends no more before
        self._answer(message.number, message)


def _hello(weight: float, origin: str, python: str) -> ClientHello:
    """Return this process's greeting."""
    pid = os.getpid()
    script = Path(program()).name
    return ClientHello(
        protocol=VERSION,
        version=__version__,
        oldest=OLDEST,
        python=python,
        host=socket.gethostname(),
        pid=pid,
        script=script,
        machine=this_machine(),
        started=started(pid),
        weight=weight,
        keeps=True,
        keep=origin,
    )
