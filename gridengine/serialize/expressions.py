"""Values that are to be computed of others that are not there yet: as a graph of operations while
they are made up, and as a list of instructions where they travel and are computed.

Neither needs recursion, however long a chain is. Imported by workers too, so it imports little.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from gridengine.errors import short_repr


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


def gather(kind: Callable[[Iterable[Any]], Any], *parts: Any) -> Any:
    """Return a container of these parts."""
    return kind(parts)


def with_fields(value: Any, names: Sequence[str], *parts: Any) -> Any:
    """Return a copy of an object in which these fields, of a frozen dataclass too, are others."""
    made = copy.copy(value)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


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


# ------------------------------------------------------------------ for people

DEEPEST_SHOWN, MOST_SHOWN = 4, 100
"""How many operations within each other are shown, and how many characters of all."""
_SIGNS: Mapping[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.matmul: "@",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    pow: "**",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.neg: "-",
    operator.pos: "+",
    operator.invert: "~",
}
_BRACKETS: Mapping[Any, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}")}


def text_of(operation: Operation, leaf: Callable[[Any], str]) -> str:
    """Return what an operation is, shortened, much as it was written; `leaf` says what comes from
    elsewhere.
    """
    text = _text(operation, leaf, DEEPEST_SHOWN)
    if operation.function in _SIGNS and len(operation.arguments) < 3:
        text = text[1:-1]
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _text(one: Operation, leaf: Callable[[Any], str], depth: int) -> str:
    if one.function is None:
        return leaf(one.arguments[0])
    if not depth:
        return "..."
    of = {place: _text(operand, leaf, depth - 1) for place, operand in one.operands}
    parts = [of.get(place) or short_repr(value) for place, value in enumerate(one.arguments)]
    named = [f"{name}={of.get(name) or short_repr(it)}" for name, it in one.keywords.items()]
    function, others = one.function, ", ".join([*parts[1:], *named])
    if function in _SIGNS and len(parts) < 3:
        sign = _SIGNS[function]
        return f"({sign}{parts[0]})" if len(parts) == 1 else f"({parts[0]} {sign} {parts[1]})"
    if function is operator.getitem:
        return f"{parts[0]}[{others}]"
    if function is getattr:
        return f"{parts[0]}.{one.arguments[1]}"
    if function is operator.call:
        return f"{parts[0]}({others})"
    if function is gather:
        kind = one.arguments[0]
        name = "" if kind in _BRACKETS else name_of(getattr(kind, "__self__", kind))
        left, right = _BRACKETS.get(kind, ("(", ")"))
        return f"{name}{left}{others}{right}"
    if function is with_fields:
        value, names = one.arguments[:2]
        fields = map("{}={}".format, names, parts[2:])
        return f"{name_of(type(value))}({', '.join([*fields, '...'])})"
    return f"{name_of(function).lstrip('_')}({', '.join([*parts, *named])})"


def name_of(called: Any) -> str:
    """Return what people call a function or class."""
    return getattr(called, "__name__", None) or short_repr(called)
