"""The maps, single calls, graphs and jobs of a named run.

Each of them asks the run (`named_run`) which calls have a result. Calls with a result are not
submitted. The outcomes of all other calls are written to the run's file as they arrive. In a graph,
a node with a known result becomes data, and nodes that only such nodes need are not computed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from gridengine.calls.interface import Dispatcher
from gridengine.client.batch import Batch
from gridengine.client.batcher import Batcher
from gridengine.client.executor_submissions import TrackedSubmission
from gridengine.client.future import CallFuture, CallTemplate, UndecodedResult
from gridengine.client.graph import Node, key_text
from gridengine.client.initializer import Initializer
from gridengine.client.named_run import OpenRun, Place, RunFunction, RunUser
from gridengine.client.options import RunOptions
from gridengine.client.outcomes import Outcome, outcomes_of
from gridengine.client.submission import MapRequest, Submission
from gridengine.dispatcher.core.tasks import CallsFinished, Function, Task
from gridengine.dispatcher.unsettled import Listener
from gridengine.journal.known_calls import Piece
from gridengine.journal.what_counts import check_ignored
from gridengine.schedulers.base import SchedulerSpec
from gridengine.serialize import pickling
from gridengine.serialize.payload import FULL, Payload
from gridengine.serialize.references import Reference
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
        self.submit, self.close = run.submit, run.close
        self._numbers = numbers
        self._template_of = template_of
        self._functions: dict[int, RunFunction] = {}
        self._known: dict[Node, tuple[RunFunction, bytes]] = {}
        self._numbered: dict[Node, int] = {}
        self._blocks: dict[Node, tuple[int, int]] = {}
        """The places in the file of calls that were made before and are made again."""
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
        function = replace(template.function, name=name)
        return CallFuture(replace(template, function=function), None, UndecodedResult(event))

    def added(self, node: Node, task: int) -> None:
        """Note which task makes a call."""
        if node in self._known:
            self._added.append((node, task))

    def hand_over(self) -> None:
        """Note, before the tasks are handed over, where their outcomes are recorded."""
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
        # A large result that stays at its worker is not fetched for the file alone.
        self._run.expect(task, [Place(0, 1, block, offset, only_here=not node.is_wanted)])


Add: TypeAlias = Callable[[Sequence[Any], int], int]


class RunSubmission(Submission):
    """A submission whose results are recorded in a named run. Call `record_in` first."""

    _run: OpenRun
    _run_function: RunFunction
    _closes_run = False

    @classmethod
    def of(cls, request: MapRequest) -> Self:
        """Return a submission for a user's request, like `Submission.of`.

        Raises:
            JournalError: another process has the run, or its file cannot be read.
        """
        assert request.named_run is not None
        check_ignored(request.f, request.named_run.ignore)
        run = OpenRun(request.named_run, request.scheduler, request.initializer)
        try:
            made = super().of(replace(request, scheduler=run.place))
            made.run_name, made._closes_run = request.named_run.name, True
            made.record_in(run, run.function(request.f, made._function), run.first)
        except BaseException:
            run.close()
            raise
        return made

    def record_in(self, run: OpenRun, run_function: RunFunction, first: int) -> None:
        """Record the outcomes of these calls. The first of them is number `first` of the run."""
        self._run = self.recorder = run
        self._run_function = run_function
        self._first = first

    def add(self, calls: Sequence[Any], first: int) -> int:
        """Add the calls that are not known as tasks; the others get their outcomes at once."""
        return self._add_unknown(calls, first, self._add)

    def add_what_can_travel(self, calls: Sequence[Any], first: int) -> int:
        return self._add_unknown(calls, first, self._add_what_can_travel)

    def _add_unknown(self, calls: Sequence[Any], first: int, add: Add) -> int:
        """Look up calls, put the outcomes of known ones into the queue, and add the others. Return
        the size of the calls in bytes.
        """
        run_function = self._run_function
        pieces = run_function.take(calls, self._form, self._first + first)
        if pieces is None:
            return self._add_halves(calls, first, add)
        size = 0
        for piece in pieces:
            outcomes = self._outcomes(piece, first)
            if outcomes is None:
                size += self._add_new(calls[piece.start : piece.stop], first, piece, add)
            else:
                for outcome in outcomes:
                    self._events.put(outcome)
        return size or run_function.pickled

    def _add_halves(self, calls: Sequence[Any], first: int, add: Add) -> int:
        """Add calls of which some have no key; those are not recorded. Halving finds them."""
        if len(calls) > 1:
            half = len(calls) // 2
            size = self._add_unknown(calls[:half], first, add)
            return size + self._add_unknown(calls[half:], first + half, add)
        return add(calls, first)

    def _outcomes(self, piece: Piece, first: int) -> list[Outcome] | None:
        """Return the outcomes of known calls; None if they must be made."""
        found = self._run_function.outcome(piece)
        if found is None:
            return None
        if isinstance(found, CallsFinished):
            return outcomes_of(found, self._function.name, first=first)
        return [Outcome(first + piece.start, first + piece.stop, found, None)]

    def _add_new(self, calls: Sequence[Any], first: int, piece: Piece, add: Add) -> int:
        """Add the calls of an unknown piece, and note where the outcomes of their tasks are
        recorded: in their block or, if they are new, in a block that is added.
        """
        first += piece.start
        block, keys = piece.block, None
        if not block and not self._run_function.are_plain(calls):
            keys = self._run_function.keys_of(calls, self._form)
            if keys is None:
                return self._add_halves(calls, first, add)
        before = len(self._added)
        size = add(calls, first)
        tasks = self._added[before:]
        if not block:
            arguments = tasks[0].payload if len(tasks) == 1 else None
            block = self._run_function.new_block(
                calls, self._form, self._first + first, arguments, keys
            )
        for task in tasks:
            place = Place(0, task.count, block, piece.offset + task.first - first)
            self._run.expect(task.id, [place])
        return size

    def note_all_sent(self) -> None:
        super().note_all_sent()
        self._run_function.log_counts()

    def close(self) -> None:
        """Close like `Submission`. Afterwards all outcomes are on disk."""
        try:
            super().close()
        finally:
            if self._closes_run:
                self._run.close()


class TrackedRunSubmission(RunSubmission, TrackedSubmission):
    """A recorded submission of an executor."""


class RunFuture(CallFuture):
    """The future of a call whose outcome is to be recorded: the call's function in the run, its
    key, its number in the run's order, and its place in the run's file (`block` and `offset`; block
    0 if it has none yet).
    """

    __slots__ = ("block", "key", "number", "offset", "run_function")

    def __init__(
        self, template: CallTemplate, call: Any, run_function: RunFunction, key: bytes
    ) -> None:
        super().__init__(template, call)
        self.run_function, self.key = run_function, key
        self.number = self.block = self.offset = 0


class RunCalls(RunUser):
    """Records the single calls of an executor that uses a named run."""

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
            run_function = self._run.function(f, template.function)
            keys = run_function.keys_of([given], template.form)
            if keys is None:
                return CallFuture(template, call)
            number = next(self._numbers)
            piece, found = run_function.look_up(keys[0], number)
        if found is not None:
            outcome = UndecodedResult(found) if isinstance(found, CallsFinished) else found[0]
            return CallFuture(template, None, outcome)
        future = RunFuture(template, call, run_function, keys[0])
        future.number, future.block, future.offset = number, piece.block, piece.offset
        return future

    def submission(
        self,
        f: Callable[..., Any],
        template: CallTemplate,
        batcher: Batcher,
        references: tuple[Reference, ...],
    ) -> TrackedRunSubmission:
        """Return a submission of many calls, which count as one map of the run."""
        made = TrackedRunSubmission(template, batcher, references)
        with self._lock:
            run_function = self._run.function(f, template.function)
            made.record_in(self._run, run_function, self._run.begin())
        return made

    def graph(self, template_of: Callable[[Callable[..., Any]], CallTemplate]) -> RunGraph:
        """Return the recorder for a graph's calls."""
        return RunGraph(self._run, self._numbers, template_of)

    def submit(
        self, dispatcher: Dispatcher, function: Function, tasks: Sequence[Task], batch: Batch
    ) -> None:
        """Submit a batch as its one task, and record the outcomes of its calls."""
        [task] = tasks
        new = [one for one in batch.futures if isinstance(one, RunFuture) and not one.block]
        if new:
            self._add_block(new, batch, task.payload)
        self._run.expect(task.id, [*_places(batch.futures)])
        self._run.submit(dispatcher, function, tasks, batch)

    def _add_block(self, new: list[RunFuture], batch: Batch, payload: Payload) -> None:
        arguments = payload if len(new) == len(batch.futures) else None
        keys = b"".join(one.key for one in new)
        numbers = [one.number for one in new]
        block = new[0].run_function.add_block(batch.template.form, numbers, arguments, keys)
        for offset, one in enumerate(new):
            one.block, one.offset = block, offset


def _places(futures: Iterable[CallFuture]) -> Iterator[Place]:
    """Yield a place for each row of calls whose places in the file are consecutive."""
    numbered = [(item, one) for item, one in enumerate(futures) if isinstance(one, RunFuture)]
    for (block, _), group in itertools.groupby(
        numbered, lambda pair: (pair[1].block, pair[1].offset - pair[0])
    ):
        row = list(group)
        yield Place(row[0][0], row[-1][0] + 1, block, row[0][1].offset)


Submit: TypeAlias = Callable[[Function, Sequence[Task], Listener], None]


class RunJobs(RunUser):
    """Records jobs in a named run. A job is known by its target and the target's arguments."""

    _submitter = 0
    """The submitter's number of all jobs, once there are any."""

    def submit_of(self, target: Any, call: Any, dispatcher: Dispatcher) -> Submit | None:
        """Return a function that submits a job to this dispatcher and records its outcome or, if
        the outcome is known, settles the job with it. `call` is the call of the job's target. If
        the job cannot be recorded, return None.
        """
        digest, payload = pickling.dump_function(target)
        run_function = self._run.function(target, Function(digest, payload, (), b"", ""))
        keys = run_function.keys_of([call], FULL)
        if keys is None:
            return None
        number = next(self._numbers)
        piece, found = run_function.look_up(keys[0], number)
        if found is not None:
            if not isinstance(found, CallsFinished):
                found = CallsFinished(0, 0, 1, pickling.dump_values(found))
            end = found
            return lambda function, tasks, listener: listener.settled(end)
        block, offset = piece.block, piece.offset
        if not block:
            arguments = pickling.dump_calls([call])
            block = run_function.add_block(FULL, [number], arguments, keys[0])
        submitter = self._submitter = self._submitter or dispatcher.new_id()

        def submit(function: Function, tasks: Sequence[Task], listener: Listener) -> None:
            [task] = tasks
            self._run.expect(task.id, [Place(0, 1, block, offset)])
            self._run.submit(dispatcher, function, [replace(task, submitter=submitter)], listener)

        return submit
