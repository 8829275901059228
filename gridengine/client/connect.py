"""Resolve `scheduler=`, and return the dispatcher that all users of that scheduler share."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gridengine.errors import ConfigurationError, short_repr
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.schedulers.default import default_scheduler, named_scheduler
from gridengine.schedulers.workerless import InlineScheduler, NestedScheduler, RemoteScheduler
from gridengine.settings.values import settings

if TYPE_CHECKING:
    from gridengine.calls.interface import Dispatcher
    from gridengine.dispatcher.started_ahead import StartedAhead


def dispatcher_of(scheduler: Scheduler, calls: str = "") -> Dispatcher:
    """Return the one dispatcher that all users of this scheduler instance share. `calls`: the name
    of the calls that are about to be submitted and request no resources, for which a worker may
    begin to start at once.
    """
    dispatcher: Any = scheduler._share(functools.partial(_make_dispatcher, scheduler, calls))
    return dispatcher  # type: ignore[no-any-return]


def _make_dispatcher(scheduler: Scheduler, calls: str) -> Dispatcher:
    """Make the dispatcher for a kind of scheduler."""
    # Imported here: a scheduler may begin to start its workers before these imports, which take
    # time.
    if isinstance(scheduler, InlineScheduler):
        from gridengine.calls.inline import InlineDispatcher

        return InlineDispatcher()
    if isinstance(scheduler, NestedScheduler):
        from gridengine.call_context.current_call import calling_process
        from gridengine.calls.nested import NestedDispatcher

        process = calling_process()
        if process is None:
            raise ConfigurationError(
                "this is the scheduler of a call, and no call runs here",
                hint="leave scheduler= out",
            )
        nested = NestedDispatcher(process)
        scheduler.max_workers = nested.slots
        return nested
    if isinstance(scheduler, RemoteScheduler):
        from gridengine.calls.remote import RemoteDispatcher

        remote = RemoteDispatcher(
            scheduler.path,
            weight=scheduler.weight,
            max_calls=scheduler.max_calls,
            max_bytes=scheduler.max_bytes,
            origin=scheduler.origin,
        )
        if remote.only_looks:
            remote.close()
            raise ConfigurationError(
                f"{scheduler.path} has the keys of a watcher, by which one can look at the "
                f"dispatcher {remote.name!r} and make no calls",
                hint="name the dispatcher, or the file client.json of its folder",
            )
        scheduler.max_workers = remote.slots
        return remote
    return _own_dispatcher(scheduler, calls)


def _own_dispatcher(scheduler: Scheduler, calls: str) -> Dispatcher:
    """Make a dispatcher whose I/O thread is this process's."""
    ahead: StartedAhead | None = None
    try:
        with _without_collector():
            if calls and scheduler._starts_ahead and not settings().jobs_per_minute:
                from gridengine.dispatcher.started_ahead import StartedAhead  # imports ZeroMQ

                ahead = StartedAhead.begin(scheduler, settings(), calls)
            from gridengine.calls.posting import PostingDispatcher
        return PostingDispatcher(scheduler, settings(), ahead=ahead)
    except BaseException:
        if ahead is not None:
            ahead.close()
        raise


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Collect no garbage: importing makes none, and looking for it takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def resolve(place: SchedulerSpec) -> tuple[Scheduler, bool]:
    """Return the scheduler that `place` means, and whether it was made here, so that the caller
    must close it.

    Raises:
        TypeError: `place` is neither a scheduler nor a callable that returns one.
        ConfigurationError: there is no scheduler of this name.
    """
    if place is None:
        return default_scheduler(), False
    if isinstance(place, str):
        return named_scheduler(place), False
    if isinstance(place, Scheduler):
        return place, False
    try:
        made = place() if callable(place) else place
    except TypeError:
        why = why_not_callable(place)
        if why is None:
            raise  # by its own code
        raise TypeError(
            f"scheduler={short_repr(place)} is called without arguments ({why}): give a scheduler "
            "that it has made, or a lambda that returns one"
        ) from None
    if not isinstance(made, Scheduler):
        raise TypeError(
            "scheduler must be a scheduler, its name, or a class or callable that gives one, not "
            f"{place!r}"
        )
    return made, True


def why_not_callable(place: Any, **arguments: object) -> str | None:
    """Return why an object cannot be called with these arguments; None if it can."""
    from inspect import signature  # only for an error

    try:
        signature(place).bind(**arguments)
    except TypeError as error:
        return str(error)
    except ValueError:  # a builtin, which tells nothing
        return None
    return None


def connect(place: SchedulerSpec, *, prepare: bool = False) -> tuple[Dispatcher, Scheduler, bool]:
    """Return the dispatcher of `place`, the scheduler, and whether the scheduler was made here, so
    that the caller must close it. With `prepare`, a scheduler that is made here begins to start its
    workers before the dispatcher is imported and made, which takes time.
    """
    # A scheduler instance is not resolved: a script that only defines jobs, or a worker, needs
    # neither the dispatcher nor its sockets.
    if isinstance(place, Scheduler):
        return dispatcher_of(place), place, False
    scheduler, ours = resolve(place)
    try:
        if prepare and ours:
            scheduler._prepare()
        return dispatcher_of(scheduler), scheduler, ours
    except BaseException:
        if ours:
            scheduler.close()
        raise
