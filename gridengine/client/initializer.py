"""What runs once in each process that runs calls, before the first of them. Imported by workers
too, so it imports little.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from typing import Any

from gridengine.worker.call_context import GVAR
from gridengine.worker.environment import changes_since, own_variables, set_variables


class Initializer:
    """An initializer with its arguments; `token` names it, for it may arrive in a process with each
    of several functions.
    """

    def __init__(self, initializer: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.token = secrets.token_hex(8)
        self._initializer = initializer
        self._arguments = arguments
        self._environment_number = 0

    def run(self) -> None:
        """Run it, unless that has been done in this process; then have what it changed in the
        environment, if that was set as the caller's since.

        Raises:
            BrokenExecutor: it failed, now or before.
        """
        outcomes = _outcomes_by_token()
        if self.token not in outcomes:
            before = dict(own_variables())
            try:
                self._initializer(*self._arguments)
            except BaseException as error:
                outcomes[self.token] = repr(error)
                raise BrokenExecutor(f"the initializer failed: {error!r}") from error
            outcomes[self.token] = changes_since(before)
        outcome = outcomes[self.token]
        if isinstance(outcome, str):
            raise BrokenExecutor(f"the initializer failed: {outcome}")
        if self._environment_number != GVAR.environment_number:
            self._environment_number = GVAR.environment_number
            set_variables(outcome)


class Prepared:
    """A function that is called only in processes that its initializer has prepared."""

    def __init__(self, function: Callable[..., Any], initializer: Initializer) -> None:
        self._function = function
        self._initializer = initializer
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._initializer.run()
        return self._function(*args, **kwargs)


def initializer_of(
    initializer: Callable[..., object] | None, arguments: Iterable[Any]
) -> Initializer | None:
    """Return what is to run first, None when nothing is.

    Raises:
        TypeError: it cannot be called.
    """
    if initializer is None:
        return None
    if not callable(initializer):
        raise TypeError("initializer must be a callable")
    return Initializer(initializer, tuple(arguments))


@functools.cache
def _outcomes_by_token() -> dict[str, str | dict[bytes, bytes | None]]:
    """Return which initializers have been run in this process: why those that failed did, and what
    the others have changed in the environment.
    """
    return {}
