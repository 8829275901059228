"""The facts that code can read about where it runs: in which call (`GVAR.res`, `current_job()`), in
which runner process, in which event loop.

Imports little: a caller imports this before it starts its first fork server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gridengine.call_context.status_block import RUN
from gridengine.resources.base import ZERO, Resource

if TYPE_CHECKING:
    from gridengine.serialize.payload import Payload
    from gridengine.wire.channel import Channel
    from gridengine.wire.messages import Allocate, Message


def in_trio() -> bool:
    """Return whether this code runs in a task of trio."""
    trio: Any = sys.modules.get("trio")
    if trio is not None:
        with contextlib.suppress(RuntimeError):
            trio.lowlevel.current_task()
            return True
    return False


def in_event_loop() -> bool:
    """Return whether this code runs in a task of asyncio or trio."""
    asyncio: Any = sys.modules.get("asyncio")
    return in_trio() or (asyncio is not None and asyncio._get_running_loop() is not None)


class CurrentJob:
    """The job that this code runs in.

    `id` is the same for calls that travelled together, `attempt` counts from 1, `resources` are the
    resources that it was given: ZERO when it requested none.
    """

    __slots__ = "_index", "attempt", "id", "resources"

    def __init__(
        self, id: int, attempt: int, resources: Resource, index: Callable[[], int]
    ) -> None:
        self.id = id
        self.attempt = attempt
        self.resources = resources
        self._index = index

    @property
    def index(self) -> int:
        """The number of the call that runs now, among all that the user requested."""
        return self._index()

    def __reduce__(self) -> tuple[Any, ...]:
        # The index is frozen: in another process the job does not go on.
        return CurrentJob, (self.id, self.attempt, self.resources, partial(int, self.index))

    def __repr__(self) -> str:
        return f"<job {self.id}, call {self.index}, attempt {self.attempt}: {self.resources!r}>"


_HERE: ContextVar[CurrentJob | None] = ContextVar("gridengine job", default=None)
STREAM: ContextVar[Any] = ContextVar("gridengine stream", default=None)
"""The `random_streams.RandomStream` of the call that this thread runs."""


class ProcessSpent(BaseException):
    """This process has made as many calls as it may make."""


class Interrupted(BaseException):
    """Raise this in a call that `checkpoint()` has told to stop, once its state is saved: the call
    runs again elsewhere, and that counts as no retry. It derives from `BaseException`, so that an
    `except Exception` in the call does not take it for a failure.
    """


class Variables:
    """The facts that code, in any thread, can read about its call: `GVAR.res`, `GVAR.job`."""

    def __init__(self) -> None:
        self.process_job: CurrentJob | None = None
        """The job that this whole process runs, including threads that it has started; None in a
        process that is no runner, or before its first job.
        """
        self.process_stream: Any = None
        """The stream of random numbers of that job's present call, a `random_streams.RandomStream`.
        """
        self.process: CallingProcess | None = None
        """The runner that this process is, or was forked from. By it, calls submit nested calls,
        save their states, and talk with their client.
        """
        self.in_runner = False
        """Whether this process is a runner or was forked from one. Then its imports before the
        first call count as part of a call too.
        """
        self.environment_number = 0
        """How often the environment was reset to a caller's: that undoes initializers' changes."""
        self.pairs_set: set[bytes] = set()
        """The pairs of carried state whose `set` has run in this runner, by their pickles."""
        self.imports: tuple[str, ...] = ()
        """In a runner: the modules that calls of the present caller import before they begin."""
        self.is_importing = False
        """Whether this runner imports those modules now."""
        self.calls_made = 0
        """How many calls were made of the number that an executor allows for each process."""
        self.note_step: Callable[[int], None] = lambda step: None
        """Notes which of several calls that are made as one begins, from 1; 0 for none. The agent
        reads it when the process dies.
        """
        self.is_spent = False
        """Whether this process has made as many calls as it may, and is to end."""
        self.given: Mapping[bytes, tuple[bytes, bytes | None]] = MappingProxyType({})
        """The environment variables of the allocation, each with its value and the value without
        the allocation.
        """
        self.at_end: Callable[[], object] | None = None
        """Called when the present call has ended; set only if the call submits nested calls."""

    def __reduce__(self) -> str:
        return "GVAR"  # by name: a function refers to the GVAR of the process in which it runs

    @property
    def res(self) -> Resource:
        """The resources of the job that runs here: `GVAR.res.c` are the numbers of its cores. ZERO
        outside of a job.
        """
        job = self.job
        return ZERO if job is None else job.resources

    @property
    def job(self) -> CurrentJob | None:
        """The job that this code runs in, in whatever thread; None outside of one."""
        return _HERE.get() or self.process_job

    @property
    def stream(self) -> Any:
        """The random stream of the call that runs this code, in any thread; None without a seed."""
        return STREAM.get() or self.process_stream

    @property
    def inside(self) -> bool:
        """Whether this code runs inside a call, or in a process that exists only for calls."""
        return self.in_runner or self.job is not None

    @property
    def in_own_process(self) -> bool:
        """Whether this code runs in a call that its caller makes in its own process and thread."""
        return _HERE.get() is not None

    def count_call(self, most: int) -> None:
        """Count a call of a runner that may make `most` calls. A call inside a call is not counted.

        Raises:
            ProcessSpent: the runner has made them.
        """
        if self.in_runner and not self.in_own_process:
            if self.calls_made >= most:
                raise ProcessSpent
            self.calls_made += 1
            self.is_spent = self.calls_made >= most

    @contextlib.contextmanager
    def running(self, job: CurrentJob) -> Iterator[None]:
        """Let this thread run this job within the block."""
        token = _HERE.set(job)
        try:
            yield
        finally:
            _HERE.reset(token)


GVAR = Variables()


@contextlib.contextmanager
def process_name(name: str) -> Iterator[None]:
    """Give `multiprocessing.current_process()` the name of a job within the block. Jobs in several
    threads of one process may end in any order.
    """
    from multiprocessing.process import current_process  # few calls are jobs

    process, this = current_process(), object()  # a key of its own: several may have one name
    names = vars(process).setdefault("_gridengine_names", {None: process.name})
    names[this] = process.name = name
    try:
        yield
    finally:
        del names[this]
        process.name = next(reversed(names.values()))
        if len(names) == 1:
            vars(process).pop("_gridengine_names", None)


def current_job() -> CurrentJob | None:
    """Return the job or call that this code runs in: its `id`, `index`, `attempt` and `resources`.
    Outside of one return None, as `multiprocessing.parent_process` does.
    """
    return GVAR.job


CARRIED: list[Any] = []
"""What this process's calls carry besides, in the order of its registration (`carried_state`).
Empty in most processes, which then pay nothing for it.
"""


class CallStates:
    """The states that the calls of the present run have saved, by index. `tell` sends the agent a
    message. `told`: the call, as (run, index), that was told to stop last. `asked`: the call that
    asked last, when the worker was then known to end, and when the call first asked, in
    nanoseconds.
    """

    def __init__(self, tell: Callable[[Message, Payload], None]) -> None:
        self.saved: dict[int, Payload] = {}
        self.tell = tell
        self.told = (0, 0)
        self.asked = (0, 0, 0, 0)


class CallingProcess(NamedTuple):
    """The runner process.

    `number` is the agent's number for it, `words` its status block, `requests` the socket for its
    requests to the agent. `allocate` switches to another allocation in the midst of a call.
    `states` has the states that the present calls have saved. In a watched call, `hear` waits for
    the next thing that the client tells the call, and raises an `EOFError` once there can be none;
    `push` sends the client something.
    """

    number: int
    pid: int
    words: memoryview
    requests: socket.socket
    allocate: Callable[[Allocate, Payload], None]
    states: CallStates
    hear: Callable[[], Payload]
    push: Callable[[Payload], None]

    @property
    def run(self) -> int:
        """The run in progress; 0 for none."""
        return self.words[RUN]

    def connect(self) -> Channel:
        """Return a new channel to the agent.

        Raises:
            LookupError: the agent refuses; the text says why.
        """
        from gridengine.wire import agent_requests
        from gridengine.wire.channel import Channel  # few calls make calls

        request = agent_requests.NESTED + b"%d" % self.number
        return Channel(socket.socket(fileno=agent_requests.ask(self.requests, request)[1]))


def calling_process() -> CallingProcess | None:
    """Return this runner process if the present code may submit nested calls; else None. It may not
    in a call that its caller makes in its own process, nor in a process that a call has forked.
    """
    process = GVAR.process
    is_it = process is not None and process.pid == os.getpid() and not GVAR.in_own_process
    return process if is_it else None


class Controller:
    """An object by which a call exchanges data with its caller.

    `job_id` and `attempt` say which job this is, and how many times it was begun before (from 0).
    """

    def __init__(self, *, job_id: int, attempt: int, push: Callable[[Any], None]) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self._push = push
        self.cancelled = False
        """Whether the host has asked this job to end (`terminate()`). The job then has the grace
        time to end.
        """

    def push(self, value: Any) -> None:
        """Send the host an intermediate result. Values arrive in order, before the job's end.

        Raises:
            PicklingError: the value cannot travel.
        """
        self._push(value)

    def cancel(self) -> None:
        """Set `cancelled`."""
        self.cancelled = True
