"""What a call may know of itself while it runs: `GVAR.res`, what it was given, and
`current_job()`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gridengine.resources.base import ZERO, Resource


class CurrentJob(Struct, eq=False):
    """The job that this code runs in.

    `id` is the same for calls that travelled together, `attempt` counts from 1, `resources` are
    what it was given: ZERO when it asked for nothing.
    """

    id: int
    attempt: int
    resources: Resource
    _index: Callable[[], int]

    @property
    def index(self) -> int:
        """The number of the call that runs now, among all that the user asked for."""
        return self._index()

    def __reduce__(self) -> tuple[Any, ...]:
        return CurrentJob, (
            self.id,
            self.attempt,
            self.resources,
            partial(int, self.index),
        )  # elsewhere nothing runs that could go on

    def __repr__(self) -> str:
        return f"<job {self.id}, call {self.index}, attempt {self.attempt}: {self.resources!r}>"


_HERE: ContextVar[CurrentJob | None] = ContextVar("gridengine job", default=None)


class ProcessSpent(BaseException):
    """This process has made all the calls that it is to make."""


class Variables:
    """What code may know of the call that it runs in, in any thread: `GVAR.res`, `GVAR.job`."""

    def __init__(self) -> None:
        self.process_job: CurrentJob | None = None
        """The job that all of this process runs, also threads that it has started; None in a
        process that is no runner, or before its first.
        """
        self.in_runner = False
        """Whether this process is a runner, or was forked from one: what it imports before its
        first call is part of a call too.
        """
        self.environment_number = 0
        """How many times the environment was set as a caller's: what an initializer has changed in
        it is lost by that.
        """
        self.calls_made = 0
        """Of those that an executor limits for each process."""
        self.note_step: Callable[[int], None] = lambda step: None
        """Notes which of several calls that are made as one begins, from 1; 0 is for none. Who
        looks when the process dies sees it.
        """
        self.is_spent = False
        """Whether this process has made as many as it may, and is to end."""
        self.given: Mapping[bytes, tuple[bytes, bytes | None]] = MappingProxyType({})
        """The environment variables of its allocation, each with what it would be without."""
        self.at_end: Callable[[], object] | None = None
        """What is to be done when the call that runs has ended; only of a call that makes calls."""

    def __reduce__(self) -> str:
        return "GVAR"  # a function that refers to it means that of the process in which it runs

    @property
    def res(self) -> Resource:
        """What the job that runs here was given: `GVAR.res.c` are the numbers of its cores. ZERO
        outside of a job.
        """
        job = self.job
        return ZERO if job is None else job.resources

    @property
    def job(self) -> CurrentJob | None:
        """The job that this code runs in, in whatever thread; None outside of one."""
        return _HERE.get() or self.process_job

    @property
    def inside(self) -> bool:
        """Whether this code runs inside a call, or in a process that is there for calls alone."""
        return self.in_runner or self.job is not None

    @property
    def in_own_process(self) -> bool:
        """Whether this code runs in a call that is made in its caller's own process and thread."""
        return _HERE.get() is not None

    def count_call(self, most: int) -> None:
        """Count a call of a runner that makes so many; calls inside a call end no process.

        Raises:
            ProcessSpent: it has made them.
        """
        if self.in_runner and not self.in_own_process:
            if self.calls_made >= most:
                raise ProcessSpent
            self.calls_made += 1
            self.is_spent = self.calls_made >= most

    @contextlib.contextmanager
    def running(self, job: CurrentJob) -> Iterator[None]:
        """Within, this thread runs this job."""
        token = _HERE.set(job)
        try:
            yield
        finally:
            _HERE.reset(token)


GVAR = Variables()


@contextlib.contextmanager
def process_name(name: str) -> Iterator[None]:
    """Give `multiprocessing.current_process()` the name of the job that runs meanwhile. Jobs that
    threads run in one process may end in any order.
    """
    from multiprocessing.process import current_process

    process, this = current_process(), object()  # several may be called the same
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
