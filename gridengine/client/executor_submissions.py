"""The maps and graphs of an executor: their calls are ended and waited for together with the
executor's single calls.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

import msgspec

from gridengine.client.batch import Batch
from gridengine.client.batcher import Batcher
from gridengine.client.call_sequence import CallSequence
from gridengine.client.dependencies import introduce, pickled
from gridengine.client.future import (
    CANCELLED,
    MOST_CALLS,
    RUNNING,
    CallFuture,
    CallTemplate,
    Failed,
    UndecodedResult,
)
from gridengine.client.graph import Node, WrittenCall, key_text, written
from gridengine.client.outcomes import Outcome, OutcomeListener, OutcomeRecorder
from gridengine.client.settlement import ended_by_close
from gridengine.client.submission import HandedTask, Submission
from gridengine.dispatcher.core.tasks import CallsFinished, ResultData, Task
from gridengine.errors import UNNUMBERED, CallError, call_words
from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import HiddenArguments
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.payload import ATOMS, FULL, Payload
from gridengine.serialize.references import Reference, awaited_in, new_number, numbers
from gridengine.serialize.shared_objects import identity, needs_of
from gridengine.serialize.unpicklable import name_of


class TrackedSubmission(Submission):
    """A submission that a batcher waits for, cancels and kills together with its other calls. The
    future `end` is done once all calls have ended.
    """

    def __init__(
        self, template: CallTemplate, batcher: Batcher, references: tuple[Reference, ...]
    ) -> None:
        super().__init__(
            batcher.dispatcher,
            template.function,
            template.form,
            template.options,
            batcher.submitter,
        )
        self._needed_by_all = references
        self.end = CallFuture(template, None, RUNNING)
        self._pace = template.pace
        self._batcher = batcher
        self._ending = threading.Lock()
        self._all_sent = False
        batcher.begin({})

    def flush(self) -> None:
        """Send the tasks that were added. If the dispatcher raises an exception, it is the outcome
        of their calls.

        Raises:
            RuntimeError: the batcher was closed meanwhile.
        """
        tasks = {task.id: self._tasks[task.id] for task in self._added}
        self._batcher.note_handed(tasks)
        try:
            super().flush()
        except BaseException as error:
            why = ended_by_close(error, self.dispatcher)
            self.dispatcher.cancel(list(tasks))
            for id, task in tasks.items():
                if self._tasks.pop(id, None) is not None:
                    self._added_bytes -= task.size
                    self._batcher.note_ended(id, task.count, failed=True)
                    stop = task.first + task.count
                    self._events.put(Outcome(task.first, stop, (), why))
            if not isinstance(error, Exception):
                raise

    def settled(self, event: CallsFinished) -> None:
        if event.raised and event.payload is not None:
            self._batcher.note_raised(event.payload)
        failed = event.raised or event.payload is None
        super().settled(event)
        ended = None if event.task in self._tasks else event.task
        self._batcher.note_ended(ended, event.stop - event.start, failed=failed)
        if event.seconds is not None:
            self._pace.measured(event.stop - event.start, event.seconds)
        self._end_if_all_settled()

    def note_all_sent(self) -> None:
        super().note_all_sent()
        self._all_sent = True
        self._end_if_all_settled()

    def _end_if_all_settled(self) -> None:
        if self._all_sent and not self._tasks:
            with self._ending:
                if self.end.done():
                    return
                self._batcher.end(self.end)


FunctionTemplates: TypeAlias = tuple[tuple[CallTemplate, ...], tuple[Reference, ...]]
"""The templates of a function's calls, for each form, and the references in the function itself."""


class GraphRecorder(OutcomeRecorder, Protocol):
    """Records the outcomes of a graph's calls in the file of a named run."""

    def added(self, node: Node, task: int) -> None:
        """Note which task makes a call."""

    def hand_over(self) -> None:
        """Note, before the tasks are handed over, where their outcomes are recorded."""


class GraphSubmission(OutcomeListener):
    """The calls of a graph: `add` each, in topological order, then `hand_over`. The future `end` is
    done once all of them have ended.

    Args:
        templates_of: returns the templates of a function's calls, for each form.
        unsent: returns a template with a function's name, for futures of calls that are not handed
            over.
    """

    def __init__(
        self,
        batcher: Batcher,
        templates_of: Callable[[Callable[..., Any]], FunctionTemplates],
        unsent: Callable[[Callable[..., Any]], CallTemplate],
    ) -> None:
        self._batcher = batcher
        self._dispatcher = batcher.dispatcher
        self._templates_of = templates_of
        self._templates: dict[Any, FunctionTemplates] = {}
        self._unsent = unsent
        self._groups: list[tuple[CallTemplate, list[Task]]] = []
        self._group_of: dict[CallTemplate, list[Task]] = {}
        self._referred: list[Reference] = []
        """References to the users' own futures; they must live until the calls have been handed
        over.
        """
        self._supplied: list[tuple[int, ResultData]] = []
        self._futures: dict[Node, Future[Any]] = {}
        self._unsettled: dict[int, Batch | None] = {}
        """The tasks that have not ended, each with its future as a batch of one, or None if nobody
        asks for its key.
        """
        self._keys: dict[int, Any] = {}
        """The keys of the tasks that have not ended; for a fused task, the list of the names of its
        steps.
        """
        self._needed: dict[int, int] = {}
        """The references of tasks that have a future and that other tasks need."""
        self._failed: dict[int, tuple[Any, str]] = {}
        """Failures of calls that failed by themselves, by `id`, each with the name of its node."""
        self.recorder: GraphRecorder | None = None
        """Records the outcomes of the calls, if they belong to a named run."""
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
        if references:
            after += numbers(references)
        task = template.options.task(
            self._dispatcher.new_id(),
            payload,
            form=template.form,
            first=UNNUMBERED,
            submitter=self._batcher.submitter,
            after=tuple(after),
            kept=((0, node.reference),) if node.reference else (),
        )
        self._referred.extend(references)
        self._note(node, task.id, template, call.steps)
        # One submission for each template. An inline dispatcher runs tasks as it gets them, so
        # there the topological order must hold across templates too.
        tasks = self._group_of.get(template)
        if tasks is None or (self._dispatcher.at_once and self._groups[-1][1] is not tasks):
            tasks = self._group_of[template] = []
            self._groups.append((template, tasks))
        tasks.append(task)

    def _note(
        self, node: Node, task: int, template: CallTemplate, steps: Sequence[str] | None
    ) -> None:
        """Record the key and the future of a task before it is handed over, so that its end finds
        them.
        """
        if self.recorder is not None:
            self.recorder.added(node, task)
        self._unsettled[task] = None
        self._keys[task] = node.key if steps is None else steps
        if node.is_wanted:
            future = self._futures[node] = CallFuture(template, None, RUNNING)
            future.place = task * MOST_CALLS
            self._unsettled[task] = Batch([future], 0, _take_no_event)
            if node.reference:
                self._needed[task] = node.reference

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
            payload = _dumped(node, call, form)
        except Exception:
            for one in node.sequence or ():  # raise the error of the step that cannot be pickled
                _dumped(one, (one.args, one.kwargs or {}), FULL)
            raise
        return templates[form], payload, (*introduce(payload, self._dispatcher), *references)

    def _share(self, node: Node) -> None:
        """Pickle data once that several nodes need. If it cannot be pickled, each of these nodes
        gets the error, with its own name.
        """
        with contextlib.suppress(Exception):
            payload = None if node.reference else pickling.dump_calls([node.value])
            if payload is not None and not awaited_in(payload) and not needs_of(payload):
                node.reference = new_number()
                self._supplied.append((node.reference, ResultData(payload)))

    def _templates_for(self, key: Any, function: Any) -> FunctionTemplates:
        """Return templates that belong to this graph only, so that the batcher does not recall its
        calls with others.
        """
        found = self._templates.get(key)
        if found is None:
            made = CallSequence(function) if type(function) is tuple else function
            templates, references = self._templates_of(made)
            own = tuple(msgspec.structs.replace(one) for one in templates)
            found = self._templates[key] = own, references
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
        if self.recorder is not None:
            self.recorder.hand_over()
        batches = {task: one for task, one in self._unsettled.items() if one is not None}
        self._wanted = len(batches)
        self._batcher.begin(batches)
        others = {task: HandedTask(0, 1, 1, 0) for task in self._unsettled.keys() - batches.keys()}
        self._batcher.note_handed(others)
        try:
            self._send()
        except BaseException as error:
            self._dispatcher.cancel(list(self._unsettled), signal.SIGKILL)
            for task, batch in batches.items():
                self._batcher.settle(task, batch, Failed(error))
            for task in self._unsettled.keys() & others.keys():
                self._batcher.note_ended(task, 1, failed=True)
            self._unsettled.clear()
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
                self._dispatcher.supply(reference, data)
            for template, tasks in self._groups:
                references += [reference for task in tasks for _, reference in task.kept]
                if self.recorder is None:
                    self._dispatcher.submit(template.function, tasks, self)
                else:
                    self.recorder.submit(self._dispatcher, template.function, tasks, self)
        finally:
            self._dispatcher.release_references(references)

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

    def settled(self, event: CallsFinished) -> None:
        """Settle the future of a task, if it has one. Name the node in errors. When nobody waits
        for the remaining tasks, recall them.
        """
        if event.raised and event.payload is not None:
            self._batcher.note_raised(event.payload)
        batch, key = self._unsettled.pop(event.task, None), self._keys.pop(event.task, None)
        reference = self._needed.pop(event.task, None)
        if reference is not None and batch is not None and event.recalled and not event.path:
            first = _named(
                call_words(batch.template.function.name, UNNUMBERED, 0), _node_at(event, key)
            )
            self._dispatcher.supply(reference, ResultData(cancelled=True, path=(first,)))
        if event.raised or event.error is not None:
            node = _node_at(event, key)
            event = self._with_node(event, node)
            # Without attempts, other calls share the error.
            if event.error is not None and event.attempts and node:
                note_on(event.error, [f"in node {node}"])
        if batch is not None:
            outcome = CANCELLED if event.recalled else UndecodedResult(event, HiddenArguments())
            self._batcher.settle(event.task, batch, outcome, event.path)
            self._wanted -= 1
            if not self._wanted and self._unsettled:  # nobody asks for the results of the others
                self._dispatcher.recall([(task, 0, 1) for task in list(self._unsettled)])
        else:
            failed = event.raised or event.error is not None
            self._batcher.note_ended(event.task, 1, failed=failed)
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
        if not self._unsettled and not self.end.done():
            self._batcher.end(self.end)


def _dumped(node: Node, call: Any, form: int) -> Payload:
    return pickling.dump_calls([call], form=form, describe=lambda _: f"node {key_text(node.key)}")


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


def _take_no_event(batch: Batch, event: CallsFinished) -> None:
    """Do nothing: the submission itself is the listener."""
