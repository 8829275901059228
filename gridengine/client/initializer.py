"""An initializer, which runs in each process before its first call, and a limit for the number of
calls in a process. Workers import this too, so it imports little.
"""

from __future__ import annotations

import functools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from gridengine.arguments import whole
from gridengine.call_context.coroutines import synchronous
from gridengine.call_context.current_call import GVAR
from gridengine.call_context.environment import changes_since, own_variables, set_variables
from gridengine.serialize import namespaces, pickling
from gridengine.serialize.payload import Payload

if TYPE_CHECKING:
    from gridengine.call_context.random_streams import Seed

TOKEN = "initializer"
"""The attribute of an initializer's failure that says which initializer it was."""


class Initializer:
    """An initializer with its arguments, if there is one, and the most calls that a process makes.
    `token` identifies it, because it may arrive in a process with each of several functions.
    """

    def __init__(
        self,
        initializer: Callable[..., object] | None,
        arguments: tuple[Any, ...],
        most_calls: int | None,
    ) -> None:
        self.token = secrets.token_hex(8)
        self._initializer = None if initializer is None else synchronous(initializer)
        self._arguments = arguments
        self._most_calls = most_calls

    def run(self) -> None:
        """Run the initializer, unless it has run in this process. If the environment was set to the
        caller's since then, repeat the initializer's changes to it.

        Raises:
            BrokenProcessPool: the initializer failed, now or before.
            ProcessSpent: this process has made all its calls.
        """
        if self._most_calls is not None:
            GVAR.count_call(self._most_calls)
        if self._initializer is None:
            return
        outcomes = _outcomes_by_token()
        outcome = outcomes.get(self.token) or outcomes.setdefault(self.token, _Outcome())
        if not outcome.is_known:
            with outcome.lock:
                if not outcome.is_known:
                    self._run_first(outcome)
        if outcome.failure is not None:
            raise self._broken(outcome.failure)
        if outcome.environment_number != GVAR.environment_number:
            outcome.environment_number = GVAR.environment_number
            set_variables(outcome.changes)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yield the initializer and its arguments, with their names for errors."""
        if self._initializer is not None:
            name = getattr(self._initializer, "__qualname__", type(self._initializer).__name__)
            yield "initializer", self._initializer
            for number, one in enumerate(self._arguments, 1):
                yield f"argument {number} of the initializer {name}", one

    def _run_first(self, outcome: _Outcome) -> None:
        """Run the initializer, and record its outcome and its changes to the environment."""
        assert self._initializer is not None
        before = dict(own_variables())
        try:
            self._initializer(*self._arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not GVAR.in_runner:
                raise  # Ctrl-C ends the caller's own script
            outcome.failure, outcome.is_known = repr(error), True
            raise self._broken(repr(error)) from error
        outcome.changes = changes_since(before)
        outcome.environment_number = GVAR.environment_number
        outcome.is_known = True

    def _broken(self, failure: str) -> BrokenExecutor:
        # Imported here, because it imports much.
        from concurrent.futures.process import BrokenProcessPool

        error = BrokenProcessPool(f"the initializer failed: {failure}")
        vars(error)[TOKEN] = self.token
        return error

    def failure_in(self, raised: Payload) -> str | None:
        """Return why the initializer failed, if a call raised that failure; else None."""
        if pickling.raised_type(raised) != "BrokenProcessPool":
            return None
        error = pickling.load_exception(raised)
        return str(error) if vars(error).get(TOKEN) == self.token else None


class _Outcome(Struct, eq=False):
    """The outcome of an initializer in this process: `failure` is the reason if it failed,
    `changes` are its changes to the environment, and `environment_number` is the environment that
    has them.
    """

    # A lock, because inline calls may run in several threads of the caller's process.
    lock: Any = field(default_factory=threading.RLock)
    is_known: bool = False
    failure: str | None = None
    changes: dict[bytes, bytes | None] = {}
    environment_number: int = 0


class Prepared:
    """A function that runs only in processes that its initializer has prepared."""

    def __init__(self, function: Callable[..., Any], initializer: Initializer) -> None:
        self._function = synchronous(function)
        self._initializer = initializer
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _begin, (self._initializer.token,), vars(self)

    def _gridengine_parts(self) -> Iterator[tuple[str, Any]]:
        """Yield the parts that may not be picklable, with their names for errors."""
        yield "function", self._function
        yield from self._initializer.parts()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._initializer.run()
        return self._function(*args, **kwargs)


def _begin(token: str) -> Prepared:
    """Return a function without its parts. These are loaded next, and share global variables with
    the other functions of the same executor.
    """
    namespaces.enter_space(token)
    return object.__new__(Prepared)


def seeded(f: Callable[..., Any], seed: Seed) -> Callable[..., Any]:
    """Return a function whose calls have numbers, and streams of random numbers. An initializer
    draws none of them.
    """
    from gridengine.call_context.random_streams import Seeded  # few need it

    if type(f) is Prepared:
        return Prepared(Seeded(f._function, seed), f._initializer)
    return Seeded(f, seed)


def initializer_of(
    initializer: Callable[..., object] | None,
    arguments: Iterable[Any],
    **most_calls: int | None,
) -> Initializer | None:
    """Return the initializer with its limit, None if there is neither. `most_calls` is one keyword,
    with the user's name for the limit.

    Raises:
        TypeError, ConfigurationError: the initializer is not callable; or the limit is not a
            positive whole number.
    """
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if not isinstance(arguments, Iterable):
        raise TypeError(f"initargs must be a tuple of arguments, such as (x,), not {arguments!r}")
    [(name, most)] = most_calls.items()
    if most is not None:
        whole(name, most)
    if initializer is None and most is None:
        return None
    return Initializer(initializer, tuple(arguments), most)


@functools.cache
def _outcomes_by_token() -> dict[str, _Outcome]:
    """Return the outcomes of the initializers that have run in this process."""
    return {}
