"""Write the call that a graph's node stands for: a function with its arguments or, for fused nodes,
the steps of a `CallSequence`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gridengine.client.call_sequence import Step, Value, as_list, as_tuple
from gridengine.client.graph import Node
from gridengine.errors import short_repr
from gridengine.serialize.argument_snapshot import HiddenArguments
from gridengine.serialize.payload import ATOMS, FULL, SINGLE, STAR

MOST_SHOWN = 60


class WrittenCall(NamedTuple):
    """The call of a node.

    key: identifies the function, or the functions, in this graph.
    function: the function; a tuple of functions for fused nodes.
    form, call: the call, and its form.
    is_plain: whether C `pickle` alone can pickle the call.
    steps: the names of fused nodes; None for a single one.
    """

    key: Any
    function: Any
    form: int
    call: Any
    is_plain: bool
    steps: Sequence[str] | None = None


def written(node: Node) -> WrittenCall:
    """Return the call of a node."""
    if node.sequence is not None:
        sequencer = _Sequencer(node.sequence)
        functions, steps = sequencer.functions, sequencer.steps
        is_plain = all(_is_plain(one.args) and not one.kwargs for one in steps)
        names = [one.name for one in steps]
        called = tuple(functions.values())
        return WrittenCall(tuple(functions), called, SINGLE, steps, is_plain, names)
    function, args = node.function, tuple(node.args)
    if node.kwargs:
        return WrittenCall(id(function), function, FULL, (args, node.kwargs), False)
    if len(args) == 1:
        return WrittenCall(id(function), function, SINGLE, args[0], _is_plain(args))
    return WrittenCall(id(function), function, STAR, args, _is_plain(args))


def key_text(key: Any) -> str:
    """Return the text of a key. Short strings, which are most keys, take the quick way."""
    return repr(key) if type(key) is str and len(key) <= MOST_SHOWN else short_repr(key)


def _is_plain(args: Iterable[Any]) -> bool:
    """Return whether all arguments are small or references, so that C `pickle` alone can pickle
    them.
    """
    for one in args:
        kind = type(one)
        if kind is Node:
            node = one.target or one
            if not node.reference and type(node.value) not in ATOMS:
                return False
        elif kind is list or kind is tuple:
            if not _is_plain(one):
                return False
        elif kind is not Value and kind not in ATOMS:
            return False
    return True


class _Sequencer:
    """Writes fused calls as the steps of a `CallSequence`."""

    def __init__(self, sequence: Iterable[Node]) -> None:
        self.functions: dict[int, Callable[..., Any]] = {}
        """The functions by `id`, in the order of their numbers."""
        self.steps: list[Step] = HiddenArguments()
        self._numbers: dict[int, int] = {}
        self._values: dict[Node, Value] = {}
        self._last_uses: dict[int, Step] = {}
        for node in sequence:
            kwargs = node.kwargs and {name: self._flat(one) for name, one in node.kwargs.items()}
            name = "" if node.is_nested else key_text(node.key)
            args = [self._flat(one) for one in node.args]
            self._values[node] = self._step(node.function, args, kwargs, name)
        for number, step in self._last_uses.items():
            step.spent = [*step.spent, number]

    def _step(
        self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None, name: str = ""
    ) -> Value:
        """Append a step; return the `Value` of its result."""
        number = self._numbers.setdefault(id(function), len(self._numbers))
        self.functions[id(function)] = function
        step = Step(number, args, kwargs, (), name)
        for one in (*args, *(kwargs or {}).values()):
            if type(one) is Value:
                self._last_uses[one.call] = step
        self.steps.append(step)
        return Value(len(self.steps) - 1)

    def _flat(self, one: Any) -> Any:
        """Return an argument; for the result of a step, its `Value`. A list or tuple that holds
        such results becomes a step of its own, which makes it.
        """
        if type(one) is Node:
            return self._values.get(one.target or one, one)
        if (type(one) is list or type(one) is tuple) and self._holds_value(one):
            make = as_list if type(one) is list else as_tuple
            return self._step(make, [self._flat(part) for part in one])
        return one

    def _holds_value(self, parts: Any) -> bool:
        return any(
            (one.target or one) in self._values
            if type(one) is Node
            else (type(one) is list or type(one) is tuple) and self._holds_value(one)
            for one in parts
        )
