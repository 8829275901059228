"""`delayed`: functions whose calls are submitted when they are made, and return a `Delayed`: a
value that can be calculated with before it exists.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Generator, Iterator, Set
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, NoReturn, Unpack, overload
from weakref import WeakKeyDictionary

from gridengine.api.executor import Executor
from gridengine.arguments import flag, whole
from gridengine.call_context.coroutines import is_coroutine_function
from gridengine.call_context.current_call import in_event_loop
from gridengine.client.future import CallFuture
from gridengine.client.keywords_and_arguments import CallChanges, takes
from gridengine.client.loop_tasks import start_task, value_of
from gridengine.client.options import given
from gridengine.errors import ConfigurationError, short_repr
from gridengine.resources.base import Resource
from gridengine.schedulers import current_scheduler
from gridengine.schedulers.base import Scheduler
from gridengine.serialize.expressions import (
    Operation,
    compute,
    gather,
    instructions_of,
    text_of,
    with_fields,
)

CONTAINERS = (list, tuple, set, frozenset)
ITERATED: tuple[type, ...] = (*CONTAINERS, range, type({}.keys()), type({}.values()))
"""A single argument of one of these types stands for the values in it."""


def operation_of(value: Any) -> Any:
    """Return the operation for a `Delayed`, or for a list, tuple, set, dictionary, slice, named
    tuple or dataclass that contains one; any other value unchanged.
    """
    kind = type(value)
    if kind is Delayed:
        return value._operation
    if kind is dict:
        parts = [operation_of((key, item)) for key, item in value.items()]
        return _gathered(dict, parts, value)
    if kind in CONTAINERS:
        return _gathered(kind, list(map(operation_of, value)), value)
    if kind is slice:
        bounds = tuple(map(operation_of, (value.start, value.stop, value.step)))
        return Operation(slice, bounds) if any(type(one) is Operation for one in bounds) else value
    if isinstance(value, tuple) and hasattr(kind, "_make"):
        return _gathered(kind._make, list(map(operation_of, value)), value)
    if hasattr(kind, "__dataclass_fields__"):
        return _with_fields(value)
    return value


def _gathered(kind: Callable[[Any], Any], parts: list[Any], value: Any) -> Any:
    if not any(type(part) is Operation for part in parts):
        return value
    return Operation(gather, (kind, *parts))


def _with_fields(value: Any) -> Any:
    """Return the operation for a dataclass. Dataclasses may refer to each other in a circle: one
    that is met again inside itself is left unchanged.
    """
    within = _WITHIN.get()
    if id(value) in within:
        return value
    token = _WITHIN.set({*within, id(value)})
    try:
        names = [name for name in type(value).__dataclass_fields__ if hasattr(value, name)]
        fields = {name: operation_of(getattr(value, name)) for name in names}
    finally:
        _WITHIN.reset(token)
    found = {name: one for name, one in fields.items() if type(one) is Operation}
    return Operation(with_fields, (value, tuple(found), *found.values())) if found else value


_WITHIN: ContextVar[Set[int]] = ContextVar("gridengine_within", default=frozenset())


def _delayed(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Delayed:
    return Delayed(
        Operation(
            function,
            tuple(map(operation_of, arguments)),
            {name: operation_of(value) for name, value in keywords.items()},
        )
    )


def _operator(function: Callable[..., Any]) -> Callable[..., Delayed]:
    def method(self: Delayed, *others: Any) -> Delayed:
        return _delayed(function, self, *others)

    return method


def _operators(
    function: Callable[[Any, Any], Any],
) -> tuple[Callable[..., Delayed], Callable[..., Delayed]]:
    """Return the method of a binary operator, and its reflected form."""

    def reflected(self: Delayed, other: Any) -> Delayed:
        return _delayed(function, other, self)

    return _operator(function), reflected


def _with_item(container: Any, key: Any, value: Any) -> Any:
    """Return a copy of a container with an item set."""
    return _set_item(copy.copy(container), key, value)


def _set_item(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


class Delayed:
    """A future value: the result of a call of a delayed function, or a value that is computed from
    such results by operators, indexing, attributes, methods and calls. All of these return another
    `Delayed`.

    Operators make no call of their own. They are applied where the value goes: in this process by
    `result()`, or in the call that gets this as an argument.

    Items may be set; items that were taken before do not change. Attributes cannot be set. Truth,
    `in` and, without a length, iteration need the value: take `result()`.
    """

    __slots__ = ("__weakref__", "_copy_on_setitem", "_length", "_operation")
    _not_pickled = (
        "leave out of it what cannot be pickled",
        "return its result(), as in `return f(x).result()`; a delayed function is handed in "
        "by calling it, and where others are to call it, as in a map, give its `__wrapped__`",
    )
    _refused = "it stands for calls that were made in this process, and is known here alone"
    _copy_on_setitem: bool
    _length: int | None
    _operation: Operation

    def __init__(
        self, operation: Operation, length: int | None = None, copy_on_setitem: bool = True
    ) -> None:
        set_slot = object.__setattr__
        set_slot(self, "_operation", operation)
        set_slot(self, "_length", length)
        set_slot(self, "_copy_on_setitem", copy_on_setitem)

    def result(self, timeout: float | None = None) -> Any:
        """Return the value, waiting up to `timeout` seconds for each result that it is made of.

        Raises:
            TimeoutError: a result has not come by then.
            Exception: the exception of a call or an operator.
        """

        def resolve(value: Any) -> Any:
            if not isinstance(value, Future):
                return value
            if not (isinstance(value, CallFuture) or value.done()) and in_event_loop():
                raise RuntimeError(
                    "result() would wait for ever for a task of this same event loop: await it"
                )
            return value.result(timeout)

        return compute(instructions_of(self._operation), resolve)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a task of asyncio or trio for the same value as `result` returns."""
        return self._value().__await__()

    async def _value(self) -> Any:
        instructions = instructions_of(self._operation)
        leaves = [arguments[0] for function, arguments, *_ in instructions if function is None]
        futures = [leaf for leaf in leaves if isinstance(leaf, Future)]
        values = {id(future): await value_of(future) for future in futures}
        return compute(instructions, lambda leaf: values.get(id(leaf), leaf))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the future value itself: unpickling computes it."""
        return compute, (instructions_of(self._operation),)

    def __copy__(self) -> Delayed:
        return Delayed(self._operation, self._length, self._copy_on_setitem)

    def __deepcopy__(self, memo: object) -> Delayed:
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<Delayed: {text_of(self._operation, _leaf_text)}>"

    # Operations that make another `Delayed`

    __add__, __radd__ = _operators(operator.add)
    __sub__, __rsub__ = _operators(operator.sub)
    __mul__, __rmul__ = _operators(operator.mul)
    _matmul, __rmatmul__ = _operators(operator.matmul)
    __truediv__, __rtruediv__ = _operators(operator.truediv)
    __floordiv__, __rfloordiv__ = _operators(operator.floordiv)
    __mod__, __rmod__ = _operators(operator.mod)
    __divmod__, __rdivmod__ = _operators(divmod)
    __lshift__, __rlshift__ = _operators(operator.lshift)
    __rshift__, __rrshift__ = _operators(operator.rshift)
    __and__, __rand__ = _operators(operator.and_)
    __or__, __ror__ = _operators(operator.or_)
    __xor__, __rxor__ = _operators(operator.xor)
    __pow__, __rpow__ = _operators(pow)
    __eq__ = _operator(operator.eq)  # type: ignore[assignment]
    __ne__ = _operator(operator.ne)  # type: ignore[assignment]
    __lt__, __le__ = _operator(operator.lt), _operator(operator.le)
    __gt__, __ge__ = _operator(operator.gt), _operator(operator.ge)
    __neg__, __pos__, __abs__ = _operator(operator.neg), _operator(operator.pos), _operator(abs)
    __invert__, __round__ = _operator(operator.invert), _operator(round)
    __floor__, __ceil__ = _operator(math.floor), _operator(math.ceil)
    __trunc__ = _operator(math.trunc)
    __getitem__ = _operator(operator.getitem)
    __hash__ = object.__hash__

    def __call__(self, *args: Any, **kwargs: Any) -> Delayed:
        return _delayed(operator.call, self, *args, **kwargs)

    def __getattr__(self, name: str) -> Delayed:
        if name.startswith("_"):
            raise AttributeError(
                f"{name} of a value that is not there yet: only names without a leading "
                "underscore can be had before; take result()"
            )
        if name == "add_done_callback":  # asyncio.wait would wait for ever
            raise AttributeError(
                "a value that is not there yet is not a future: await it, or take "
                "asyncio.ensure_future() of it"
            )
        if name == "compute":  # dask's word; as an attribute it would be found missing much later
            raise AttributeError(
                "a value that is not there yet has no compute(): take its result(); for a method "
                "of that name of the value itself, write result().compute()"
            )
        return _delayed(getattr, self, name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Delayed:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        return _delayed(function, *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Delayed:
        return _delayed(function, *args, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        put: Callable[..., Any] = _with_item if self._copy_on_setitem else _set_item
        object.__setattr__(self, "_operation", _delayed(put, self, key, value)._operation)

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(
                "the length of a value that is not there yet: say nout= to delayed, or length= to "
                "delayedval, or take result()"
            )
        return self._length

    def __iter__(self) -> Iterator[Delayed]:
        return iter([self[index] for index in range(len(self))])

    def __matmul__(self, other: Any) -> Delayed:
        if isinstance(other, Resource):
            raise TypeError(
                "this call has been made: resources belong to its function, as in "
                f"(f @ {other})(...)"
            )
        return self._matmul(other)

    # Operations that need the value, and are refused

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise TypeError(f"attribute {name} of a value that is not there yet cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise TypeError(f"attribute {name} of a value that is not there yet cannot be deleted")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a value that is not there yet is neither true nor false: take its result()"
        )

    def __delitem__(self, key: object) -> NoReturn:
        raise TypeError("an item of a value that is not there yet cannot be deleted")

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError("what is in a value that is not there yet is unknown: take its result()")

    def _as_number(self) -> NoReturn:
        raise TypeError("a value that is not there yet is not a number: take its result()")

    __int__ = __float__ = __complex__ = __index__ = _as_number


def _leaf_text(value: Any) -> str:
    if isinstance(value, CallFuture):
        return f"{value.template.function.name.rpartition('.')[2]}(...)"
    return "a future" if isinstance(value, Future) else short_repr(value)


def delayedval(value: Any, length: int | None = None, *, copy_on_setitem: bool = True) -> Delayed:
    """Return a value as a `Delayed`, whose operators are applied when it is computed.

    Args:
        length: the number of its items, if it is to be unpacked before it is computed.
        copy_on_setitem: whether setting an item makes a copy; without it the value itself changes,
            and so do items that were unpacked from it before.
    """
    operation = operation_of(value)
    if type(operation) is not Operation:
        operation = Operation(None, (value,))
    return Delayed(operation, length, flag("copy_on_setitem", copy_on_setitem))


def each(*values: Any) -> Delayed:
    """Return a `Delayed` of the list of these values, in order; or of the values in a single list,
    tuple, set, range or iterator.
    """
    if len(values) == 1 and (type(values[0]) in ITERATED or isinstance(values[0], Iterator)):
        values = tuple(values[0])
    return _delayed(gather, list, *values)


class ProgramTarget:
    """The executor that makes the calls of a program, and its variants with other resources and
    options. The variants end with the program, because only the program refers to them.
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
            TypeError: `resources` is not a resource.
            ConfigurationError: no worker can give these resources.
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


CURRENT: ContextVar[ProgramTarget | None] = ContextVar("gridengine_program", default=None)
"""The program that calls of delayed functions go to, if one is set."""


def current_program() -> ProgramTarget:
    """Return the program that calls of delayed functions go to."""
    return CURRENT.get() or _default_program(current_scheduler())


@functools.lru_cache(maxsize=4)
def _default_program(scheduler: Scheduler) -> ProgramTarget:
    return ProgramTarget(Executor(scheduler=scheduler))


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
    *, nout: int | None = None, **options: Unpack[CallChanges]
) -> Callable[[Callable[..., Any]], DelayedFunction]: ...
@takes(CallChanges, {})
def delayed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    nout: int | None = None,
    **options: Unpack[CallChanges],
) -> Any:
    """Return a function whose calls are submitted when they are made, and return a `Delayed`. Use
    it as a decorator, with or without arguments, or on an existing function.

    Args:
        nout: the number of its results, if they are to be unpacked before they exist.
        resources, retries, timeout, retry_on, escalate_memory, priority, forward_logging: as for
            `gridengine.map`.

    Raises:
        TypeError, ConfigurationError: an argument is of another type, or out of its range.
    """
    if nout is not None:
        whole("nout", nout, least=0)
    said = given(delayed, options)

    def make(function: Callable[..., Any]) -> DelayedFunction:
        if not callable(function):
            raise TypeError(f"delayed takes a function, not {function!r}; see delayedval")
        return DelayedFunction(function, nout, said)

    return make if function is None else make(function)
