"""The maps, single calls, graphs and jobs of a named run.

Each of them asks the run (`named_run`) which calls have a result. Calls with a result are not
submitted. The outcomes of all other calls are written to the run's file as they arrive. In a graph,
a node with a known result becomes data, and nodes that only such nodes need are not computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gridengine.calls.interface import Dispatcher
from gridengine.client.future import CallFuture, CallTemplate
from gridengine.client.future_outcomes import UndecodedResult
from gridengine.client.graph import Node, key_text
from gridengine.client.hand_in import TaskMaker
from gridengine.client.initializer import Initializer
from gridengine.client.named_run import OpenRun, RecordPlace, RunCall, RunFunction
from gridengine.client.options import RunOptions
from gridengine.client.outcomes import Outcome, outcomes_of
from gridengine.dispatcher.unsettled import Listener
from gridengine.journal.known_calls import Piece
from gridengine.requests import CallsFinished, Function, Task
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL
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
        self, run: OpenRun, template_of: Callable[[Callable[..., Any]], CallTemplate]
    ) -> None:
        self._run = run
        self._template_of = template_of
        self._functions: dict[int, RunFunction] = {}
        self._known: dict[Node, tuple[RunFunction, bytes]] = {}
        self._made: dict[Node, RunCall] = {}
        """The calls that are to be made and recorded."""
        self._added: list[tuple[int, int, RunCall]] = []

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
        run_call = self._run.look_up(*self._known[node], FULL)
        found = run_call.found
        if found is None:
            self._made[node] = run_call
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
        function = replace(template.function, name=name)
        return CallFuture(replace(template, function=function), None, UndecodedResult(event))

    def added(self, node: Node, task: int) -> None:
        """Note which task makes a call."""
        if (run_call := self._made.get(node)) is not None:
            # A large result that stays at its worker is not fetched for the file alone.
            run_call.only_here = not node.is_wanted
            self._added.append((task, 0, run_call))

    def hand_over(self) -> None:
        """Note, before the tasks are handed over, where their outcomes are recorded."""
        self._run.expect_calls(self._added)
        self._added.clear()


class MapPart(Struct, frozen=True):
    """Consecutive calls of a map; `first` is the number of the first in the map. Either their
    outcomes are known, or they are to be made; without a `piece` they are not recorded. `keys` are
    those of new calls, None if they follow from the arguments.
    """

    calls: Sequence[Any]
    first: int
    outcomes: list[Outcome] | None = None
    piece: Piece | None = None
    keys: Sequence[bytes] | None = None


class RunMap:
    """One map of a named run.

    Args:
        f: the function by which the run knows the calls; `maker` makes their tasks.
        first: the number of the map's first call in the run.
    """

    def __init__(self, run: OpenRun, f: Callable[..., Any], maker: TaskMaker, first: int) -> None:
        self._run, self.run_function = run, run.function(f, maker.function)
        self._name, self._form, self._first = maker.function.name, maker.form, first

    def parts(self, calls: Sequence[Any], first: int) -> Iterator[MapPart]:
        """Ask for calls, of which the first is number `first` of the map. The parts that are to be
        made must be added, in turn, before the next is taken.
        """
        run_function = self.run_function
        pieces = run_function.take(calls, self._form, self._first + first)
        if pieces is None:
            yield from self._halves(calls, first)
            return
        for piece in pieces:
            part = MapPart(calls[piece.start : piece.stop], first + piece.start, piece=piece)
            found = run_function.outcome(piece)
            if found is not None:
                yield replace(part, outcomes=self._outcomes(found, first, piece))
            elif piece.block or run_function.are_plain(part.calls):
                yield part
            elif (keys := run_function.keys_of(part.calls, self._form)) is not None:
                yield replace(part, keys=keys)
            else:
                yield from self._halves(part.calls, part.first)

    def _halves(self, calls: Sequence[Any], first: int) -> Iterator[MapPart]:
        """Find the calls without a key by halving; they are not recorded."""
        half = len(calls) // 2
        if not half:
            yield MapPart(calls, first)
            return
        yield from self.parts(calls[:half], first)
        yield from self.parts(calls[half:], first + half)

    def _outcomes(
        self, found: Sequence[Any] | CallsFinished, first: int, piece: Piece
    ) -> list[Outcome]:
        if isinstance(found, CallsFinished):
            return outcomes_of(found, self._name, first=first)
        return [Outcome(first + piece.start, first + piece.stop, found, None)]

    def expect(self, part: MapPart, tasks: Sequence[Task]) -> None:
        """Note where the outcomes of a part's tasks are recorded: in their block or, if the calls
        are new, in a block that is added.
        """
        if part.piece is None:
            return
        block, offset = part.piece.block, part.piece.offset
        if not block:
            arguments = tasks[0].payload if len(tasks) == 1 else None
            block = self.run_function.new_block(
                part.calls, self._form, self._first + part.first, arguments, part.keys
            )
        for task in tasks:
            place = RecordPlace(0, task.count, block, offset + task.first - part.first)
            self._run.expect(task.id, [place])


class RunFuture(CallFuture):
    """The future of a call whose outcome is to be recorded."""

    __slots__ = ("run_call",)

    def __init__(self, template: CallTemplate, call: Any, run_call: RunCall) -> None:
        super().__init__(template, call)
        self.run_call = run_call


class RunCalls(OpenRun):
    """The named run of an executor."""

    def __init__(
        self, options: RunOptions, place: SchedulerSpec, initializer: Initializer | None
    ) -> None:
        super().__init__(options, place, initializer)
        self.options = replace(options, resume=options.resume or True)
        """Options for maps that share the run. They resume even with `resume=False`, because the
        run has begun anew already.
        """
        self._lock = threading.Lock()

    def future_of(
        self, f: Callable[..., Any], template: CallTemplate, call: Any, given: Any
    ) -> CallFuture:
        """Return the future of a call, with its outcome if that is known. `call` is the call to
        hand over, `given` the call as the user gave it.
        """
        with self._lock:
            self.check_ignored(f, template.function)
            run_call = self.ask(f, template.function, given, template.form)
        if run_call is None:
            return CallFuture(template, call)
        found = run_call.found
        if found is None:
            return RunFuture(template, call, run_call)
        outcome = UndecodedResult(found) if isinstance(found, CallsFinished) else found[0]
        return CallFuture(template, None, outcome)

    def begin_map(self, f: Callable[..., Any], template: CallTemplate) -> RunMap:
        """Begin a map of the run."""
        with self._lock:
            self.check_ignored(f, template.function)
            return RunMap(self, f, template, self.begin())

    def expect_batch(self, task: Task, futures: Iterable[CallFuture]) -> None:
        """Note where the outcomes of this task's calls are recorded, before it is handed over."""
        its = [
            (task.id, item, one.run_call)
            for item, one in enumerate(futures)
            if isinstance(one, RunFuture)
        ]
        self.expect_calls(its, task.payload if len(its) == task.count else None)


class RunJobs(OpenRun):
    """The named run of jobs. A job is known by its target and the target's arguments."""

    _submitter = 0
    """The submitter's number of all jobs, once there are any."""

    def submit_job(
        self,
        dispatcher: Dispatcher,
        function: Function,
        task: Task,
        listener: Listener,
        call: tuple[Any, Any],
    ) -> None:
        """Submit a job, and record its outcome if the job has a key; or, if the outcome is known,
        settle the job with it. `call` is the job's target, and the target's arguments.
        """
        target, given = call
        digest, payload = pickling.dump_function(target)
        its = Function(digest=digest, payload=payload, path=(), directory=b"", name="")
        self.check_ignored(target, its)
        run_call = self.ask(target, its, given, FULL)
        if run_call is None:
            dispatcher.submit(function, [task], listener)
        elif (found := run_call.found) is not None:
            if not isinstance(found, CallsFinished):
                found = CallsFinished(0, 0, 1, pickling.dump_values(found))
            listener.settled(found)
        else:
            self._submitter = self._submitter or dispatcher.new_id()
            self.expect_calls([(task.id, 0, run_call)], task.payload)
            task = replace(task, options=replace(task.options, submitter=self._submitter))
            self.submit(dispatcher, function, [task], listener)
