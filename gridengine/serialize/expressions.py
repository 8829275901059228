"""Expressions of values that are not there yet.

While it is composed, an expression is a graph of operations. To travel and to be computed, it is a
list of instructions. Neither needs recursion, however long a chain is. Workers import this module
too, so it imports little.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from gridengine.errors import short_repr


class Operation:
    """The value of a function for these arguments. `operands` are the arguments that are values of
    other operations, each with its place.

    `function` is None if the only argument stands for a value that comes from elsewhere.
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
"""One operation: its function; its arguments by place and by name; the places of arguments that are
values of earlier instructions, with the numbers of these; and the numbers of the instructions whose
values no later one needs. A plain tuple, since that is pickled fastest.
"""


def instructions_of(operation: Operation) -> list[Instruction]:
    """Return the instructions that compute an operation: each needed one once, before its users."""
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
    """Return the operation and its dependencies in topological order."""
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
    """Make a container of these parts."""
    return kind(parts)


def with_fields(value: Any, names: Sequence[str], *parts: Any) -> Any:
    """Return a copy of an object with new values of these fields, even of a frozen dataclass."""
    made = copy.copy(value)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def compute(
    instructions: Sequence[Instruction], resolve: Callable[[Any], Any] = lambda value: value
) -> Any:
    """Return the value of the last instruction. `resolve` returns values that come from elsewhere.

    A value is released when no later instruction needs it.
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
"""The most operations within each other that are shown, and the most characters of all."""
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
    """Return the text of an operation, shortened, much as the user wrote it. `leaf` returns the
    text of a value that comes from elsewhere.
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
    """Return the name of a function or class for people."""
    return getattr(called, "__name__", None) or short_repr(called)
