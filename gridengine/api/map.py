"""Functions over many arguments: `map`, `starmap`, `imap`, `imap_unordered`, `aimap`, `partial`.

Imports little: workers on this machine start before the modules that send them calls are imported,
which takes as long.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from gridengine.call_context.current_call import GVAR
from gridengine.client.keywords_and_arguments import (
    SeededKeywords,
    argument_tuples,
    length_of,
    takes,
    unexpected_keyword,
    zipped,
)
from gridengine.errors import ConfigurationError, trim, trimmed
from gridengine.schedulers.base import Scheduler, SchedulerSpec
from gridengine.schedulers.default import default_scheduler, named_scheduler
from gridengine.serialize.payload import STAR

if TYPE_CHECKING:
    from gridengine.api.map_results import AsyncResultIterator, ResultIterator
    from gridengine.api.progress import ProgressSpec
    from gridengine.client.submission import MapRequest
    from gridengine.resources.base import Resource
    from gridengine.watching.notices import Notice

T = TypeVar("T")
PLACEHOLDER = getattr(functools, "Placeholder", object())
"""Stands for an argument that is given later, from Python 3.14 on; before, nothing equals it."""


class MapKeywords(SeededKeywords, total=False):
    """The keywords of `map` that `starmap`, `imap` and the others take too."""

    scheduler: SchedulerSpec
    reraise: bool
    progress: ProgressSpec
    initializer: Callable[..., object] | None
    initargs: Iterable[Any]
    max_workers: int | None


class ZipKeywords(MapKeywords, total=False):
    """The keywords of `imap` and its kin, which take several iterables."""

    strict: bool


@takes(SeededKeywords)
def map(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    chunksize: int | None = None,
    progress: ProgressSpec = None,
    initializer: Callable[..., object] | None = None,
    initargs: Iterable[Any] = (),
    max_workers: int | None = None,
    strict: bool = False,
    notify: str | Callable[[Notice], object] | None = None,
    **keywords: Unpack[SeededKeywords],
) -> list[T]:
    """Return `[f(x) for x in iterable]`. Workers make the calls, several at a time; several
    iterables are zipped.

    Args:
        scheduler: an instance (left open), or a class or callable that gives one (closed at the
            end); "processes", "grid_engine", "slurm" or "inline" is this process's own of that
            name, made once; None is the one that the setting `scheduler` names, else the best
            available; inside a call it is the scheduler that runs the call.
        reraise: whether to raise the exception of the first call that fails, in the order of the
            arguments, and cancel the calls after it. If False, each exception stands in the place
            of its call's result, and none is raised.
        chunksize: how many calls travel together; None: the shorter the calls, the more.
        progress: False shows no progress; None follows the setting. On a terminal and in a notebook
            it is a bar, after 2 s; else, after 10 s, lines on standard error, one for each tenth
            and one a minute at most. Or `tqdm`, or a bar like it, to be updated: an object with
            `update(n)`, or a callable that makes one, given `total=`.
        initializer, initargs: `initializer(*initargs)` is called once in each process that makes
            calls of this map, before the first. If it raises, the calls of that process fail with
            `concurrent.futures.process.BrokenProcessPool`.
        max_workers: how many calls run at a time, on a scheduler that is made for this map alone;
            for several maps an `Executor` keeps its processes. `processes` and `n_jobs` say the
            same, and `n_jobs=-1` says all cores, the default. Inside a call it has no effect.
        strict: iterables of different lengths are a `ValueError`, as of `zip`; by default the
            shortest one decides.
        notify: gets a message at the first call that fails, and at the end: a command line, or a
            callable; None follows the setting: see `docs/watching.md`.
        retries: how often a call is run again after its process died or after it raised one of
            `retry_on`. With 0 no call begins twice, whatever happens; each then costs some 50 µs
            more.
        timeout: the time that each call may take: seconds, or a text such as "30 min" or "2h"; None
            is no limit. A call over its time is not run again.
        retry_on: the exception classes after which a call is run again, such as `(OSError,)`; by
            default none.
        escalate_memory: with 2, a call that ran out of memory is run again with twice the memory;
            by default it fails at once.
        resources: the resources that each call needs, such as `Cores(4) & Memory(8)`, which also
            sets a memory limit of 8 GB: see `docs/resources.md`; or "as measured", what calls of
            the function needed in earlier runs.
        priority: calls with a higher one begin before others of this program that wait, strictly;
            those with the same (default 0) take turns.
        forward_logging: pass log records and warnings of calls to this process's own `logging` and
            `warnings`; None follows the setting: see `docs/watching.md`.
        seed: a whole number, a sequence of them or a `numpy.random.SeedSequence`: each call has a
            stream of random numbers of its own, `SeedSequence(seed, spawn_key=(number,))`, whatever
            the workers, chunks, retries and order. `random`, `numpy.random` and torch draw from it,
            and `gridengine.rng()` is its generator: see `docs/random.md`. By default, processes are
            seeded by chance.
        run: with `name="sweep"` results are stored on disk, and the same calls are not run again
            when the script is run again: see `docs/runs.md` for `journal=`, `resume=`,
            `retry_failed=`, `depends=`, `ignore=`, `max_age=` and `wait=`. Other keywords are an
            error: to pass a keyword to `f`, use `functools.partial(f, b=2)`.

    Raises:
        Exception: the failing call's own, with a `RemoteTraceback` as its `__cause__` and a note
        that names the call. Its `results`, as those of a `KeyboardInterrupt`, are the results so
        far: as with `reraise=False`, with `Cancelled` for each call that has not ended.
        CallError, ClusterError: the reason why the call could not end.
        PicklingError: the function, or an argument, cannot be pickled; the text names it.
    """
    try:
        form, calls = zipped(f, iterables, strict=strict)
        total, how = length_of(iterables), (chunksize, scheduler, reraise, progress)
        prepared = (initializer, initargs, max_workers, notify)
        request = _request("map", f, form, total, *how, *prepared, **keywords)
        from gridengine.api.map_results import gather

        return gather(request, calls, total, progress)
    except BaseException as error:
        trim(error)
        raise


@takes(MapKeywords)
@trimmed
def starmap(
    f: Callable[..., T],
    iterable: Iterable[Iterable[Any]],
    *_others: Any,
    chunksize: int | None = None,
    notify: str | Callable[[Notice], object] | None = None,
    **keywords: Unpack[MapKeywords],
) -> list[T]:
    """Return `[f(*args) for args in iterable]`; all else is as for `map`."""
    if _others:
        raise TypeError(
            "starmap takes one iterable, of tuples of arguments; for several iterables, each of "
            "one argument, write map(f, xs, ys)"
        )
    total = length_of([iterable])
    request = _request("starmap", f, STAR, total, chunksize, notify=notify, **keywords)
    from gridengine.api.map_results import gather

    return gather(request, argument_tuples(iterable), total, keywords.get("progress"))


@takes(ZipKeywords)
@trimmed
def imap(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    chunksize: int = 1,
    **keywords: Unpack[ZipKeywords],
) -> ResultIterator[T]:
    """Return an iterator over the results of `map`, in order, each as soon as it is there.

    The iterables may be infinite: arguments are read as results are taken, a bounded number ahead.
    A call that failed, or whose argument cannot be pickled, raises when its turn comes (a
    `StopIteration` as a `RuntimeError`), and the iterator goes on after it. An exception of the
    iterable itself is raised after all results of the calls before it. Close the iterator, leave
    its `with`, or drop it, and its calls are cancelled.
    """
    return _iterator("imap", f, iterables, chunksize, keywords, ordered=True)


@overload
def imap_unordered(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    with_index: Literal[True],
    chunksize: int = 1,
    **keywords: Unpack[ZipKeywords],
) -> ResultIterator[tuple[int, T]]: ...


@overload
def imap_unordered(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    with_index: Literal[False] = False,
    chunksize: int = 1,
    **keywords: Unpack[ZipKeywords],
) -> ResultIterator[T]: ...


@takes(ZipKeywords)
@trimmed
def imap_unordered(
    f: Callable[..., Any],
    *iterables: Iterable[Any],
    with_index: bool = False,
    chunksize: int = 1,
    **keywords: Unpack[ZipKeywords],
) -> ResultIterator[Any]:
    """Return an iterator over the results of `map` in the order in which they come; with
    `with_index`, over `(number of the call, result)`. All else is as for `imap`.
    """
    how = {"ordered": False, "with_index": with_index}
    return _iterator("imap_unordered", f, iterables, chunksize, keywords, **how)


@takes(ZipKeywords)
def aimap(
    f: Callable[..., T],
    *iterables: Iterable[Any],
    chunksize: int = 1,
    **keywords: Unpack[ZipKeywords],
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
    results = _iterator("aimap", f, iterables, chunksize, keywords, ordered=True)
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


def _iterator(
    called: str,
    f: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    chunksize: int,
    keywords: ZipKeywords,
    **how: bool,
) -> ResultIterator[Any]:
    """Return the iterator of `imap` and its kin; `how` are its own options."""
    form, calls = zipped(f, iterables, strict=keywords.pop("strict", False))
    mapped: MapKeywords = keywords
    request = _request(called, f, form, None, chunksize, **mapped)
    from gridengine.api.map_results import ResultIterator

    progress, total = keywords.get("progress"), length_of(iterables)
    return ResultIterator(request, calls, total=total, progress=progress, **how)


def _request(
    called: str,
    f: Callable[..., Any],
    form: int,
    total: int | None,
    chunksize: int | None,
    scheduler: SchedulerSpec = None,
    reraise: bool = True,
    progress: ProgressSpec = None,
    initializer: Callable[..., object] | None = None,
    initargs: Iterable[Any] = (),
    max_workers: int | None = None,
    notify: str | Callable[[Notice], object] | None = None,
    **keywords: Unpack[SeededKeywords],
) -> MapRequest:
    """Return the checked request of a user. Meanwhile workers of this machine begin to start; a
    scheduler that has yet to be made starts its workers when it is made.

    Raises:
        TypeError: there is no such keyword, or `progress` is not True, False, None or a bar, or
            `initializer` is not callable.
        TypeError, ConfigurationError: see `MapRequest`, `CallOptions` and `RunOptions`.
    """
    if progress is not None:
        from gridengine.api.progress import check_progress

        check_progress(progress)
    if notify is not None and called not in ("map", "starmap"):
        raise _unknown(called, "notify")
    first = None
    if initializer is not None:
        from gridengine.client.initializer import initializer_of

        first = initializer_of(initializer, initargs, most_calls=None)
    sizes: dict[str, Any] = {} if max_workers is None else {"max_workers": max_workers}
    for name in keywords.keys() - SeededKeywords.__annotations__.keys():
        if name not in SIZES:
            raise _unknown(called, name)
        sizes[name] = keywords.pop(name)  # type: ignore[misc]
    place = _of_size(scheduler, sizes) if sizes else scheduler
    if place is None:
        place = default_scheduler(total)
    elif isinstance(place, str):
        place = named_scheduler(place)
    is_plain = not keywords and GVAR.stream is None
    if callable(f) and isinstance(place, Scheduler):
        place._prepare()
        if place._starts_ahead and is_plain and total and called in ("map", "starmap"):
            from gridengine.client.connect import dispatcher_of
            from gridengine.display import function_name

            dispatcher_of(place, function_name(f))
    from gridengine.client.options import CallOptions, options_of
    from gridengine.client.submission import MapRequest

    if isinstance(asked := keywords.get("resources"), str):
        keywords["resources"] = _measured(asked, f)
    options, run = (CallOptions(), None) if is_plain else options_of(map, keywords)
    return MapRequest(
        f=f,
        form=form,
        scheduler=place,
        reraise=reraise,
        chunksize=chunksize,
        options=options,
        named_run=run,
        initializer=first,
        notify=notify,
    )


def _measured(asked: str, f: Callable[..., Any]) -> Resource:
    """Return what calls of a function need, as earlier runs have measured it.

    Raises:
        ConfigurationError: the user asks for something else.
    """
    from gridengine.display import function_name
    from gridengine.watching.measured import AS_MEASURED, measured

    if asked != AS_MEASURED:
        raise ConfigurationError(
            f"resources={asked!r} are none",
            hint=f'write Cores(4) & Memory(8), or "{AS_MEASURED}"',
        )
    return measured(function_name(f))


SIZES = "processes", "n_jobs"
"""Other libraries' words for `max_workers`: of `multiprocessing.Pool` and joblib."""


def _of_size(scheduler: SchedulerSpec, sizes: dict[str, Any]) -> SchedulerSpec:
    """Return a function that makes a scheduler for this many calls at a time. `sizes` has the
    number under the keyword that the user wrote: `max_workers`, or one of `SIZES`.

    Raises:
        TypeError, ConfigurationError: the user wrote two of them; or see `place_for`.
    """
    from gridengine.client.submitter import place_for

    (word, size), *others = sizes.items()
    if others:
        raise TypeError(f"{word} and {others[0][0]} mean the same: give one of them")
    return place_for(scheduler, None if (word, size) == ("n_jobs", -1) else size, word)


ELSEWHERE = {
    **dict.fromkeys(("workers", "n_workers"), "how many calls run at a time is max_workers="),
    "cores": "what each call needs is told by resources=gridengine.Cores(...)",
    "memory": "what each call needs is told by resources=gridengine.Memory(...), in GB",
    "gpus": "what each call needs is told by resources=gridengine.GPUs(...)",
    "with_index": "gridengine.imap_unordered takes it",
    "strict": "map, imap, imap_unordered and aimap take it",
    "notify": "map and starmap take it; `gridengine watch --notify` tells of other calls",
}
"""How to say what these keywords of other functions and libraries say."""


def _unknown(called: str, name: str) -> TypeError:
    """Return the error for a keyword that `map` and its kin do not take."""
    known = {*ZipKeywords.__annotations__, "chunksize"}
    if name not in ELSEWHERE:
        otherwise = f"an argument for each call is given by functools.partial(f, {name}=...)"
        return unexpected_keyword(called, name, known, otherwise)
    return unexpected_keyword(called, name, (), ELSEWHERE[name])
