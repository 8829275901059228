"""The arguments of the calls of a run with a name, by the names of the function's parameters."""

from __future__ import annotations

import inspect
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gridengine.call_context.coroutines import Synchronous
from gridengine.call_context.random_streams import Seeded
from gridengine.client.initializer import Prepared
from gridengine.journal import run_reader
from gridengine.journal.run_reader import StoredCalls
from gridengine.serialize import pickling
from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import FULL, STAR

log = logging.getLogger("gridengine")


class StoredArguments:
    """Reads the arguments of a run's calls. What several calls share is rebuilt once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._functions: dict[int, _Parameters] = {}
        self._block = 0
        self._given: list[dict[str, Any] | None] = []

    def of(self, calls: StoredCalls) -> Sequence[dict[str, Any] | None]:
        """Return consecutive calls' arguments; None for those not stored, or not rebuilt here."""
        if calls.block != self._block:
            self._block, self._given = calls.block, self._of_block(calls)
        unknown = [None] * (calls.stop - calls.start)
        return self._given[calls.start : calls.stop] or unknown

    def _of_block(self, calls: StoredCalls) -> list[dict[str, Any] | None]:
        try:
            number, form, payload = run_reader.block_of(self._connection, calls.block)
            if number not in self._functions:  # before the arguments: their classes come with it
                self._functions[number] = _parameters_of(self._connection, calls, number)
            named = self._functions[number].named
            given = pickling.load_items(payload)[0] if payload else []
        except sqlite3.Error:
            raise
        except Exception as error:  # any kind: a pickle may hold anything
            log.debug("the arguments of calls cannot be rebuilt: %s", error)
            return []
        return [None if type(one) is Unloadable else named(one, form) for one in given]


class _Parameters:
    """The parameters of a function that was stored as it travels; unknown if it is None."""

    def __init__(self, f: Callable[..., Any] | None) -> None:
        self._is_seeded = False
        while isinstance(f, Prepared | Seeded | Synchronous):
            self._is_seeded |= type(f) is Seeded
            f = f._function
        try:
            self._signature = None if f is None else inspect.signature(f)
        except (TypeError, ValueError):  # some functions of C code tell none
            self._signature = None

    def named(self, call: Any, form: int) -> dict[str, Any]:
        """Return the arguments of a call by the names of the parameters. Where these are not known,
        the first is `argument1`.
        """
        positional: tuple[Any, ...]
        named: dict[str, Any]
        positional, named = call if form == FULL else (call if form == STAR else (call,), {})
        if self._is_seeded:
            positional = positional[:-1]  # the last is the call's number
        if self._signature is not None:
            try:
                return dict(_spread(self._signature.bind_partial(*positional, **named)))
            except TypeError:  # the call has failed with it, too
                pass
        return {f"argument{n}": one for n, one in enumerate(positional, 1)} | named


def _spread(bound: inspect.BoundArguments) -> Iterator[tuple[str, Any]]:
    """Yield bound arguments; those for `**keywords` by their own names."""
    parameters = bound.signature.parameters
    for name, value in bound.arguments.items():
        if parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def _parameters_of(connection: sqlite3.Connection, calls: StoredCalls, number: int) -> _Parameters:
    try:
        run_reader.check_python(connection, calls)
        name, f = run_reader.function_of(connection, number)
        why = f"{name} is not stored" if f is None else ""
    except sqlite3.Error:
        raise
    except (Exception, SystemExit) as error:  # whatever its module raises
        f, why = None, f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            why += "; add the folder of the module to PYTHONPATH"
    if why:
        log.warning("the names of parameters are not known, and arguments are numbered: %s", why)
    return _Parameters(f)
