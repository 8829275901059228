"""Read a graph of calls, as users and dask write it: find the calls to make, the calls that each
needs, and the calls that are best made together. Write each node as a call: a function with its
arguments or, for fused nodes, the steps of a `CallSequence`.

A graph maps keys to data, tasks and other keys. A task is a tuple that begins with a callable; its
arguments are keys, tasks, lists and tuples of these, or data. dask's own nodes (`dask._task_spec`)
may stand for any of these. Nothing is pickled or called here, and the recursion is not as deep as
the graph.
"""

from __future__ import annotations

import graphlib
import operator
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from gridengine.client.call_sequence import Step, Value, as_list, as_tuple
from gridengine.errors import short_repr
from gridengine.serialize.argument_snapshot import HiddenArguments
from gridengine.serialize.payload import ATOMS, FULL, SINGLE, STAR
from gridengine.serialize.references import RESULT_NAME_BYTES
from gridengine.serialize.shared_objects import find, identity

Graph: TypeAlias = Mapping[Any, Any]
NUMBERS = frozenset({int, float, complex, bool, type(None)})
"""Types of data that is put where it is needed; a node of its own would cost more."""
MISSING = object()


class Node(Struct, eq=False):
    """The value of a key, or a task that is an argument of another task and has that task's key.

    After reading, a node is one of three things. With a `function`, it is a call with `args` and
    `kwargs`, in which nodes stand for their values. With a `target`, it is another name of that
    node. Otherwise it is data, `value`.

    needs: the nodes that this node needs.
    users: how many nodes need this one, each under a key.
    sequence: the calls that are made as one, in order, if there are several; the node's own call is
    the last.
    is_wanted: whether the user asks for its key.
    """

    key: Any
    value: Any
    is_nested: bool = False
    is_wanted: bool = False
    is_begun: bool = False
    is_read: bool = False
    function: Callable[..., Any] | None = None
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] | None = None
    target: Node | None = None
    needs: dict[Node, None] = {}
    sequence: list[Node] | None = None
    users: int = 0
    reference: int = 0
    """The reference that stands for its value when pickled as an argument; 0: the value itself."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        node = self.target or self
        if node.reference:
            return find, (node.reference.to_bytes(RESULT_NAME_BYTES, "big"),)
        return identity, (node.value,)


def read(
    graph: Graph, keys: Iterable[Hashable], *, strict: bool = True
) -> tuple[list[Node], list[Node]]:
    """Return the nodes of these keys, in their order, and all calls that they need, in topological
    order.

    strict: a string in a task's arguments is a key, never data.

    Raises:
        TypeError: `keys` is a single string.
        KeyError: the graph has no such key; the text says which node needs it.
        CycleError: a node needs itself; the second argument is the cycle, in the order in which its
            nodes would have to be computed.
    """
    if isinstance(keys, str):
        raise TypeError(f"keys is a list of keys: for {keys!r} say [{keys!r}]")
    reader = _Reader(graph, strict=strict)
    wanted = []
    for key in keys:
        if key not in graph:
            raise KeyError(f"the graph has no {short_repr(key)}, which is asked for")
        node = reader.node_of(key)
        reader.visit(node)
        node = node.target or node
        node.is_wanted = True
        wanted.append(node)
    return wanted, reader.calls


def fuse(calls: Iterable[Node]) -> list[Node]:
    """Fuse calls: make a call together with the only call that needs it, if that one needs no other
    call. Return the remaining calls.
    """
    left = dict.fromkeys(calls)
    for node in tuple(left):
        before = _only_call(node.needs)
        if before is not None and before.users == 1 and not before.is_wanted:
            del left[before]
            _join(node, [before])
    return list(left)


def _only_call(nodes: Iterable[Node]) -> Node | None:
    """Return the only call among these nodes; None if there is none, or several."""
    found = None
    for one in nodes:
        if one.function is not None:
            if found is not None:
                return None
            found = one
    return found


def _join(node: Node, others: list[Node]) -> None:
    """Make a node together with these nodes that it needs, after them."""
    # The longest sequence takes the others: a long one would otherwise be copied again and again.
    longest = max(others, key=lambda one: len(one.sequence or ()))
    sequence, needs = longest.sequence or [longest], longest.needs
    for one in others:
        if one is not longest:
            sequence += one.sequence or [one]
            needs |= one.needs
    sequence += node.sequence or [node]
    made = set(others)
    needs.update((one, None) for one in node.needs if one not in made)
    node.sequence, node.needs = sequence, needs


class _MissingKeyError(Exception):
    """An argument of a task names a key that the graph does not have."""


class _Reader:
    """Reads the nodes that are needed. `calls` are their tasks, in topological order."""

    def __init__(self, graph: Graph, *, strict: bool) -> None:
        self._graph = graph if type(graph) is dict else dict(graph)
        self._strict = strict
        self._nodes: dict[Any, Node] = {}
        self._node = Node(None, None)
        """The node that is being read."""
        self._dask = sys.modules.get("dask._task_spec")
        self._of_dask = (self._dask.GraphNode, self._dask.TaskRef) if self._dask else ()
        self.calls: list[Node] = []

    def node_of(self, key: Any) -> Node:
        """Return the node of a key.

        Raises:
            KeyError: the graph does not have the key.
        """
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(key, self._graph[key])
        return node

    def visit(self, node: Node) -> None:
        """Read a node, after all nodes that it needs."""
        if node.is_read:
            return
        path, unread = [node], [self._begin(node)]
        while path:
            following = next(unread[-1], None)
            if following is None:
                unread.pop()
                self._end(path.pop())
            elif not following.is_read:
                if following.is_begun:
                    raise _cycle(path[path.index(following) :])
                path.append(following)
                unread.append(self._begin(following))

    def _begin(self, node: Node) -> Iterator[Node]:
        """Find out which kind of node this is, and return the nodes that it needs."""
        self._node, node.is_begun = node, True
        value = node.value
        if type(value) is tuple and value and callable(value[0]):
            node.function, node.value = value[0], None
            node.args = self._arguments(value[1:], self._with_nodes)
        elif isinstance(value, self._of_dask):
            self._begin_of_dask(node, value)
        elif self._is_number(value) or (type(value) in NUMBERS and value == node.key):
            return iter(())
        elif self._value_of(value) is not MISSING:
            node.target = self._needed(value)
        else:
            node.value = self._with_nodes(value, strict=False)
            if node.needs:  # such as a list with results of other nodes
                node.function, node.args = identity, (node.value,)
        return iter(node.needs)

    def _begin_of_dask(self, node: Node, value: Any) -> None:
        """Read a node that is one of dask's."""
        dask: Any = self._dask
        if isinstance(value, dask.DataNode):
            node.value = value.value
        elif isinstance(value, dask.Task):
            node.function = value.func
            node.args = self._arguments(value.args, self._with_dask_nodes)
            named = self._arguments(value.kwargs.values(), self._with_dask_nodes)
            node.kwargs = dict(zip(value.kwargs, named, strict=True))
        else:
            [node.target] = self._arguments([value], self._with_dask_nodes)

    def _end(self, node: Node) -> None:
        """Complete a node once the nodes that it needs are read."""
        node.is_read = True
        if node.target is not None:
            node.target = node.target.target or node.target
        if node.function is None:
            return
        for one in node.needs:
            if one.target is not None or one.is_nested:
                node.needs = dict.fromkeys(one.target or one for one in node.needs)
                if nested := [one for one in node.needs if one.is_nested]:
                    _join(node, nested)
                break
        if not node.is_nested:
            for one in node.needs:
                one.users += 1
            self.calls.append(node)

    # ---------------------------------------------------------------- arguments

    def _arguments(self, arguments: Iterable[Any], read: Callable[..., Any]) -> list[Any]:
        """Read the arguments of the present node: nodes stand for values that are computed."""
        read_ones: list[Any] = []
        try:
            for one in arguments:
                read_ones.append(read(one, strict=self._strict))
        except _MissingKeyError as missing:
            function = self._node.function
            name = getattr(function, "__name__", None) or short_repr(function)
            where = f"argument {len(read_ones) + 1} of {name}" if function else "an alias"
            raise KeyError(
                f"node {short_repr(self._node.key)}, {where}: the graph has no {missing}"
            ) from None
        return read_ones

    def _value_of(self, key: Any) -> Any:
        """Return the graph's value for an object that may be a key; `MISSING` if it is none."""
        try:
            # True and False equal the numbers 1 and 0, but do not mean these keys.
            return MISSING if type(key) is bool else self._graph.get(key, MISSING)
        except TypeError:  # the object cannot be hashed
            return MISSING

    def _needed(self, key: Any) -> Node:
        """Return the node of a key, and note that the present node needs it."""
        node = self._nodes.get(key) or self.node_of(key)
        self._node.needs[node] = None
        return node

    def _is_number(self, value: Any) -> bool:
        """Return whether a value is a number and no key."""
        return type(value) in NUMBERS and value not in self._graph

    def _with_nodes(self, value: Any, *, strict: bool) -> Any:
        """Return an argument, or an element of a list, with nodes for values that are computed."""
        if isinstance(value, self._of_dask):
            return self._with_dask_nodes(value)
        kind = type(value)
        if kind is tuple and value and callable(value[0]):
            return self._nested(value)
        if kind is not list and (there := self._value_of(value)) is not MISSING:
            return there if self._is_number(there) else self._needed(value)
        if kind is list or kind is tuple:
            parts = [self._with_nodes(one, strict=strict) for one in value]
            changed = any(map(operator.is_not, parts, value))
            return kind(parts) if changed else value
        if strict and kind is str:
            raise _MissingKeyError(
                f"{short_repr(value)}; a string that is data must be the value of a key"
            )
        return value

    def _with_dask_nodes(self, value: Any, *, strict: bool = True) -> Any:
        """Return an argument of one of dask's nodes. dask's nodes in it become nodes of this graph;
        everything else is data.
        """
        dask: Any = self._dask
        if not isinstance(value, self._of_dask):
            return value
        if isinstance(value, dask.DataNode):
            return value.value
        if isinstance(value, (dask.List, dask.Tuple)):
            return value.klass(map(self._with_dask_nodes, value.args))
        if isinstance(value, dask.Task):
            return self._nested(value)
        key = value.target if isinstance(value, dask.Alias) else value.key
        if key not in self._graph:
            raise _MissingKeyError(short_repr(key))
        return self._needed(key)

    def _nested(self, value: Any) -> Node:
        node = Node(self._node.key, value, is_nested=True)
        self._node.needs[node] = None
        return node


def _cycle(way: list[Node]) -> graphlib.CycleError:
    """Return the error of a cycle: each of these nodes needs the next, and the last the first."""
    keys = [node.key for node in [*way, way[0]] if not node.is_nested]
    if way[0].is_nested:
        keys.append(keys[0])
    return graphlib.CycleError("nodes are in a cycle", keys[::-1])


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
