"""What runs once in each process that runs calls, before the first of them. Imported by workers
too, so it imports little.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor
from typing import Any


class Initializer:
    """An initializer with its arguments; `token` names it, for it may arrive in a process with each
    of several functions.
    """

    def __init__(self, initializer: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.token = secrets.token_hex(8)
        self._initializer = initializer
        self._arguments = arguments

    def run(self) -> None:
        """Run it, unless that has been done in this process.

        Raises:
            BrokenExecutor: it failed, now or before.
        """
        failures = _failures_by_token()
        if self.token not in failures:
            try:
                self._initializer(*self._arguments)
            except BaseException as error:
                failures[self.token] = repr(error)
                raise BrokenExecutor(f"the initializer failed: {error!r}") from error
            failures[self.token] = None
        failure = failures[self.token]
        if failure is not None:
            raise BrokenExecutor(f"the initializer failed: {failure}")


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
def _failures_by_token() -> dict[str, str | None]:
    """Return which initializers have been run in this process, and why those that failed did."""
    return {}
