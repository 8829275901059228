"""The graphs of a run with a name: a node with a result is data, and so is each node that only such
nodes need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from gridengine.client.future import CallFuture, CallTemplate, UndecodedResult
from gridengine.client.graph import Node
from gridengine.client.named_run import KeptFunction, KeptRun
from gridengine.client.node_calls import key_text
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.serialize.kept_payload import KeptPayload
from gridengine.serialize.payload import FULL
from gridengine.serialize.shared_objects import identity

_RESULT = b"\0the result of "
"""How that begins in a key which stands for what another call gives."""


class KeptGraph:
    """The calls of one graph. A call is known by its function, its arguments, and in the place of
    those that others give by what these are known by.

    Args:
        template_of: gives the template of a function's calls.
    """

    def __init__(
        self,
        run: KeptRun,
        numbers: Iterator[int],
        template_of: Callable[[Callable[..., Any]], CallTemplate],
    ) -> None:
        self._run = run
        self._numbers = numbers
        self._template_of = template_of
        self._functions: dict[int, KeptFunction] = {}
        self._known: dict[Node, tuple[KeptFunction, bytes]] = {}
        self._numbered: dict[Node, int] = {}
        self._blocks: dict[Node, tuple[int, int]] = {}
        """Where calls are that were handed in before and are made again."""
        self._places: dict[int, tuple[KeptFunction, int, int, bool]] = {}
        """Of each task where its outcome is kept, and whether its key was asked for."""
        self._added: list[tuple[Node, int]] = []

    def left(self, wanted: Iterable[Node], calls: Sequence[Node]) -> list[Node]:
        """Return those of these calls, each of which comes after those that it needs, that are to
        be made for the wanted ones. What is known has become data.
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
        """Note what a call is known by, if it can be."""
        try:
            kept, call = self._kept_of(node.function), self._call(node)
        except Exception:  # it cannot travel, which is told when it is to; or needs such a call
            return
        if (keys := kept.keys_of([call], FULL)) is not None:
            self._known[node] = kept, keys[0]

    def _call(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        named = {name: self._named(one) for name, one in (node.kwargs or {}).items()}
        return tuple(map(self._named, node.args)), named

    def _kept_of(self, f: Any) -> KeptFunction:
        if id(f) not in self._functions:
            self._functions[id(f)] = self._run.function(f, self._template_of(f).function)
        return self._functions[id(f)]

    def _named(self, argument: Any) -> Any:
        """Return an argument with what stands for the results of calls."""
        if type(argument) is Node:
            node = argument.target or argument
            if node.function is None:
                return node.value
            if node.is_nested:
                return _RESULT, self._kept_of(node.function).identity, *self._call(node)
            kept, key = self._known[node]
            return _RESULT + kept.identity + key
        if type(argument) in (list, tuple):
            return type(argument)(map(self._named, argument))
        return argument

    def _become_data(self, node: Node) -> bool:
        if node not in self._known:
            return False
        kept, key = self._known[node]
        number = self._numbered[node] = next(self._numbers)
        piece, found = kept.look_up(key, number)
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
        """Return what stands for the result of a call that has failed before."""
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
        """Note, before the tasks are handed over, where what comes of them is kept."""
        by_function: dict[KeptFunction, list[tuple[Node, int]]] = {}
        for node, task in self._added:
            kept = self._known[node][0]
            if node in self._blocks:
                self._place(node, task, *self._blocks[node])
            else:
                by_function.setdefault(kept, []).append((node, task))
        for kept, pairs in by_function.items():
            pairs.sort(key=lambda pair: self._numbered[pair[0]])
            numbers = [self._numbered[node] for node, _ in pairs]
            keys = b"".join(self._known[node][1] for node, _ in pairs)
            block = kept.add_block(FULL, numbers, None, keys)
            for offset, (node, task) in enumerate(pairs):
                self._place(node, task, block, offset)
        self._added.clear()

    def _place(self, node: Node, task: int, block: int, offset: int) -> None:
        kept = self._known[node][0]
        self._places[task] = kept, block, offset, node.is_wanted
        kept.hand_over(task, 0, 1, block, offset)

    def settled(self, event: CallsFinished) -> None:
        """Keep what has come of a task, in the I/O thread: what it gave, unless that is large, has
        stayed at a worker, and was not asked for; or its own failure.
        """
        place = self._places.pop(event.task, None)
        if place is None or event.path:
            return
        kept, block, offset, is_wanted = place
        if is_wanted or type(event.payload) is not KeptPayload:
            kept.note(block, offset, offset + 1, event)
