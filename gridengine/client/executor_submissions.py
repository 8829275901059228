"""The maps and graphs of an executor: their calls are ended and waited for together with the
executor's single calls.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from gridengine.client.batcher import Batcher
from gridengine.client.call_sequence import CallSequence
from gridengine.client.dependencies import pickled
from gridengine.client.executor_lifetime import ended_by_close
from gridengine.client.future import MOST_CALLS, CallFuture, CallTemplate
from gridengine.client.future_outcomes import RUNNING, Failed, UndecodedResult
from gridengine.client.graph import Node, WrittenCall, key_text, written
from gridengine.client.hand_in import HandedTask, HandedTasks, TaskMaker
from gridengine.client.outcomes import Outcome
from gridengine.client.submission import MapTask, Submission
from gridengine.errors import UNNUMBERED, CallError, call_words
from gridengine.requests import CallsFinished, ResultData, Task
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.payload import ATOMS, FULL, Payload
from gridengine.serialize.references import Reference, awaited_in, new_number, numbers
from gridengine.serialize.shared_objects import identity, needs_of
from gridengine.serialize.unpicklable import name_of

if TYPE_CHECKING:
    from gridengine.client.named_run_calls import RunGraph


class TrackedSubmission(Submission):
    """A submission that a batcher waits for, cancels and kills together with its other calls. The
    future `end` is done once all calls have ended.
    """

    def __init__(
        self, template: CallTemplate, batcher: Batcher, references: tuple[Reference, ...]
    ) -> None:
        super().__init__(template)
        self._needed_by_all = references
        self.end = CallFuture(template, None, RUNNING)
        self._pace = template.pace
        self._batcher = batcher
        self._all_sent = False
        batcher.begin(self, self.end)

    def flush(self) -> None:
        """Send the tasks that were added. If the dispatcher raises an exception, it is the outcome
        of their calls.

        Raises:
            RuntimeError: the batcher was closed meanwhile.
        """
        tasks = {task.id: self._handed[task.id] for task in self._added}
        self._batcher.check()
        self._batcher.count(sum(task.count for task in tasks.values()))
        try:
            super().flush()
        except BaseException as error:
            why = ended_by_close(error, self.dispatcher)
            self.dispatcher.cancel(list(tasks))
            for id, task in tasks.items():
                if self._handed.pop(id, None) is not None:
                    self._added_bytes -= task.size
                    self._batcher.count_ended(task.count, failed=True)
                    stop = task.first + task.count
                    self._events.put(Outcome(task.first, stop, (), why))
            if not isinstance(error, Exception):
                raise

    def _take_outcome(self, task: MapTask, event: CallsFinished) -> None:
        self._batcher.note_raised(event)
        super()._take_outcome(task, event)
        calls, failed = event.stop - event.start, event.raised or event.payload is None
        self._batcher.count_ended(calls, failed=failed)
        if event.seconds is not None:
            self._pace.measured(calls, event.seconds)
        if not task.unsettled:
            self._end_if_all_settled()

    def note_all_sent(self) -> None:
        super().note_all_sent()
        self._all_sent = True
        self._end_if_all_settled()

    def _end_if_all_settled(self) -> None:
        if self._all_sent and not self._handed:
            self._batcher.end(self)


FunctionTemplates: TypeAlias = tuple[tuple[CallTemplate, ...], tuple[Reference, ...]]
"""The templates of a function's calls, for each form, and the references in the function itself.
Futures have templates, and must not keep the results alive for which the references stand.
"""


class GraphTask(HandedTask):
    """A task of a graph. `key` is its node's key; for a fused task, the list of the names of its
    steps. `future` is there if the user asks for the key, and `reference` if then other tasks need
    the result too.
    """

    key: Any
    future: CallFuture | None = None
    reference: int = 0


class GraphSubmission(HandedTasks[GraphTask]):
    """The calls of a graph: `add` each, in topological order, then `hand_over`. The future `end` is
    done once all of them have ended.

    Args:
        templates_of: returns the templates of a function's calls, for each form.
        unsent: returns a template with a function's name, for futures of calls that are not handed
            over.
    """

    _run: RunGraph | None = None

    def __init__(
        self,
        batcher: Batcher,
        templates_of: Callable[[Callable[..., Any]], FunctionTemplates],
        unsent: Callable[[Callable[..., Any]], CallTemplate],
    ) -> None:
        super().__init__(batcher.dispatcher)
        self._batcher = batcher
        self._templates_of = templates_of
        self._templates: dict[Any, FunctionTemplates] = {}
        self._unsent = unsent
        self._groups: list[tuple[CallTemplate, list[Task]]] = []
        self._group_of: dict[CallTemplate, list[Task]] = {}
        self._referred: list[Reference] = []
        """References to users' own futures, which must live until the calls are handed over."""
        self._supplied: list[tuple[int, ResultData]] = []
        self._futures: dict[Node, Future[Any]] = {}
        self._failed: dict[int, tuple[Any, str]] = {}
        """Failures of calls that failed by themselves, by `id`, each with the name of its node."""
        self._wanted = 0
        """How many tasks with a future have not ended."""
        self.end = CallFuture(unsent(identity), None, RUNNING)

    def add(self, node: Node) -> None:
        """Add a call, with the calls that are fused with it. If it cannot be pickled, the error is
        the outcome of the node.
        """
        for one in node.needs:
            if one.function is None and one.users > 1 and type(one.value) not in ATOMS:
                self._share(one)
        if node.users:
            node.reference = new_number()
        try:
            call = written(node)
            template, payload, references = self._pickled(node, call)
        except Exception as error:
            self._fail(node, error)
            return
        after = [one.reference for one in node.needs if one.reference]
        after += numbers(references)
        kept = ((0, node.reference),) if node.reference else ()
        task = template.task(payload, after=tuple(after), kept=kept)
        self._referred.extend(references)
        self._note(node, task.id, template, call.steps)
        # One submission for each template. An inline dispatcher runs tasks as it gets them, so
        # there the topological order must hold across templates too.
        tasks = self._group_of.get(template)
        if tasks is None or (self.dispatcher.at_once and self._groups[-1][1] is not tasks):
            tasks = self._group_of[template] = []
            self._groups.append((template, tasks))
        tasks.append(task)

    def _note(
        self, node: Node, task: int, template: CallTemplate, steps: Sequence[str] | None
    ) -> None:
        """Record a task's key and future before it is handed over, so that its end finds them."""
        if self._run is not None:
            self._run.added(node, task)
        one = self._handed[task] = GraphTask(1, 1, node.key if steps is None else steps)
        if node.is_wanted:
            one.future = self._futures[node] = CallFuture(template, None, RUNNING)
            one.future.place = task * MOST_CALLS
            one.reference = node.reference
            self._wanted += 1

    def _pickled(
        self, node: Node, made: WrittenCall
    ) -> tuple[CallTemplate, Payload, tuple[Reference, ...]]:
        """Return the template and the payload of a call, and the references in both to users' own
        futures.

        Raises:
            PicklingError: the call cannot be pickled; the text names the node.
        """
        key, function, form, call, is_plain, _ = made
        templates, references = self._templates_for(key, function)
        if is_plain:
            return templates[form], (pickle.dumps([call], 5),), references
        try:
            payload = _dumped(node, call, templates[form])
        except Exception:
            for one in node.sequence or ():  # raise the error of the step that cannot be pickled
                _dumped(one, (one.args, one.kwargs or {}), templates[FULL])
            raise
        return templates[form], payload, (*templates[form].introduce(payload), *references)

    def _share(self, node: Node) -> None:
        """Pickle data once that several nodes need. If it cannot be pickled, each of these nodes
        gets the error, with its own name.
        """
        with contextlib.suppress(Exception):
            payload = None if node.reference else self.end.template.pickled([node.value])
            if payload is not None and not awaited_in(payload) and not needs_of(payload):
                node.reference = new_number()
                self._supplied.append((node.reference, ResultData(payload)))

    def _templates_for(self, key: Any, function: Any) -> FunctionTemplates:
        found = self._templates.get(key)
        if found is None:
            made = CallSequence(function) if type(function) is tuple else function
            found = self._templates[key] = self._templates_of(made)
        return found

    def _fail(self, node: Node, error: Exception) -> None:
        if node.is_wanted:
            self._futures[node] = CallFuture(
                self._unsent(node.function or identity), None, Failed(error)
            )
        if node.reference:
            name = name_of(node.function or identity)
            self._supplied.append((node.reference, pickled(None, error, name)))

    def hand_over(self, wanted: Iterable[Node]) -> list[Future[Any]]:
        """Hand over all calls, and return the futures of these nodes. If the dispatcher raises an
        exception, it is the outcome of all of them.

        Raises:
            RuntimeError: the batcher is closed.
        """
        futures = [self._future_of(node) for node in wanted]
        if self._run is not None:
            self._run.hand_over()
        self._batcher.begin(self, self.end, calls=len(self._handed), futures=self._wanted)
        try:
            self._send()
        except BaseException as error:
            self.dispatcher.cancel(list(self._handed), signal.SIGKILL)
            left = list(self._handed.values())
            self._handed.clear()
            self._batcher.settle([one.future for one in left if one.future], Failed(error))
            self._batcher.count_ended(sum(one.future is None for one in left), failed=True)
            if not isinstance(error, Exception):
                raise
        finally:
            # The dispatcher has everything now, and releases each call once it has ended.
            for released in (self._groups, self._group_of, self._supplied, self._referred):
                released.clear()
            self._futures.clear()
            self._end_if_all_settled()
        return futures

    def _send(self) -> None:
        """Supply shared data and failures, submit the tasks, and release all references: tasks hold
        the references that they need.
        """
        references = [reference for reference, _ in self._supplied]
        try:
            for reference, data in self._supplied:
                self.dispatcher.supply(reference, data)
            for template, tasks in self._groups:
                references += [reference for task in tasks for _, reference in task.kept]
                self._submit(template.function, tasks, self)
        finally:
            self.dispatcher.release_references(references)

    def _future_of(self, node: Node) -> Future[Any]:
        future = self._futures.get(node)
        if future is None:
            value = node.value
            future = (
                value if isinstance(value, Future) else CallFuture(self.end.template, None, value)
            )
            self._futures[node] = future
        return future

    # -------------------------------------------------- in the I/O thread

    def _take_outcome(self, one: GraphTask, event: CallsFinished) -> None:
        """Settle the future of a task, if it has one. Name the node in errors."""
        self._batcher.note_raised(event)
        future = one.future
        if future is not None and one.reference and event.recalled and not event.path:
            call = call_words(future.template.function.name, UNNUMBERED, 0)
            path = (_named(call, _node_at(event, one.key)),)
            self.dispatcher.supply(one.reference, ResultData(cancelled=True, path=path))
        if event.raised or event.error is not None:
            node = _node_at(event, one.key)
            event = self._with_node(event, node)
            # Without attempts, other calls share the error.
            if event.error is not None and event.attempts and node:
                note_on(event.error, [f"in node {node}"])
        if future is None:
            failed = event.raised or event.error is not None
            self._batcher.count_ended(1, failed=failed)
        elif event.recalled:
            self._batcher.cancel([future], path=event.path)
        else:
            self._batcher.settle([future], UndecodedResult(event))
        if future is not None:
            self._wanted -= 1
            if not self._wanted and self._handed:  # nobody asks for the results of the others
                self.dispatcher.recall(self.handed())
        self._end_if_all_settled()

    def _with_node(self, event: CallsFinished, node: str) -> CallsFinished:
        """Return the end of a call that failed. If another call failed first, name that call's node
        in the path.
        """
        failure = event.error if event.payload is None else event.payload[0]
        if event.path and id(failure) in self._failed:
            first = _named(event.path[0], self._failed[id(failure)][1])
            return msgspec.structs.replace(event, path=(first, *event.path[1:]))
        if not event.path and node:
            # The failure itself is stored as well, so that its `id` is not used again.
            self._failed[id(failure)] = failure, node
        return event

    def _end_if_all_settled(self) -> None:
        if not self._handed:
            self._batcher.end(self)


def _dumped(node: Node, call: Any, maker: TaskMaker) -> Payload:
    return maker.pickled([call], lambda _: f"node {key_text(node.key)}")


def _node_at(event: CallsFinished, key: Any) -> str:
    """Return the name of the node that a call was at when it ended; empty if that is unknown. `key`
    is the node's key, or the list of the names of fused nodes.
    """
    if type(key) is not list:
        return key_text(key)
    step = event.error.step if isinstance(event.error, CallError) else 0
    return next(filter(None, key[step - 1 :]), "") if 0 < step <= len(key) else ""


def _named(call: str, node: str) -> str:
    """Return the name of a call, with its node if that is known."""
    return f"{call} (node {node})" if node else call
