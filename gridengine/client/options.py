"""The options of calls (timeout, retries, memory escalation, resources) and of named runs, checked.
`keywords_and_arguments` has their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from gridengine.arguments import MOST, flag, number, parse_seconds, text, whole
from gridengine.call_context.current_call import GVAR
from gridengine.client.keywords_and_arguments import (
    ESCALATION,
    RETRIES,
    CallChanges,
    CallKeywords,
    Raisable,
    Resume,
    RunKeywords,
    SeededKeywords,
    unexpected_keyword,
)
from gridengine.errors import ConfigurationError
from gridengine.requests import MOST_PRIORITY
from gridengine.resources.base import Resource, is_nothing
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import check_resources
from gridengine.settings.values import settings


class CallOptions(Struct, frozen=True):
    """The keywords of `map`, `Job` and the others, checked; `map` says what they mean. From then on
    `timeout` is in seconds, and `seed` is a `random_streams.Seed`.

    Raises:
        TypeError, ConfigurationError: an option has another type, or is out of its range; the text
            names it.
    """

    retries: int = RETRIES
    timeout: Any = None
    retry_on: Raisable = ()
    escalate_memory: float = ESCALATION
    resources: Resource | None = None
    priority: int = 0
    forward_logging: bool | None = None
    seed: Any = None
    demand: Demand = ANY
    """The demand of the calls; it follows from `resources`."""
    exceptions: tuple[type[BaseException], ...] = ()
    """The classes of `retry_on`."""
    logs: bool = False
    """Whether calls' log records go to the caller's loggers, by `forward_logging` or setting."""

    def __post_init__(self) -> None:
        if self.retries is not RETRIES:
            whole("retries", self.retries, least=0)
        if self.timeout is not None:
            hint = f"seconds, at most {MOST:,}; None is no limit"
            force_setattr(self, "timeout", parse_seconds("timeout", self.timeout, hint=hint))
        if self.escalate_memory is not ESCALATION:
            hint = "2: a call that ran out of memory runs again with twice as much; 1: it fails"
            number("escalate_memory", self.escalate_memory, least=1, hint=hint)
        if self.priority != 0:
            priority = whole("priority", self.priority, least=-MOST_PRIORITY, most=MOST_PRIORITY)
            force_setattr(self, "priority", priority)
        said = self.forward_logging
        logs = settings().forward_logging if said is None else flag("forward_logging", said)
        force_setattr(self, "logs", logs)
        if self.seed is not None:
            from gridengine.call_context.random_streams import seed_of  # few need it

            force_setattr(self, "seed", seed_of(self.seed))
        exceptions = () if self.retry_on == () else _classes(self.retry_on)
        force_setattr(self, "exceptions", exceptions)
        demand = ANY
        if self.resources is not None:
            check_resources("resources", self.resources)
            if not is_nothing(self.resources):
                demand = Demand(self.resources)
        force_setattr(self, "demand", demand)


def given(
    called: Callable[..., object], options: CallChanges, keywords: Any = CallChanges
) -> dict[str, Any]:
    """Return the options that `called` was given, without those that are None: None stands for the
    default, or for a value from elsewhere. `keywords` is the type of all possible options.

    Raises:
        TypeError, ConfigurationError: there is no such option; or see `CallOptions`.
    """
    _check_names(called, options, keywords)
    said = {name: value for name, value in options.items() if value is not None}
    CallOptions(**said)  # type: ignore[arg-type]
    return said


def call_options(called: Callable[..., object], options: CallKeywords) -> CallOptions:
    """Return the options of calls that `called` was given.

    Raises:
        TypeError, ConfigurationError: there is no such option; or see `CallOptions`.
    """
    _check_names(called, options, CallKeywords)
    return CallOptions(**options)  # type: ignore[arg-type]  # a text is refused there


def options_of(
    called: Callable[..., object], keywords: SeededKeywords
) -> tuple[CallOptions, RunOptions | None]:
    """Return the options of calls, and those of a named run or None, in the keywords that `called`
    was given. In a call that has a stream of random numbers, the calls get seeds from it.

    Raises:
        TypeError, ConfigurationError: see `CallOptions` and `run_options`.
    """
    run: Any = {**keywords}
    names = *CallKeywords.__annotations__, "seed"
    calls = {name: run.pop(name) for name in names if name in run}
    if calls.get("seed") is None and (stream := GVAR.stream) is not None:
        calls["seed"] = stream.spawn()
    return CallOptions(**calls), run_options(run, called)


def _check_names(called: Callable[..., object], said: Mapping[str, Any], keywords: Any) -> None:
    """Check that all names are among these; the error names a similar parameter of `called`."""
    for unknown in said.keys() - keywords.__annotations__.keys():
        import inspect

        known = {*inspect.signature(called).parameters, *keywords.__annotations__} - {"self"}
        listed = f"help(gridengine.{called.__qualname__}) lists what it takes"
        raise unexpected_keyword(called.__name__, unknown, known, listed)


def _classes(retry_on: Any) -> tuple[type[BaseException], ...]:
    several = isinstance(retry_on, Iterable) and not isinstance(retry_on, (type, str))
    classes = tuple(retry_on) if several else (retry_on,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(f"retry_on must be exception classes, such as (OSError,), not {one!r}")
    return classes


class RunOptions(Struct, frozen=True):
    """`RunKeywords`, checked: see `docs/runs.md`.

    Raises:
        TypeError, ConfigurationError: a keyword has a value that it cannot have.
    """

    name: str
    journal: str | os.PathLike[str] | None = None
    resume: Resume = True
    retry_failed: bool = True
    wait: bool = False
    depends: Any = ()
    ignore: Any = ()
    max_age: Any = None
    places: tuple[tuple[int, int], ...] | None = None
    """For calls that are made again, their places in the run's file: the block, and the index
    there.
    """

    def __post_init__(self) -> None:
        # `in` would take 0 for False.
        if not (isinstance(self.resume, bool) or self.resume == "anyway"):
            raise ConfigurationError(f'resume must be True, False or "anyway", not {self.resume!r}')
        flag("retry_failed", self.retry_failed)
        flag("wait", self.wait)
        force_setattr(self, "depends", _several(self.depends))
        force_setattr(self, "ignore", _names(self.ignore))
        if self.max_age is not None:
            hint = "seconds, or a datetime.timedelta; None is no limit"
            force_setattr(self, "max_age", parse_seconds("max_age", self.max_age, hint=hint))


def _several(depends: Any) -> tuple[Any, ...]:
    if depends is None:
        return ()
    return tuple(depends) if isinstance(depends, (list, tuple)) else (depends,)


def _names(ignore: Any) -> tuple[str, ...]:
    if ignore is None:
        return ()
    names = (ignore,) if isinstance(ignore, str) or not isinstance(ignore, Iterable) else ignore
    return tuple(text("ignore", one) for one in names)


def run_options(keywords: RunKeywords, called: Callable[..., object]) -> RunOptions | None:
    """Return the options in these keywords, which `called` was given; None without a name.

    Raises:
        TypeError, ConfigurationError: see `RunOptions`; or there are other keywords without a name.
    """
    _check_names(called, keywords, RunKeywords)
    if keywords.get("name") is not None:
        return RunOptions(**keywords)  # type: ignore[arg-type]
    if said := [word for word, value in keywords.items() if value is not None]:
        raise ConfigurationError(
            f"{said[0]}= is for a named run, and name= is missing", hint="give name= too"
        )
    return None
