"""The keywords of calls and of named runs that users write, with their names and defaults, and the
arguments of many calls.

Imports little: `map` is imported before a scheduler starts its workers. `options`, which checks the
values of the keywords, is imported while the workers start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from gridengine.arguments import flag
from gridengine.errors import short_repr
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.payload import SINGLE, STAR

if TYPE_CHECKING:
    import os
    from inspect import Signature

    from gridengine.arguments import Seconds
    from gridengine.call_context.random_streams import SeedSpec
    from gridengine.resources.base import Resource

Raisable: TypeAlias = type[BaseException] | Iterable[type[BaseException]]
"""An exception class, or several."""
RETRIES, ESCALATION = 2, 1
"""The defaults, which need no check."""
DEFAULTS: Mapping[str, Any] = {
    "retries": RETRIES,
    "retry_on": (),
    "escalate_memory": ESCALATION,
    "priority": 0,
    "reraise": True,
    "initargs": (),
}
"""The defaults of keywords; others are None."""
F = TypeVar("F", bound=Callable[..., Any])

Resume: TypeAlias = bool | Literal["anyway"]


class RunKeywords(TypedDict, total=False):
    """The keywords for a named run, which everything that makes many calls takes."""

    name: str | None
    journal: str | os.PathLike[str] | None
    resume: Resume
    retry_failed: bool
    wait: bool
    depends: Any
    ignore: str | Iterable[str]
    max_age: Seconds | None


class CallKeywords(TypedDict, total=False):
    """The options of calls; `gridengine.map` says what they mean."""

    retries: int
    timeout: Seconds | None
    retry_on: Raisable
    escalate_memory: float
    resources: Resource | Literal["as measured"] | None
    priority: int
    forward_logging: bool | None


class CallChanges(TypedDict, total=False):
    """The options of calls; None stands for a value that is given elsewhere, or the default."""

    retries: int | None
    timeout: Seconds | None
    retry_on: Raisable | None
    escalate_memory: float | None
    resources: Resource | None
    priority: int | None
    forward_logging: bool | None


class CallAndRunKeywords(CallKeywords, RunKeywords, total=False):
    """The options of calls and of a named run."""


class SeededKeywords(CallAndRunKeywords, total=False):
    """The keywords of numbered calls."""

    seed: SeedSpec


class SeededChanges(CallChanges, total=False):
    """The options of numbered calls, each of which may be None."""

    seed: SeedSpec


class JobKeywords(CallChanges, RunKeywords, total=False):
    """The options of jobs and of a named run."""


def takes(keywords: Any, defaults: Mapping[str, Any] = DEFAULTS) -> Callable[[F], F]:
    """Return a decorator for a function whose `**` has the type `Unpack[keywords]`. Its signature,
    as `inspect.signature` and `help` show it, has each keyword with its default. The keywords of
    named runs stay together, as `**run`.
    """

    def with_signature(f: F) -> F:
        vars(f)["__wrapped__"] = _Shown(getattr(f, "__wrapped__", f), keywords, defaults)
        return f

    return with_signature


class _Shown:
    """Stands between a function and its code for those who look at the function: `inspect` takes
    the signature from here. It is made when it is asked for, because importing `inspect` takes as
    long as importing half of this package.
    """

    def __init__(self, f: Any, keywords: Any, defaults: Mapping[str, Any]) -> None:
        self.__wrapped__ = FunctionType(
            f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__
        )
        self.__wrapped__.__kwdefaults__ = f.__kwdefaults__
        self.__wrapped__.__annotations__ = f.__annotations__
        self._keywords, self._defaults = keywords.__annotations__, defaults

    # CPython 3.13.5 finds it in the place of an `__init__`, and wants to bind and call it.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: object, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property
    def __signature__(self) -> Signature:
        import inspect

        shown = inspect.signature(self.__wrapped__)
        own = [
            one
            for one in shown.parameters.values()
            if one.kind is not one.VAR_KEYWORD and not one.name.startswith("_")
        ]
        own += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=self._defaults.get(name),
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in self._keywords.items()
            if name not in RunKeywords.__annotations__
        ]
        if "journal" in self._keywords:
            run = inspect.Parameter.VAR_KEYWORD
            own.append(inspect.Parameter("run", run, annotation="Unpack[RunKeywords]"))
        own.sort(key=lambda one: one.kind)
        return shown.replace(parameters=own)


def unexpected_keyword(called: str, name: str, known: Iterable[str], otherwise: str) -> TypeError:
    """Return the error for an unknown keyword, which names a similar one, or says `otherwise`."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else otherwise
    return TypeError(f"{called}() got an unexpected keyword argument {name!r}; {hint}")


def check_function(f: object) -> None:
    """Check a function whose calls are to be submitted.

    Raises:
        TypeError: it is not callable, or submits its calls by itself (`delayed`).
    """
    if not callable(f):
        raise TypeError(
            f"{short_repr(f)} is not callable: give the function first, and its arguments after it"
        )
    if (remedy := getattr(type(f), "_submits_itself", None)) is not None:
        raise TypeError(f"{short_repr(f)} submits its calls by itself: {remedy}")


def is_iterable(value: object) -> bool:
    """Return whether `iter` takes this value; a class with `__getitem__` alone is iterable too."""
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")


def zipped(
    f: Callable[..., Any], iterables: Sequence[Iterable[Any]], *, strict: bool = False
) -> tuple[int, Iterator[Any]]:
    """Return the calls that these iterables make together: their form, and an iterator over their
    arguments.

    Raises:
        TypeError: one of them is not iterable; the text says which.
        ValueError: with `strict`, one has another length than the first; the iterator raises it
            where an iterable has no length.
    """
    if not iterables:
        raise TypeError(f"nothing to call {f!r} with: at least one iterable is needed")
    for one in iterables[1:]:
        if isinstance(one, Scheduler) or (isinstance(one, type) and issubclass(one, Scheduler)):
            raise TypeError(f"a scheduler is given by name, scheduler={short_repr(one)}")
    try:
        iterators = list(map(iter, iterables))
    except TypeError:
        for one in iterables:
            if not is_iterable(one):
                check_function(f)  # the function may stand behind its arguments
                raise TypeError(
                    f"{short_repr(one)} is not iterable: give an iterable with the argument of "
                    "each call; a list with one element makes one call"
                ) from None
        raise
    if strict and flag("strict", strict) and all(isinstance(one, Sized) for one in iterables):
        first, *others = map(len, iterables)  # type: ignore[arg-type]
        for number, length in enumerate(others, 2):
            if length != first:
                from gridengine.display import plural  # not needed to start a map

                other = "shorter" if length < first else "longer"
                raise ValueError(
                    f"strict=True, and argument {number} has {plural(length, 'element')}: {other} "
                    f"than argument 1 with {first:,}"
                )
    return (SINGLE, iterators[0]) if len(iterators) == 1 else (STAR, zip(*iterators, strict=strict))


def argument_tuples(iterable: Iterable[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of each call of a `starmap`.

    Raises:
        TypeError: an element is not iterable; the text says which.
    """
    for index, element in enumerate(iterable):
        try:
            arguments = iter(element)
        except TypeError:
            shown = short_repr(element)
            raise TypeError(
                f"starmap takes tuples of arguments, and element {index} of the iterable is "
                f"{shown}; for calls with one argument each use map, or ({shown},)"
            ) from None
        yield element if type(element) is tuple else tuple(arguments)


def length_of(iterables: Sequence[Iterable[Any]]) -> int | None:
    """Return how many calls there will be; None if that is unknown."""
    try:
        return min(map(len, iterables))  # type: ignore[arg-type]
    except TypeError:  # no length; an array without dimensions raises too
        return None
