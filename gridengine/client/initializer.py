"""What is done in each process that runs calls: an initializer before the first, and an end after
so many. Imported by workers too, so it imports little.
"""

from __future__ import annotations

import functools
import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from typing import Any

from msgspec import Struct, field

from gridengine.resources.units import whole
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.worker.call_context import GVAR
from gridengine.worker.coroutines import synchronous
from gridengine.worker.environment import changes_since, own_variables, set_variables

TOKEN = "initializer"
"""The attribute of an initializer's failure that says which initializer it was."""


class Initializer:
    """An initializer with its arguments, if there is one, and how many calls a process makes at
    most; `token` names it, for it may arrive in a process with each of several functions.
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
        """Run it, unless that has been done in this process; then have what it changed in the
        environment, if that was set as the caller's since.

        Raises:
            BrokenProcessPool: it failed, now or before.
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

    def _run_first(self, outcome: _Outcome) -> None:
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
        from concurrent.futures.process import BrokenProcessPool  # here, since it imports much

        error = BrokenProcessPool(f"the initializer failed: {failure}")
        vars(error)[TOKEN] = self.token
        return error

    def failure_in(self, raised: Payload) -> str | None:
        """Return why it failed, if that is the exception that a call raised."""
        if pickling.raised_type(raised) != "BrokenProcessPool":
            return None
        error = pickling.load_exception(raised)
        return str(error) if vars(error).get(TOKEN) == self.token else None


class _Outcome(Struct, eq=False):
    """What became of an initializer in this process: why it failed, or what it has changed in the
    environment, and for which number of that these changes are in place.
    """

    # where calls run in the caller's threads, one of them runs it
    lock: Any = field(default_factory=threading.RLock)
    is_known: bool = False
    failure: str | None = None
    changes: dict[bytes, bytes | None] = {}
    environment_number: int = 0


class Prepared:
    """A function that is called only in processes that its initializer has prepared."""

    def __init__(self, function: Callable[..., Any], initializer: Initializer) -> None:
        self._function = synchronous(function)
        self._initializer = initializer
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._initializer.run()
        return self._function(*args, **kwargs)


def initializer_of(
    initializer: Callable[..., object] | None,
    arguments: Iterable[Any],
    **most_calls: int | None,
) -> Initializer | None:
    """Return what is to be done in each process, None when nothing is; `most_calls` is how many
    calls one makes at most, by the name that the user has for it.

    Raises:
        TypeError, ConfigurationError: it cannot be called; or that is no positive number.
    """
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if not isinstance(arguments, Iterable):
        raise TypeError(f"initargs must be a tuple of arguments, as (x,), not {arguments!r}")
    [(name, most)] = most_calls.items()
    if most is not None:
        whole(name, most)
    if initializer is None and most is None:
        return None
    return Initializer(initializer, tuple(arguments), most)


@functools.cache
def _outcomes_by_token() -> dict[str, _Outcome]:
    """Return what became of the initializers that have been run in this process."""
    return {}
