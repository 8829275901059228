"""Functions over many arguments: `map`, `starmap`, `imap`, `imap_unordered`, `aimap`, `partial`.

Imports little: workers on this machine start before the modules that send them calls are imported,
which takes as long.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from gridengine.client.chunking import argument_tuples, length_of, zipped
from gridengine.client.options import RunKeywords, run_options
from gridengine.errors import trim, trimmed
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.schedulers.default import default_scheduler, named_scheduler
from gridengine.serialize.payload import STAR

if TYPE_CHECKING:
    from gridengine.api.map_results import AsyncResultIterator, ResultIterator
    from gridengine.api.progress_displays import ProgressSpec
    from gridengine.client.options import Raisable
    from gridengine.client.submission import MapRequest
    from gridengine.resources.base import Resource

T = TypeVar("T")
PLACEHOLDER = getattr(functools, "Placeholder", object())
"""Stands for an argument that is given later, from Python 3.14 on; before, nothing equals it."""


def map(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int | None = None,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> list[T]:
    """Return `[f(x) for x in iterable]`. Workers make the calls, several at a time; several
    iterables are zipped.

    Args:
        scheduler: an instance (left open), or a class or callable that gives one (closed at the
            end); "processes", "grid_engine", "slurm" or "inline" is this process's own of that
            name, made once; None is the one that the setting `scheduler` names, else the best
            available; inside a call it is the scheduler that runs the call.
        reraise: raise the exception of the first call that fails, in the order of the arguments,
            and cancel those after it. If False each exception stands in its call's place, and none
            is raised.
        chunksize: how many calls travel together; None: the shorter the calls, the more.
        progress: False shows no progress; None follows the setting. On a terminal and in a notebook
            it is a bar, after 2 s; else, after 10 s, lines on standard error: the first, one for
            each tenth, one a minute at most, and the last. Or `tqdm`, or a bar of its kind, to be
            updated: an object with `update(n)`, or a callable that makes one when called with
            `total=`.
        retries: how often a call is run again whose process died, or that raised one of `retry_on`.
            With 0 no call begins twice, whatever happens; each then costs some 50 µs more.
        timeout: the seconds that each call may take; None is no limit. A call over its time is not
            run again.
        retry_on: the exception classes after which a call is run again, as `(OSError,)`; by default
            none.
        escalate_memory: with 2, a call that ran out of memory is run again with twice the memory;
            by default it fails at once.
        resources: what each call needs, as `Cores(4) & Memory(8)`, which is a limit of 8 GB too:
            see `docs/resources.md`.
        priority: calls with a higher one begin before others of this program that wait, strictly;
            those with the same (default 0) take turns.
        forward_logging: pass log records and warnings of calls on to this process's own `logging`
            and `warnings`, with the call and its host; None follows the setting: see
            `docs/watching.md`.
        run: with `name="sweep"` the results are stored on disk, and the same calls are not run
            again when the script is: `journal=`, `resume=`, `retry_failed=` and `wait=` say how,
            see `docs/runs.md`. Other keywords are an error: `functools.partial(f, b=2)` gives each
            call one.

    Raises:
        Exception: the failing call's own, with a `RemoteTraceback` as its `__cause__` and a note
        that names the call. Its `results`, as those of a `KeyboardInterrupt`, are the results so
        far: as with `reraise=False`, with `Cancelled` for each call that has not ended.
        CallError, ClusterError: what kept the call from ending.
        PicklingError: the function, or an argument, cannot travel; the text names it.
    """
    options = retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging
    try:
        if run or progress is not None:
            _check_keywords("map", run, progress)
        form, calls = zipped(f, iterables)
        total = length_of(iterables)
        request = _request(f, form, scheduler, reraise, chunksize, options, total, run)
        from gridengine.api.map_results import gather

        return gather(request, calls, total, progress)
    except BaseException as error:
        trim(error)
        raise


@trimmed
def starmap(
    f: Callable[..., T],
    iterable: Iterable[Iterable[Any]],
    *,
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int | None = None,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> list[T]:
    """Return `[f(*args) for args in iterable]`; all else is as for `map`."""
    options = retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging
    total = length_of([iterable])
    _check_keywords("starmap", run, progress)
    request = _request(f, STAR, scheduler, reraise, chunksize, options, total, run)
    from gridengine.api.map_results import gather

    return gather(request, argument_tuples(iterable), total, progress)


@trimmed
def imap(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int = 1,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> ResultIterator[T]:
    """Return an iterator over the results of `map`, in order, each as soon as it is there.

    The iterables may be infinite: arguments are taken as results are, a bounded number ahead. A
    call that failed, or whose argument cannot travel, raises when its turn comes (a `StopIteration`
    as a `RuntimeError`), and the iterator goes on after it. An exception of the iterable itself is
    raised after all results of the calls before it. Close the iterator, leave its `with`, or drop
    it, and its calls are cancelled.
    """
    options = retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging
    _check_keywords("imap", run, progress)
    how = {"ordered": True, "progress": progress}
    return _iterator(f, iterables, scheduler, reraise, chunksize, options, run, **how)


@overload
def imap_unordered(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    with_index: Literal[True],
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int = 1,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> ResultIterator[tuple[int, T]]: ...


@overload
def imap_unordered(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    with_index: Literal[False] = False,
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int = 1,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> ResultIterator[T]: ...


@trimmed
def imap_unordered(
    f: Callable[..., Any],
    *iterables: Iterable[Any],
    with_index: bool = False,
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int = 1,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> ResultIterator[Any]:
    """Return an iterator over the results of `map` in the order in which they come; with
    `with_index`, over `(number of the call, result)`. All else is as for `imap`.
    """
    options = retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging
    _check_keywords("imap_unordered", run, progress)
    how = {"ordered": False, "with_index": with_index, "progress": progress}
    return _iterator(f, iterables, scheduler, reraise, chunksize, options, run, **how)


def aimap(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int = 1,
    progress: ProgressSpec = None,
    retries: int = 2,
    timeout: float | None = None,
    retry_on: Raisable = (),
    escalate_memory: float = 1,
    resources: Resource | None = None,
    priority: int = 0,
    forward_logging: bool | None = None,
    **run: Unpack[RunKeywords],
) -> AsyncResultIterator[T]:
    """Return an asynchronous iterator over the results of `map`: `imap` for a task of asyncio or
    trio, `async for result in aimap(f, xs)`. Other tasks run while it waits. When its own task is
    cancelled, so are the calls.

    Arguments are taken, and pickled, in the loop's thread.

    Raises:
        TypeError: an iterable is an asynchronous one.
    """
    for one in iterables:
        if hasattr(type(one), "__aiter__"):
            raise TypeError(f"{one!r} is an asynchronous iterable: submit its items to an Executor")
    _check_keywords("aimap", run, progress)
    options = retries, timeout, retry_on, escalate_memory, resources, priority, forward_logging
    how = {"ordered": True, "progress": progress}
    results = _iterator(f, iterables, scheduler, reraise, chunksize, options, run, **how)
    from gridengine.api.map_results import AsyncResultIterator

    return AsyncResultIterator(results)


def partial(f: Callable[..., T], /, *args: Any, **kwargs: Any) -> functools.partial[T]:
    """Return a `functools.partial` that keeps `__doc__` and `__module__`, and whose `__name__`
    shows the values it closes over.

    `partial(train, 0.1, optimiser="Adam").__name__` is `train_0.1_Adam`. Such names are short and
    safe in file names.
    """
    made = functools.partial(f, *args, **kwargs)
    name = getattr(f, "__name__", type(f).__name__)
    parts = [name, *(_short(value) for value in (*args, *kwargs.values()))]
    vars(made).update(
        __name__="_".join(parts)[:100], __doc__=f.__doc__, __module__=getattr(f, "__module__", None)
    )
    return made


def _short(value: object) -> str:
    if value is PLACEHOLDER:
        return "_"
    if not isinstance(value, (str, int, float, complex, bytes, type(None))):
        value = getattr(value, "__name__", type(value).__name__)
    return re.sub(r"[^\w.+-]+", "-", str(value))[:24]


def _check_keywords(called: str, keywords: RunKeywords, progress: Any) -> None:
    """Check keywords that are seldom given.

    Raises:
        TypeError: there is no such keyword, or `progress` is not True, False, None or a bar.
    """
    if progress is not None:
        from gridengine.api.progress_displays import check_progress

        check_progress(progress)
    for name in keywords.keys() - RunKeywords.__annotations__.keys():
        from gridengine.client.options import unexpected_keyword

        otherwise = (
            f"it is an option of schedulers: scheduler=gridengine.ProcessScheduler({name}=...)"
            if name == "max_workers"
            else f"an argument for each call is given by functools.partial(f, {name}=...)"
        )
        known = {**(map.__kwdefaults__ or {}), **RunKeywords.__annotations__}
        raise unexpected_keyword(called, name, known, otherwise)


def _iterator(
    f: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    place: SchedulerSpec,
    reraise: bool,
    chunksize: int,
    options: tuple[Any, ...],
    run: RunKeywords,
    **how: Any,
) -> ResultIterator[Any]:
    """Return the iterator of `imap` and its kin; `how` are its own options."""
    form, calls = zipped(f, iterables)
    request = _request(f, form, place, reraise, chunksize, options, None, run)
    from gridengine.api.map_results import ResultIterator

    return ResultIterator(request, calls, total=length_of(iterables), **how)


def _request(
    f: Callable[..., Any],
    form: int,
    place: SchedulerSpec,
    reraise: bool,
    chunksize: int | None,
    options: tuple[Any, ...],
    total: int | None,
    run: RunKeywords,
) -> MapRequest:
    """Return the checked request of a user. Meanwhile workers of this machine begin to start; a
    scheduler that has yet to be made starts its workers when it is made.
    """
    if place is None:
        place = default_scheduler(total)
    elif isinstance(place, str):
        place = named_scheduler(place)
    if callable(f) and isinstance(place, Scheduler):
        place._prepare()
    from gridengine.client.options import CallOptions
    from gridengine.client.submission import MapRequest

    kept = run_options(run, map) if run else None
    return MapRequest(f, form, place, reraise, chunksize, CallOptions(*options), kept)
