"""State of the caller that its calls find beside the interpreter's: the values that
`gridengine.carry` has registered, and NumPy's error state and print options.

The caller takes the state when it hands calls over (`present`). The state travels within
`CallerState.interpreter`, as one entry for each pair, variable, or NumPy. A runner sets it before
the first call of a function, and again when its caller or the state has changed (`restore`).
Variables and NumPy's state are set back for a caller that does not carry them. A pair's `set`
cannot be undone: the runner leaves calls of such a caller to another process (`GVAR.pairs_set`).

Imported only where state is carried, or NumPy is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, Token, copy_context
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct

from gridengine.call_context.current_call import CARRIED, GVAR
from gridengine.errors import PicklingError
from gridengine.serialize import pickling
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.shared_objects import needs_of
from gridengine.serialize.users_modules import parts_of

Entry: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""The pickle of a `Pair` or `Variable`, or `NUMPY`; and the pickled value."""
NUMPY = b"numpy"


class Pair(Struct, frozen=True):
    """Two functions: `get()` returns the value in the caller, `set(value)` sets it in a runner."""

    get: Callable[[], object]
    set: Callable[[Any], object]

    def __str__(self) -> str:
        return f"{_name(self.get)} and {_name(self.set)}"

    def values(self) -> Iterator[Any]:
        """Yield the present value."""
        yield self.get()


class Variable(Struct, frozen=True):
    """A context variable. Its value travels if one is set; the variable's default does not."""

    variable: ContextVar[Any]

    def __str__(self) -> str:
        return self.variable.name

    def values(self) -> Iterator[Any]:
        """Yield the present value, if there is one."""
        if self.variable in copy_context():
            yield self.variable.get()


def _name(f: Callable[..., Any]) -> str:
    return getattr(f, "__qualname__", None) or repr(f)


class Registration(Struct, eq=False):
    """A pair or variable that `carry` has registered, and its pickle once that was needed."""

    carried: Pair | Variable
    pickled: bytes = b""

    def entries(self) -> Iterator[Entry]:
        """Yield the entry of the present value, if there is one.

        Raises:
            Exception: `get` raises it; or it is a PicklingError.
        """
        with _noting("taking", str(self.carried)):
            for value in self.carried.values():
                if not self.pickled:
                    self.pickled = pickle.dumps(_dumped(self.carried))
                yield self.pickled, _dumped(value)


@contextlib.contextmanager
def _noting(act: str, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        note_on(error, [f"while {act} the carried state of {name}"])
        raise


def _dumped(value: object) -> tuple[bytes, ...]:
    payload = pickling.dump(value)
    if needs_of(payload):
        raise PicklingError(
            "carried state may have no handle of gridengine.share in it",
            hint="give the handle to the calls, as an argument",
        )
    return tuple(map(bytes, payload))


def present() -> tuple[Entry, ...]:
    """Return the state that is registered, as it is now in this thread.

    Raises:
        Exception: see `Registration.entries`.
    """
    return tuple(entry for one in list(CARRIED) for entry in one.entries())


# ---------------------------------------------------------------- NumPy

ERRORS = MappingProxyType({"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"})
PRINTING: Mapping[str, Any] = MappingProxyType(
    {
        "edgeitems": 3,
        "threshold": 1000,
        "floatmode": "maxprec",
        "precision": 8,
        "suppress": False,
        "linewidth": 75,
        "nanstr": "nan",
        "infstr": "inf",
        "sign": "-",
        "formatter": None,
        "legacy": False,
        "override_repr": None,
    }
)
"""NumPy's defaults. Only what differs from them travels."""


def present_numpy() -> tuple[Entry, ...]:
    """Return NumPy's error state and print options, if NumPy is loaded and they differ from its
    defaults. A function in them that cannot be pickled is left out.
    """
    parts = parts_of(sys.modules["numpy"])
    if "geterr" not in parts or "get_printoptions" not in parts:
        return ()  # another thread is importing it, or it is imported lazily
    errors, printing = parts["geterr"](), parts["get_printoptions"]()
    if errors == ERRORS and printing.items() <= PRINTING.items():
        return ()
    changed = {name: value for name, value in printing.items() if PRINTING.get(name) != value}
    handler = parts["geterrcall"]() if {"call", "log"} & {*errors.values()} else None
    values = errors, handler, changed
    try:
        return ((NUMPY, _dumped(values)),)
    except PicklingError:
        plain = {name: value for name, value in changed.items() if name in _PLAIN}
        return ((NUMPY, _dumped((_without_calls(errors), None, plain))),)


_PLAIN = PRINTING.keys() - {"formatter", "override_repr"}


def _without_calls(errors: Mapping[str, str]) -> dict[str, str]:
    return {
        name: ERRORS[name] if mode in ("call", "log") else mode for name, mode in errors.items()
    }


def _set_numpy(errors: Mapping[str, str], handler: Any, printing: Mapping[str, Any]) -> None:
    numpy: Any = importlib.import_module("numpy")
    numpy.seterrcall(handler)
    numpy.seterr(**errors)
    known = numpy.get_printoptions().keys()  # a node's version may lack some
    wanted = {**PRINTING, **printing}
    numpy.set_printoptions(**{name: value for name, value in wanted.items() if name in known})


# ---------------------------------------------------------------- in runners


class _Held:
    """The state that this runner has set: the first token of each variable, and NumPy's state
    before that.
    """

    def __init__(self) -> None:
        self.tokens: dict[ContextVar[Any], Token[Any]] = {}
        self.numpy: tuple[Any, ...] | None = None


@functools.cache
def _held() -> _Held:
    return _Held()


def restore(entries: Iterable[Entry]) -> None:
    """Set a caller's state in this runner, and undo the state that an earlier caller carried.
    Nested calls carry the same state on.

    Raises:
        Exception: a value cannot be loaded, or `set` raises it; a note names the state.
    """
    CARRIED.clear()
    held, variables, has_numpy = _held(), set[ContextVar[Any]](), False
    for pickled, payload in entries:
        if pickled == NUMPY:
            has_numpy = True
            _restore_numpy(held, payload)
            continue
        carried = pickling.load(pickle.loads(pickled))
        CARRIED.append(Registration(carried, pickled))
        with _noting("setting", str(carried)):
            value = pickling.load(payload)
            if isinstance(carried, Variable):
                token = carried.variable.set(value)
                held.tokens.setdefault(carried.variable, token)
                variables.add(carried.variable)
            else:
                GVAR.pairs_set.add(pickled)
                carried.set(value)
    for variable in held.tokens.keys() - variables:
        variable.reset(held.tokens.pop(variable))
    if held.numpy is not None and not has_numpy:
        before, held.numpy = held.numpy, None
        _set_numpy(*before)


def _restore_numpy(held: _Held, payload: tuple[bytes, ...]) -> None:
    """Set NumPy's state, where there is a NumPy."""
    if "numpy" not in sys.modules and importlib.util.find_spec("numpy") is None:
        return
    if held.numpy is None:
        numpy: Any = importlib.import_module("numpy")
        held.numpy = numpy.geterr(), numpy.geterrcall(), numpy.get_printoptions()
    _set_numpy(*pickling.load(payload))


def set_pairs() -> None:
    """Have each pair set its value for calls in the caller's own process, which find variables and
    NumPy's state as they are.

    Raises:
        Exception: see `restore`.
    """
    for one in list(CARRIED):
        if isinstance(one.carried, Pair):
            for _, payload in one.entries():
                with _noting("setting", str(one.carried)):
                    one.carried.set(pickling.load(payload))
