"""Options of calls (timeout, retries, memory escalation, resources), and of a run with a name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, TypedDict

from msgspec import Struct
from msgspec.structs import force_setattr

from gridengine.dispatcher.core.tasks import MOST_PRIORITY, Task
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource, is_nothing
from gridengine.resources.demand import ANY, Demand
from gridengine.resources.units import MOST, flag, number, whole
from gridengine.serialize.payload import SINGLE, Payload
from gridengine.serialize.shared_objects import needs_of
from gridengine.settings.values import settings

Raisable: TypeAlias = type[BaseException] | Iterable[type[BaseException]]
"""An exception class, or several."""
RETRIES, ESCALATION = 2, 1
"""The defaults, which need no check."""


class CallOptions(Struct, frozen=True):
    """What `map`, `Job` and the others take as keywords, checked.

    Args:
        retries: how often a call is run again that its surroundings killed, or that raised one of
            `retry_on`.
        timeout: the seconds that each run of a call may take; None is no limit.
        retry_on: exception classes; a call that raises an instance of one is run again.
        escalate_memory: by how much a call's memory is multiplied when it is run again because it
            ran out of it. Without, a `MemoryError` is raised at once.
        resources: what a call needs, as `Cores(2) & Memory(0.5)`: `Memory` is its limit too, in GB,
        and `WTime` one of time.
        priority: of one program's calls that wait, those with a higher one begin first.
        forward_logging: whether what calls say by `logging` and `warnings` comes to the caller's;
            None is as the setting says.

    Raises:
        TypeError, ConfigurationError: one is of another type, or out of its range; the text names
        it.
    """

    retries: int = RETRIES
    timeout: float | None = None
    retry_on: Raisable = ()
    escalate_memory: float = ESCALATION
    resources: Resource | None = None
    priority: int = 0
    forward_logging: bool | None = None
    demand: Demand = ANY
    """What is asked of a worker: it follows from `resources`."""
    exceptions: tuple[type[BaseException], ...] = ()
    """The classes of `retry_on`."""
    logs: bool = False
    """Whether what calls log comes to the caller's own loggers, by `forward_logging` or the
    setting.
    """

    def __post_init__(self) -> None:
        if self.retries is not RETRIES:
            whole("retries", self.retries, least=0)
        if self.timeout is not None:
            number("timeout", self.timeout, hint=f"seconds, at most {MOST:,}; None is no limit")
        if self.escalate_memory is not ESCALATION:
            number("escalate_memory", self.escalate_memory, least=1)
        if self.priority != 0:
            priority = whole("priority", self.priority, least=-MOST_PRIORITY, most=MOST_PRIORITY)
            force_setattr(self, "priority", priority)
        said = self.forward_logging
        logs = settings().forward_logging if said is None else flag("forward_logging", said)
        force_setattr(self, "logs", logs)
        exceptions = () if self.retry_on == () else _classes(self.retry_on)
        force_setattr(self, "exceptions", exceptions)
        demand = ANY
        if self.resources is not None:
            if not isinstance(self.resources, Resource):
                raise TypeError(
                    f"resources must be resources, as Memory(0.5), not {self.resources!r}"
                )
            if not is_nothing(self.resources):
                demand = Demand(self.resources)
        force_setattr(self, "demand", demand)

    def task(
        self, id: int, payload: Payload, count: int = 1, form: int = SINGLE, **more: Any
    ) -> Task:
        """Return calls as they travel, within these limits."""
        return Task(
            id,
            payload,
            count,
            form,
            self.retries,
            self.timeout,
            escalate_memory=float(self.escalate_memory),
            demand=self.demand,
            needs=needs_of(payload),
            priority=self.priority,
            **more,
        )


def given(**options: Any) -> dict[str, Any]:
    """Return those that are not None, which stands for what somebody else says, or for the default.

    Raises:
        TypeError, ConfigurationError: as `CallOptions`.
    """
    said = {name: value for name, value in options.items() if value is not None}
    CallOptions(**said)
    return said


def unexpected_keyword(called: str, name: str, known: Iterable[str], otherwise: str) -> TypeError:
    """Return the error of a keyword that is none of those known: the text names one that is much
    like it, or says something else.
    """
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else otherwise
    return TypeError(f"{called}() got an unexpected keyword argument {name!r}; {hint}")


def _classes(retry_on: Any) -> tuple[type[BaseException], ...]:
    several = isinstance(retry_on, Iterable) and not isinstance(retry_on, (type, str))
    classes = tuple(retry_on) if several else (retry_on,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(f"retry_on must be exception classes, as (OSError,), not {one!r}")
    return classes


Resume: TypeAlias = bool | Literal["anyway"]


class RunKeywords(TypedDict, total=False):
    """What all that make many calls take as keywords for a run with a name."""

    name: str | None
    journal: str | os.PathLike[str] | None
    resume: Resume
    retry_failed: bool
    wait: bool


class RunOptions(Struct, frozen=True):
    """`RunKeywords`, checked: see `docs/runs.md`.

    Raises:
        TypeError, ConfigurationError: one of them is none of what it may be.
    """

    name: str
    journal: str | os.PathLike[str] | None = None
    resume: Resume = True
    retry_failed: bool = True
    wait: bool = False
    places: tuple[tuple[int, int], ...] | None = None
    """Of calls that are made again, where they are kept: the block, and the number there."""

    def __post_init__(self) -> None:
        if not (isinstance(self.resume, bool) or self.resume == "anyway"):  # 0 would be False
            raise ConfigurationError(f'resume must be True, False or "anyway", not {self.resume!r}')
        flag("retry_failed", self.retry_failed)
        flag("wait", self.wait)


def run_options(keywords: RunKeywords, called: Callable[..., object]) -> RunOptions | None:
    """Return what these keywords, which `called` was given, say; None without a name.

    Raises:
        TypeError, ConfigurationError: as `RunOptions`; or they say more, without a name.
    """
    for unknown in keywords.keys() - RunKeywords.__annotations__.keys():
        import inspect

        known = [*inspect.signature(called).parameters, *RunKeywords.__annotations__]
        listed = f"help(gridengine.{called.__name__}) lists what it takes"
        raise unexpected_keyword(called.__name__, unknown, known, listed)
    if keywords.get("name") is not None:
        return RunOptions(**keywords)  # type: ignore[arg-type]
    if said := [word for word, value in keywords.items() if value is not None]:
        raise ConfigurationError(
            f"{said[0]}= is about a run with a name, and there is none", hint="give it name="
        )
    return None
