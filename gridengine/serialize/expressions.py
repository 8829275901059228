"""Values that are to be computed of others that are not there yet: as a graph of operations while
they are made up, and as a list of instructions where they travel and are computed.

Neither needs recursion, however long a chain is. Imported by workers too, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias


class Operation:
    """What a function gives for these arguments; `operands` are those of them, with their places,
    that other operations give.

    `function` is None where the only argument stands for a value that comes from elsewhere.
    """

    __slots__ = ("arguments", "function", "keywords", "operands")

    def __init__(
        self,
        function: Callable[..., Any] | None,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.function = function
        places: list[tuple[int | str, Any]] = [*enumerate(arguments), *keywords.items()]
        self.operands = [(place, one) for place, one in places if type(one) is Operation]
        self.arguments = tuple(map(_unless_operation, arguments))
        self.keywords = {name: _unless_operation(value) for name, value in keywords.items()}


def _unless_operation(value: Any) -> Any:
    return None if type(value) is Operation else value


Instruction: TypeAlias = tuple[
    Callable[..., Any] | None,
    tuple[Any, ...],
    dict[str, Any],
    Sequence[tuple[int | str, int]],
    Sequence[int],
]
"""One operation: its function, its arguments by place and by name; of those that earlier
instructions give the places, with the number of each; and the numbers of those that no later one
needs. A plain tuple, which is pickled soonest.
"""


def instructions_of(operation: Operation) -> list[Instruction]:
    """Return what computes an operation: each that it needs once, before those that need it."""
    order = _in_order(operation)
    numbers = {id(one): number for number, one in enumerate(order)}
    sources = [tuple((place, numbers[id(of)]) for place, of in one.operands) for one in order]
    last_use = {source: number for number, row in enumerate(sources) for _, source in row}
    last_used: dict[int, list[int]] = {}
    for source, number in last_use.items():
        last_used.setdefault(number, []).append(source)
    return [
        (one.function, one.arguments, one.keywords, sources[number], last_used.get(number, ()))
        for number, one in enumerate(order)
    ]


def _in_order(operation: Operation) -> list[Operation]:
    """Return all operations that one needs, and it itself, each after those that it needs."""
    found: dict[int, Operation] = {}
    stack = [operation]
    while stack:
        one = stack[-1]
        missing = [of for _, of in one.operands if id(of) not in found]
        if missing:
            stack += reversed(missing)
        else:
            found[id(stack.pop())] = one
    return list(found.values())


def compute(
    instructions: Sequence[Instruction], resolve: Callable[[Any], Any] = lambda value: value
) -> Any:
    """Return what the last of these instructions gives; `resolve` gives what comes from elsewhere.

    A value is let go of when no later instruction needs it.
    """
    values: list[Any] = []
    for function, arguments, keywords, sources, last_used in instructions:
        if sources:
            positional, named = list(arguments), dict(keywords)
            for place, number in sources:
                if isinstance(place, int):
                    positional[place] = values[number]
                else:
                    named[place] = values[number]
            arguments, keywords = tuple(positional), named
            del positional, named
        for number in last_used:
            values[number] = None
        give = resolve if function is None else function
        values.append(give(*arguments, **keywords))
        arguments, keywords = (), {}
    return values[-1]
