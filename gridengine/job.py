"""`Job`: one call somewhere else, with the API of `multiprocessing.Process`."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gridengine import pickling
from gridengine.errors import TimeoutError
from gridengine.events import Began, Function, Note, Settled, Task
from gridengine.flight import check_limits, hub_at, make_function, unpickled
from gridengine.protocol import FULL, SINGLE, Payload
from gridengine.schedulers.base import Place, Scheduler
from gridengine.target import NAME, Left, Target, accepts_controller, attributes_of, run

if TYPE_CHECKING:
    from gridengine.dispatcher import Hub

Outcome: TypeAlias = tuple[Any, BaseException | None]


@dataclass(frozen=True, slots=True)
class _Luggage:
    """What of a job travels."""

    function: Function
    call: Payload
    form: int
    controlled: bool


class _Ticket:
    """A started job as the I/O thread tells of it."""

    def __init__(self, hub: Hub, scheduler: Scheduler | None, *, ours: bool, daemon: bool) -> None:
        self.task = hub.new_id()
        self.daemon = daemon
        self.end: Settled | None = None
        self.start: Began | None = None
        self.notes: list[Payload] = []
        self._changed = threading.Condition()
        self._hub = hub
        self._scheduler = scheduler  # lives, and with it its workers, at least as long as the job
        self._ours = ours

    def submit(self, luggage: _Luggage, retries: int, timeout: float | None) -> None:
        task = Task(self.task, luggage.call, 1, luggage.form, retries, timeout, watched=True, controlled=luggage.controlled)
        self._hub.submit(luggage.function, [task], self)

    def settled(self, event: Settled) -> None:
        with self._changed:
            self.end = event
            self._changed.notify_all()

    def began(self, event: Began) -> None:
        self.start = event

    def noted(self, event: Note) -> None:
        with self._changed:
            self.notes.append(event.payload)
            self._changed.notify_all()

    def wait(self, timeout: float | None, *, notes: int | None = None) -> bool:
        """Wait for the end, or for more than so many notes; return whether it has come within `timeout` seconds."""
        with self._changed:
            come = self._changed.wait_for(lambda: self.end is not None or (notes is not None and len(self.notes) > notes), timeout)
        if self.end is not None and self._ours and self._scheduler is not None:
            self._ours = False
            self._scheduler.close()
        return come

    def end_event(self) -> Settled:
        """Return how it ended; only to be asked once it has."""
        assert self.end is not None
        return self.end

    def cancel(self, number: int) -> None:
        if self.end is None:
            self._hub.cancel([self.task], number)


class _Host:
    """What of a job stays on its host: where it runs, and how it goes. Arrives as None wherever a job travels."""

    __slots__ = ("outcome", "place", "ticket")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ticket: _Ticket | None = None
        self.outcome: Outcome | None = None

    # Here and not in Job.__getstate__, so that a subclass is free to have its own.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class Job:
    """A callable and its arguments, run on a worker; used as a `multiprocessing.Process` is.

    Args:
        target: what to call; a parameter named `controller` is given a controller (`job_id`, `attempt`, `push(value)`, `cancelled`).
        name: for people; default "Job-1" and so on.
        daemon: end with the interpreter instead of being waited for.
        scheduler: where `start` runs it: an instance, or a class or callable that gives one, closed when the job has ended;
            None is the process's own.
        mutable: bring the job's own attributes back as the run left them.
        retries: how often it is run again when its process died.
        timeout: the seconds it may take; None is no limit.

    A subclass may define `run(self)` or `run(self, controller)` instead; what it returns is the job's result.

    Raises:
        TypeError: `target` is not callable.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
        scheduler: Place = None,
        mutable: bool = False,
        retries: int = 2,
        timeout: float | None = None,
    ) -> None:
        _require(group is None, "group argument must be None for now")
        if target is not None and not callable(target):
            raise TypeError(f"target {target!r} is not callable")
        check_limits(retries, timeout)
        self._target = target
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._name = name or f"{type(self).__name__}-{next(Job._numbers)}"
        self._daemon = bool(daemon)
        self._mutable = mutable
        self._retries = retries
        self._timeout = timeout
        self._parent_pid = os.getpid()
        self._closed = False
        self._here = False
        self._host: _Host | None = _Host(scheduler)

    # -------------------------------------------------------------- as multiprocessing.Process

    def run(self, controller: Any = None) -> Any:
        """Call the target, here and now, and return what it returns. A subclass may define its own."""
        if self._target is None:
            return None
        given = controller is not None and accepts_controller(self._target, self._args, self._kwargs)
        return self._target(*self._args, **self._kwargs, **({"controller": controller} if given else {}))

    def start(self) -> None:
        """Hand the job to its scheduler. May be called once.

        Raises:
            PicklingError: the target or an argument cannot travel; the text names it.
        """
        host = self._startable()
        luggage = self._packed()
        hub, scheduler, ours = hub_at(host.place)
        try:
            self._submit(luggage, _Ticket(hub, scheduler, ours=ours, daemon=self._daemon))
        except BaseException:
            if ours:
                scheduler.close()
            raise

    def start_at(self, hub: Hub) -> None:
        """Hand the job to this hub, whatever its own scheduler; the caller keeps the hub's scheduler."""
        self._startable()
        self._submit(self._packed(), _Ticket(hub, None, ours=False, daemon=self._daemon))

    def join(self, timeout: float | None = None) -> None:
        """Wait until the job has ended, or `timeout` seconds; `exitcode` tells which."""
        self._check_open()
        self._await(timeout)

    def is_alive(self) -> bool:
        """Return whether the job has been started and has not ended; it may still wait for a worker."""
        self._check_open()
        if self._here:
            return True
        host = self._at_home("can only test a child process")
        return host.ticket is not None and not self._await(0)

    def terminate(self) -> None:
        """End the job with SIGTERM, and SIGKILL after a time of grace; one that has not begun never runs."""
        self.cancel(signal.SIGTERM)

    def kill(self) -> None:
        """End the job with SIGKILL; one that has not begun never runs."""
        self.cancel(signal.SIGKILL)

    def close(self) -> None:
        """Let go of everything the job holds; it cannot be used any more.

        Raises:
            ValueError: it is still running.
        """
        if self._host is not None and self._host.ticket is not None:
            if not self._host.ticket.wait(0):
                raise ValueError("Cannot close a process while it is still running. You should first call join() or terminate().")
            self._host.ticket = None
        self._closed = True

    @property
    def name(self) -> str:
        """What people call it."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        _require(isinstance(name, str), "name must be a string")
        self._name = name

    @property
    def daemon(self) -> bool:
        """Whether it ends with the interpreter instead of being waited for."""
        return self._daemon

    @daemon.setter
    def daemon(self, daemonic: bool) -> None:
        _require(self._host is None or self._host.ticket is None, "process has already started")
        self._daemon = bool(daemonic)

    @property
    def ident(self) -> int | None:
        """The process id, on its own machine, of the process that runs it or ran it last; None until it runs."""
        self._check_open()
        if self._here:
            return os.getpid()
        ticket = self._host.ticket if self._host is not None else None
        return ticket.start.pid if ticket is not None and ticket.start is not None else None

    pid = ident

    @property
    def exitcode(self) -> int | None:
        """0, or 1 for an uncaught exception, n for `sys.exit(n)`, -n when signal n ended it; None while it has not ended."""
        self._check_open()
        if self._host is None or self._host.ticket is None or not self._await(0):
            return None
        end = self._host.ticket.end_event()
        # Nothing but an exception has an exit code of its own: a result may stay as it is until it is asked for.
        return _exitcode(end, self._outcome()[1] if end.raised or self._mutable else None)

    def __repr__(self) -> str:
        words = [type(self).__name__, f"name={self._name!r}", f"parent={self._parent_pid}"]
        ticket = self._host.ticket if self._host is not None else None
        if self._closed:
            words.append("closed")
        elif self._parent_pid != os.getpid():
            words.append("started" if self._here else "unknown")
        elif ticket is None:
            words.append("initial")
        else:
            words += ["started"] if ticket.end is None else ["stopped", f"exitcode={self.exitcode}"]
        return f"<{' '.join([*words, 'daemon'] if self._daemon else words)}>"

    # -------------------------------------------------------------- besides

    def cancel(self, number: int) -> None:
        """End the job with this signal; one that has ended already is left as it is."""
        host = self._at_home("can only end a child process")
        if host.ticket is None:
            raise AttributeError("cannot end a process that has not been started")
        host.ticket.cancel(number)

    def outcome(self, timeout: float | None = None) -> Any:
        """Return the result, or the exception that `result` would raise."""
        value, error = self._outcome_within(timeout)
        return value if error is None else error

    def result(self, timeout: float | None = None) -> Any:
        """Return what the target, or `run`, returned.

        Raises:
            Exception: what it raised, with a `RemoteTraceback` as its `__cause__`.
            CallError, ClusterError: what kept it from ending.
            TimeoutError: it has not ended within `timeout` seconds; it runs on.
        """
        value, error = self._outcome_within(timeout)
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception that `result` would raise, or None.

        Raises:
            TimeoutError: the job has not ended within `timeout` seconds; it runs on.
        """
        return self._outcome_within(timeout)[1]

    def stdout(self) -> str:
        """Wait for the end and return what the job, and all it started, wrote to standard output; the middle of very much is left out."""
        return self._end().stdout.decode(errors="replace")

    def stderr(self) -> str:
        """Wait for the end and return what the job, and all it started, wrote to standard error; the middle of very much is left out."""
        return self._end().stderr.decode(errors="replace")

    def messages(self) -> Iterator[Any]:
        """Yield the values that the job pushed, from the first on, as they come; ends with the job.

        When it was run again, the values of the runs that were lost come too, first.
        """
        self._check_open()
        return _messages(self._ticket("can only read the messages of a started process"))

    # -------------------------------------------------------------- how

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("process object is closed")

    def _at_home(self, message: str) -> _Host:
        self._check_open()
        _require(self._host is not None and self._parent_pid == os.getpid(), message)
        assert self._host is not None
        return self._host

    def _ticket(self, message: str = "can only join a started process") -> _Ticket:
        host = self._at_home("can only join a child process")
        _require(host.ticket is not None, message)
        assert host.ticket is not None
        return host.ticket

    def _startable(self) -> _Host:
        self._check_open()
        _require(self._host is None or self._host.ticket is None, "cannot start a process twice")
        return self._at_home("can only start a process object created by current process")

    def _packed(self) -> _Luggage:
        """Return what is called at the other end, and with what."""
        own_run = type(self).run is not Job.run or "run" in vars(self)
        wanted = accepts_controller(self.run) if own_run else accepts_controller(self._target, self._args, self._kwargs)
        if own_run or self._mutable:
            return _Luggage(make_function(run), self._pickled(self), SINGLE, wanted)
        call = (self._args, {**self._kwargs, NAME: self._name})
        return _Luggage(make_function(Target(self._target)), self._pickled(call), FULL, wanted)

    def _pickled(self, call: Any) -> Payload:
        return pickling.dump_calls([call], describe=lambda _: self._name)

    def _submit(self, luggage: _Luggage, ticket: _Ticket) -> None:
        host = self._startable()
        host.ticket = ticket
        try:
            ticket.submit(luggage, self._retries, self._timeout)
        except BaseException:
            host.ticket = None
            raise

    def _await(self, timeout: float | None) -> bool:
        """Wait for the end; return whether it has come. A mutable job's attributes are then as the run left them."""
        ended = self._ticket().wait(timeout)
        if ended and self._mutable:
            self._outcome()
        return ended

    def _end(self) -> Settled:
        self._check_open()
        self._await(None)
        return self._ticket().end_event()

    def _outcome_within(self, timeout: float | None) -> Outcome:
        self._check_open()
        if not self._await(timeout):
            raise TimeoutError(f"{self._name} has not ended within {timeout:g} s; it runs on")
        return self._outcome()

    def _outcome(self) -> Outcome:
        """Return what the ended job returned and raised, unpickled once."""
        host = self._at_home("can only join a child process")
        if host.outcome is None:
            values, error = unpickled(self._ticket().end_event())
            value = values[0] if values else None
            if isinstance(value, Left):
                for name in attributes_of(self):
                    delattr(self, name)
                vars(self).update(value.attributes)
                value, error = value.value, None if value.raised is None else pickling.load_exception(value.raised)
            host.outcome = value, error
        return host.outcome


def _exitcode(end: Settled, error: BaseException | None) -> int:
    if end.payload is None or error is None:
        return end.exitcode
    if not isinstance(error, SystemExit):
        return end.exitcode or 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _messages(ticket: _Ticket) -> Iterator[Any]:
    for index in itertools.count():
        ticket.wait(None, notes=index)
        if index >= len(ticket.notes):
            return
        yield pickling.load(ticket.notes[index])


def _require(condition: bool, message: str) -> None:
    """Raise what `multiprocessing` raises for misuse, under `python -O` too."""
    if not condition:
        raise AssertionError(message)
