"""Options of calls: timeout, retries, memory escalation, resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from gridengine.dispatcher.core.tasks import MOST_PRIORITY, Task
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
