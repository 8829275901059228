"""Several calls that run as one: tasks among the arguments of a task, and chains of tasks whose
intermediate results nobody else needs. Workers import this too, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from gridengine.call_context.current_call import GVAR
from gridengine.serialize.argument_snapshot import given_words
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.payload import FULL


class Value(Struct, frozen=True):
    """Stands for the return value of the call with this number."""

    call: int


class Step(Struct):
    """One of the calls.

    `function` is the number of its function. `args` and `kwargs` may be `Value`s, but not contain
    them. `spent` are the numbers of the values that no later step needs. `name` is the name of the
    result for people; empty if the step is a part of a later one.
    """

    function: int
    args: Sequence[Any]
    kwargs: dict[str, Any] | None = None
    spent: Sequence[int] = ()
    name: str = ""


class CallSequence:
    """Makes calls of these functions, one after the other, and returns the value of the last."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._functions = functions
        names = [getattr(f, "__qualname__", None) or type(f).__name__ for f in functions]
        self.__qualname__ = " and ".join(names if len(names) < 4 else [*names[:2], "others"])

    def __call__(self, steps: list[Step]) -> Any:
        functions, value = self._functions, None
        values: dict[int, Any] = {}
        steps.reverse()
        number = 0
        while steps:
            GVAR.note_step(number + 1)
            step = steps.pop()  # popped, so that an argument lives no longer than its call
            args = [values[one.call] if type(one) is Value else one for one in step.args]
            kwargs = {
                name: values[one.call] if type(one) is Value else one
                for name, one in (step.kwargs or {}).items()
            }
            for spent in step.spent:
                del values[spent]
            try:
                value = functions[step.function](*args, **kwargs)
            except BaseException as error:
                names = [one.name for one in (step, *reversed(steps)) if one.name]
                note_on(error, [f"in node {names[0]}, {given_words((args, kwargs), FULL)}"])
                GVAR.note_step(0)
                raise
            values[number] = value
            number += 1
        GVAR.note_step(0)
        return value


def as_list(*items: Any) -> list[Any]:
    return list(items)


def as_tuple(*items: Any) -> tuple[Any, ...]:
    return items
