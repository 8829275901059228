"""`delayed`: functions whose calls are submitted when they are made, and return a value that can be
calculated with before it exists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, overload
from weakref import WeakKeyDictionary

from gridengine.api.delayed_value import Delayed
from gridengine.api.executor import Executor
from gridengine.arguments import whole
from gridengine.client.loop_tasks import start_task
from gridengine.client.options import Raisable, given
from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.schedulers import current_scheduler
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.expressions import Operation
from gridengine.worker.coroutines import is_coroutine_function


class Program:
    """Where the calls of a program go: an executor, and variants of it for other resources and
    options. The variants are kept only here, so that they go with the program.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._of_functions: WeakKeyDictionary[DelayedFunction, Executor] = WeakKeyDictionary()
        self._asking = functools.lru_cache(maxsize=64)(
            lambda resources: executor.with_options(resources=resources)
        )

    def asking(self, resources: Any) -> Executor:
        """Return the executor whose calls request these resources.

        Raises:
            TypeError, ConfigurationError: no worker can give them, or they are none.
        """
        if resources is None:
            return self._executor
        if not isinstance(resources, Resource):  # and may have no hash
            return self._executor.with_options(resources=resources)
        return self._asking(resources)

    def executor_of(self, function: DelayedFunction) -> Executor:
        """Return the executor with the options of a delayed function."""
        found = self._of_functions.get(function)
        if found is None:
            found = self._executor.with_options(**function._options)
            self._of_functions[function] = found
        return found


CURRENT: ContextVar[Program | None] = ContextVar("gridengine_program", default=None)
"""The program that calls of delayed functions go to, if one is set."""


def current_program() -> Program:
    """Return the program that calls of delayed functions go to."""
    return CURRENT.get() or _default_program(current_scheduler())


@functools.lru_cache(maxsize=4)
def _default_program(scheduler: Scheduler) -> Program:
    return Program(Executor(scheduler=scheduler))


class DelayedFunction:
    """A function whose calls are submitted when they are made, and return a `Delayed`. Made by
    `delayed`.

    `f @ resources` is another such function, whose calls request these resources. An `async def`
    without resources runs in the event loop of its caller, and gets a `Delayed` among its arguments
    unchanged.
    """

    __name__: str
    __qualname__: str
    _submits_itself = "write [f(x) for x in xs], or map the function that `delayed` was given"

    def __init__(
        self, function: Callable[..., Any], nout: int | None, options: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._nout = nout
        self._options = options
        self._in_loop = "resources" not in options and is_coroutine_function(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Delayed:
        if self._in_loop:
            future = start_task(self._function, *args, **kwargs)
        else:
            future = current_program().executor_of(self).submit(self._function, *args, **kwargs)
        return Delayed(Operation(None, (future,)), self._nout)

    def __matmul__(self, resources: Resource) -> DelayedFunction:
        if not isinstance(resources, Resource):
            return NotImplemented
        said = self._options.get("resources")
        if said is not None:
            for kind in map(type, said):
                if resources.get(kind) is not None:
                    raise ConfigurationError(
                        f"{self._function.__qualname__} asks for {said} already, and "
                        f"{resources} says {kind.__name__} again",
                        hint="say each kind once: in delayed(resources=...), or with @ at the call",
                    )
            resources = said & resources
        return DelayedFunction(
            self._function, self._nout, {**self._options, "resources": resources}
        )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind like a function, so that it works as a method."""
        if instance is None:
            return self
        return DelayedFunction(self._function.__get__(instance, owner), self._nout, self._options)

    def __reduce__(self) -> Any:
        return DelayedFunction, (self._function, self._nout, self._options)

    def __repr__(self) -> str:
        return f"<delayed {self._function!r}>"


@overload
def delayed(function: Callable[..., Any], /) -> DelayedFunction: ...
@overload
def delayed(
    *,
    nout: int | None = None,
    resources: Resource | None = None,
    retries: int | None = None,
    timeout: float | None = None,
    retry_on: Raisable | None = None,
    escalate_memory: float | None = None,
    priority: int | None = None,
    forward_logging: bool | None = None,
) -> Callable[[Callable[..., Any]], DelayedFunction]: ...
def delayed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    nout: int | None = None,
    resources: Resource | None = None,
    retries: int | None = None,
    timeout: float | None = None,
    retry_on: Raisable | None = None,
    escalate_memory: float | None = None,
    priority: int | None = None,
    forward_logging: bool | None = None,
) -> Any:
    """Return a function whose calls are submitted when they are made, and return a `Delayed`. Use
    it as a decorator, with or without arguments, or on an existing function.

    Args:
        nout: how many results it returns, if these are to be unpacked before they exist.
        resources, retries, timeout, retry_on, escalate_memory, priority, forward_logging: as for
            `gridengine.map`.

    Raises:
        TypeError, ConfigurationError: an argument is of another type, or out of its range.
    """
    if nout is not None:
        whole("nout", nout, least=0)
    options = given(
        resources=resources,
        retries=retries,
        timeout=timeout,
        retry_on=retry_on,
        escalate_memory=escalate_memory,
        priority=priority,
        forward_logging=forward_logging,
    )

    def make(function: Callable[..., Any]) -> DelayedFunction:
        if not callable(function):
            raise TypeError(f"delayed takes a function, not {function!r}; see delayedval")
        return DelayedFunction(function, nout, options)

    return make if function is None else make(function)
