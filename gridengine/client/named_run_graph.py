"""The graphs of a named run: a node with a known result becomes data, and nodes that only such
nodes need are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from gridengine.client.future import CallFuture, CallTemplate, UndecodedResult
from gridengine.client.graph import Node
from gridengine.client.named_run import OpenRun, RunFunction
from gridengine.client.node_calls import key_text
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.serialize.payload import FULL, KeptPayload
from gridengine.serialize.shared_objects import identity

_RESULT = b"\0the result of "
"""A key begins with this if it stands for the result of another call."""


class RunGraph:
    """The calls of one graph. A call's key consists of its function and its arguments; an argument
    that is the result of another call is replaced by that call's key.

    Args:
        template_of: returns the template of a function's calls.
    """

    def __init__(
        self,
        run: OpenRun,
        numbers: Iterator[int],
        template_of: Callable[[Callable[..., Any]], CallTemplate],
    ) -> None:
        self._run = run
        self._numbers = numbers
        self._template_of = template_of
        self._functions: dict[int, RunFunction] = {}
        self._known: dict[Node, tuple[RunFunction, bytes]] = {}
        self._numbered: dict[Node, int] = {}
        self._blocks: dict[Node, tuple[int, int]] = {}
        """The places in the file of calls that were made before and are made again."""
        self._places: dict[int, tuple[RunFunction, int, int, bool]] = {}
        """For each task: its function, where its outcome is recorded (block and offset), and
        whether the user asked for its key.
        """
        self._added: list[tuple[Node, int]] = []

    def left(self, wanted: Iterable[Node], calls: Sequence[Node]) -> list[Node]:
        """Return the calls that must be made for the wanted nodes, in topological order. Nodes
        whose results are known become data.

        calls: all calls, in topological order.
        """
        for node in calls:
            self._find(node)
        needed, made = set(wanted), []
        for node in reversed(calls):
            is_needed = node in needed
            if is_needed and not self._become_data(node):
                made.append(node)
                needed.update(node.needs)
            else:
                for one in node.needs:
                    one.users -= 1
                node.needs, node.sequence = {}, None
        made.reverse()
        return made

    def _find(self, node: Node) -> None:
        """Find the key of a call, if it has one."""
        try:
            run_function, call = self._run_function_of(node.function), self._call(node)
        except Exception:  # it, or a call that it needs, cannot be pickled: `add` reports that
            return
        if (keys := run_function.keys_of([call], FULL)) is not None:
            self._known[node] = run_function, keys[0]

    def _call(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {name: self._named(one) for name, one in (node.kwargs or {}).items()}
        return tuple(map(self._named, node.args)), named

    def _run_function_of(self, f: Any) -> RunFunction:
        if id(f) not in self._functions:
            self._functions[id(f)] = self._run.function(f, self._template_of(f).function)
        return self._functions[id(f)]

    def _named(self, argument: Any) -> Any:
        """Return an argument with keys in the place of other calls' results."""
        if type(argument) is Node:
            node = argument.target or argument
            if node.function is None:
                return node.value
            if node.is_nested:
                return _RESULT, self._run_function_of(node.function).identity, *self._call(node)
            run_function, key = self._known[node]
            return _RESULT + run_function.identity + key
        if type(argument) in (list, tuple):
            return type(argument)(map(self._named, argument))
        return argument

    def _become_data(self, node: Node) -> bool:
        """If the result of a node is known, turn the node into data and return True. A known
        failure becomes a failed future, which its users wait for like any other.
        """
        if node not in self._known:
            return False
        run_function, key = self._known[node]
        number = self._numbered[node] = next(self._numbers)
        piece, found = run_function.look_up(key, number)
        if found is None:
            if piece.block:
                self._blocks[node] = piece.block, piece.offset
            return False
        if isinstance(found, CallsFinished):
            node.value = self._failed(node, found)
        else:
            [node.value] = found
        node.function, node.args, node.kwargs = None, (), None
        return True

    def _failed(self, node: Node, event: CallsFinished) -> CallFuture:
        """Return a failed future, which stands for the result of a call that failed before."""
        template = self._template_of(node.function or identity)
        name = f"{template.function.name} (node {key_text(node.key)})"
        function = structs.replace(template.function, name=name)
        return CallFuture(
            structs.replace(template, function=function), None, UndecodedResult(event)
        )

    def added(self, node: Node, task: int) -> None:
        """Note which task makes a call."""
        if node in self._known:
            self._added.append((node, task))

    def hand_over(self) -> None:
        """Record, before the tasks are handed over, where their outcomes will be."""
        by_function: dict[RunFunction, list[tuple[Node, int]]] = {}
        for node, task in self._added:
            run_function = self._known[node][0]
            if node in self._blocks:
                self._place(node, task, *self._blocks[node])
            else:
                by_function.setdefault(run_function, []).append((node, task))
        for run_function, pairs in by_function.items():
            pairs.sort(key=lambda pair: self._numbered[pair[0]])
            numbers = [self._numbered[node] for node, _ in pairs]
            keys = b"".join(self._known[node][1] for node, _ in pairs)
            block = run_function.add_block(FULL, numbers, None, keys)
            for offset, (node, task) in enumerate(pairs):
                self._place(node, task, block, offset)
        self._added.clear()

    def _place(self, node: Node, task: int, block: int, offset: int) -> None:
        run_function = self._known[node][0]
        self._places[task] = run_function, block, offset, node.is_wanted
        run_function.hand_over(task, 0, 1, block, offset)

    def settled(self, event: CallsFinished) -> None:
        """Record the outcome of a task, in the I/O thread. Leave out failures that come from
        another task, and large results that stay at their worker and that the user did not ask for.
        """
        place = self._places.pop(event.task, None)
        if place is None or event.path:
            return
        run_function, block, offset, is_wanted = place
        if is_wanted or type(event.payload) is not KeptPayload:
            run_function.note(block, offset, offset + 1, event)
