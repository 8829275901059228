"""`gridengine.carry`: state of the caller that its calls find in their processes."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gridengine.call_context.carried_state import Pair, Registration, Variable
from gridengine.call_context.coroutines import is_coroutine_function
from gridengine.call_context.current_call import CARRIED
from gridengine.errors import short_repr
from gridengine.threads import Closing


class Carrying(Closing):
    """State that calls carry until `close`, or the end of a `with` block.

    Calls that were submitted earlier keep their state.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration

    def close(self) -> None:
        """Stop carrying this state with later submissions. A second call does nothing."""
        if self._registration in CARRIED:
            CARRIED.remove(self._registration)

    def __repr__(self) -> str:
        state = "" if self._registration in CARRIED else ", closed"
        return f"<carried state of {self._registration.carried}{state}>"


def carry(
    get: Callable[[], Any] | ContextVar[Any], set: Callable[[Any], object] | None = None
) -> Carrying:
    """Carry state of the caller to its calls, from now on: calls find it in their own processes.

    `get()` is called in the caller, in the thread that submits, each time that calls are handed
    over. `set(value)` runs in each process, with the value that `get()` returned, before the calls
    that the value belongs to. Both functions travel with the calls, as they are at the first
    submission. Nested calls carry the value that `get()` returns in the call that submits them. A
    process in which `set` has run never runs calls that do not carry the pair.

    A `contextvars.ContextVar` needs no functions: `carry(variable)`. Calls find the value that it
    has where they are submitted.

    Args:
        get: returns the value, which must be picklable and should be small: it travels with each
            function. Or a context variable.
        set: is called with the value. If it raises, the calls fail with that error.

    Returns an object that undoes this: by `close()`, or at the end of its `with` block. To register
    the same `get` and `set`, or the same variable, again replaces the earlier registration.

    Raises:
        TypeError: `get` or `set` is not such a function.
    """
    carried: Pair | Variable
    if isinstance(get, ContextVar):
        if set is not None:
            raise TypeError(
                f"set: a context variable needs none, but {short_repr(set)} is given; say "
                "carry(variable)"
            )
        carried = Variable(get)
    else:
        _check("get", get, "a function without arguments, or a contextvars.ContextVar")
        _check("set", set, "a function of one argument, the value that get returns")
        assert set is not None
        carried = Pair(get, set)
    for one in [one for one in CARRIED if one.carried == carried]:
        CARRIED.remove(one)
    registration = Registration(carried)
    CARRIED.append(registration)
    return Carrying(registration)


def _check(name: str, f: object, wanted: str) -> None:
    if not callable(f):
        raise TypeError(f"{name} must be {wanted}, not {short_repr(f)}")
    if is_coroutine_function(f):
        raise TypeError(f"{name} must be {wanted}, not the coroutine function {short_repr(f)}")
