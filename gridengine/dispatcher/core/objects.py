"""Objects that workers hold: functions, shared objects, and results that other calls need. When
they are sent and forgotten, and how a result is made again that was lost with its worker.

A result's *maker* is the task that has made it. Its *heirs* are the makers of other results that
took it as an input. A result that can be made again is forgotten when no call needs it. A result
that cannot be made again is kept while it has heirs, since they may have to run again.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gridengine.dispatcher.core import books, objects, pulls
from gridengine.dispatcher.core.calls import (
    AwaitedResult,
    OpenTask,
    RemoteObject,
    Span,
    TaskDetails,
    added,
)
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import READY, Worker
from gridengine.errors import UNNUMBERED
from gridengine.requests import Function, Task
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.shared_memory import IDLE_BYTES
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import Define, Fetch, Forget, Input, Reload, input_name

SMALL_INPUT = 16 * 1024
"""Results up to this size in bytes are sent with each call that needs them; larger ones once to
each worker.
"""
IDLE_FUNCTIONS = IDLE_RESULTS = 64
"""This many unused functions are kept here, and this many unused results at workers."""


def use_function(state: CoreState, function: Function) -> RemoteObject:
    """Return a function that tasks are about to use."""
    known = state.objects.get(function.digest)
    if known is None:
        known = state.objects[function.digest] = RemoteObject(
            function, size_of(function.payload), counts=state.counts_of(function.name)
        )
    state.retired.pop(function.digest, None)
    return known


def use_shared(state: CoreState, function: Function, task: Task) -> tuple[RemoteObject, ...]:
    """Return the shared objects that a task is about to use."""
    needs = all_needed(function.needs, task.needs)
    return _use(state, tuple(_shared(state, needed) for needed in needs))


def _use(state: CoreState, needs: tuple[RemoteObject, ...]) -> tuple[RemoteObject, ...]:
    """Return shared objects that a task is about to use. They may have been forgotten since another
    task used them.
    """
    needs = tuple(state.objects.setdefault(known.function.digest, known) for known in needs)
    for known in needs:
        known.open += 1
    return needs


def _shared(state: CoreState, needed: SharedObject) -> RemoteObject:
    known = state.objects.get(needed.name)
    if known is None:
        function = Function(
            needed.name, payload=needed.payload, path=(), directory=b"", name="a shared object"
        )
        known = RemoteObject(function, size_of(function.payload), shared=True, held=True)
    return known


def define(state: CoreState, worker: Worker, known: RemoteObject) -> None:
    """Send a worker a function or an object that it does not have."""
    function = known.function
    known.workers.add(worker.id)
    worker.functions.add(function.digest)
    message = Define(
        function.digest,
        list(function.path),
        function.directory,
        len(function.payload),
        shared=known.shared,
        caller=function.caller,
        result=known.result,
        codec=function.codec,
    )
    state.effects.append(Send(worker.id, message, function.payload))


def keep_result(state: CoreState, awaited: AwaitedResult, payload: Payload) -> None:
    """Store a result that other calls need. A large one becomes an object that workers are sent
    once.
    """
    size = len(payload[0]) if len(payload) == 1 else size_of(payload)
    if size > SMALL_INPUT:
        name = input_name(awaited.reference)
        known = RemoteObject(result_function(name, payload), size, result=True)
        awaited.remote = state.objects[name] = known


def keep_away(state: CoreState, awaited: AwaitedResult, size: int, worker: Worker | None) -> None:
    """Record a result of this size that stays at a worker; with None, at a worker that is already
    gone.
    """
    name = input_name(awaited.reference)
    known = RemoteObject(result_function(name, ()), size, result=True, away=True)
    if worker is not None:
        known.workers.add(worker.id)
        worker.functions.add(name)
    awaited.remote = state.objects[name] = known
    state.away[name], state.has_away = None, True


def result_function(name: bytes, payload: Payload) -> Function:
    """Return a result in the form of a function, by its name."""
    return Function(
        digest=name, payload=payload, path=(), directory=b"", name="the result of a call"
    )


def give_inputs(
    state: CoreState, worker: Worker, inputs: Iterable[AwaitedResult], payload: list[Buffer]
) -> list[Input]:
    """Add the small inputs of a call to its payload, and send its worker the large ones that it
    lacks. Return a description of all inputs.
    """
    given = []
    for awaited in inputs:
        data, remote = awaited.data, awaited.remote
        if data is None or (buffers := data.payload) is None:
            given.append(Input(awaited.reference, run=awaited.run))
            continue
        if remote is None:
            payload += buffers
            given.append(Input(awaited.reference, data.item, len(buffers)))
            continue
        state.idle_results.pop(remote.function.digest, None)
        if worker.id not in remote.workers and worker.id not in remote.pulls:
            (pulls.pull if remote.away else define)(state, worker, remote)
        given.append(Input(awaited.reference, data.item))
    return given


def forget_result(state: CoreState, known: RemoteObject) -> None:
    """Have workers forget a result that no call needs or will need."""
    state.idle_results.pop(known.function.digest, None)
    state.away.pop(known.function.digest, None)
    _forget(state, known.function.digest)


def rest_result(state: CoreState, known: RemoteObject) -> None:
    """Let workers keep an unused result for a while. Forget the results that are unused for
    longest, since each takes a descriptor at its worker; they are sent again if needed. One worker
    keeps a result that is not here.
    """
    idle = state.idle_results
    if len(known.workers) > (1 if known.away else 0):
        idle[known.function.digest] = known.size
    while len(idle) > IDLE_RESULTS or sum(idle.values()) > IDLE_BYTES:
        digest = next(iter(idle))
        del idle[digest]
        unused = state.objects[digest]
        stays = _holder(state, unused) if unused.away and unused.workers else b""
        forget_at_workers(state, unused, stays=stays)


def reload(state: CoreState, worker: Worker) -> None:
    """Have a worker start new runners: modules have changed that the present ones may have
    loaded.
    """
    worker.generation = state.generation
    state.effects.append(Send(worker.id, Reload()))


def let_go(state: CoreState, needs: tuple[RemoteObject, ...]) -> None:
    """Release the shared objects of an ended task."""
    for known in needs:
        known.open -= 1
        _forget_shared(state, known)


def clear(state: CoreState) -> None:
    """Forget all data. There are no workers any more, and other users of this core need no data."""
    for awaited in state.awaited.values():  # reference cycles that the garbage collector ignores
        awaited.waiting, awaited.maker = (), None
    for kept in (state.objects, state.retired, state.open_tasks, state.awaited, state.effects):
        kept.clear()
    state.away.clear()
    state.near.clear()
    state.idle_results.clear()


def released(state: CoreState, name: bytes) -> None:
    """Note that the last handle of a shared object is gone."""
    known = state.objects.get(name)
    if known is not None:
        known.held = False
        _forget_shared(state, known)


def _forget_shared(state: CoreState, known: RemoteObject) -> None:
    """Have workers forget a shared object without handles and users, and the unused functions that
    refer to it.
    """
    if known.held or known.open:
        return
    name = known.function.digest
    for digest in [
        one
        for one in state.retired
        if any(needed.name == name for needed in state.objects[one].function.needs)
    ]:
        del state.retired[digest]
        _forget(state, digest)
    _forget(state, name)


def retire(state: CoreState, known: RemoteObject) -> None:
    """Keep an unused function for a while, since the next call often uses it again; forget the ones
    kept longest. One that contains results of calls is not kept.
    """
    if known.size > IDLE_BYTES or known.function.after:
        _forget(state, known.function.digest)
        return
    state.retired[known.function.digest] = known.size
    while len(state.retired) > IDLE_FUNCTIONS or sum(state.retired.values()) > IDLE_BYTES:
        digest = next(iter(state.retired))
        del state.retired[digest]
        _forget(state, digest)


def _forget(state: CoreState, digest: bytes) -> None:
    forget_at_workers(state, state.objects.pop(digest))


def forget_at_workers(state: CoreState, known: RemoteObject, *, stays: bytes = b"") -> None:
    """Have all workers that have an object, or pull it, forget it, but for one where it stays."""
    for worker in (*known.workers, *known.pulls):
        if worker != stays:
            forget_at(state, known, worker)


def forget_at(state: CoreState, known: RemoteObject, worker: bytes) -> None:
    """Have a worker that has an object, or pulls it, forget it."""
    digest, its_word_is_due = known.function.digest, worker in known.pulls
    pulls.end(state, known, worker)
    known.workers.discard(worker)
    state.workers[worker].functions.discard(digest)
    state.effects.append(Send(worker, Forget([digest])))
    if its_word_is_due and known.asked == worker and known.workers and digest in state.objects:
        bring_again(state, [digest])  # it does not say any more if it has it


def note_maker(awaited: AwaitedResult, one: OpenTask, index: int) -> None:
    """Record which task made a result that stays at a worker."""
    if awaited.maker is None:
        awaited.maker, awaited.made = one, index
        for needed in one.inputs:
            needed.heirs += 1


def forget_maker(state: CoreState, awaited: AwaitedResult) -> None:
    """Forget which task made a result that is here, unless the task may have to run again for
    another result.
    """
    if not awaited.heirs and (maker := awaited.maker) is not None:
        awaited.maker = None
        for needed in maker.inputs:
            needed.heirs -= 1
            forget(state, needed)


def forget(state: CoreState, awaited: AwaitedResult) -> None:
    """Forget an unneeded result, and in turn the results that were kept only for it."""
    unsure = [awaited]
    while unsure:
        one = unsure.pop()
        if one.open or one.held or (one.heirs and one.maker is None):
            continue
        if state.awaited.get(one.reference) is one:
            del state.awaited[one.reference]
            if one.data is None:
                state.released_early.add(one.reference)
            elif one.remote is not None:
                objects.forget_result(state, one.remote)
        if one.heirs:
            one.data, one.remote = None, None
        elif (maker := one.maker) is not None:
            one.maker = None
            for needed in maker.inputs:
                needed.heirs -= 1
                unsure.append(needed)


def bring(state: CoreState, awaited: AwaitedResult) -> None:
    """Have a result come here from a worker, or make it again if it is lost."""
    remote = awaited.remote
    if remote is None or remote.asked is not None or state.closing:
        return
    if remote.workers:
        remote.asked = worker = _holder(state, remote)
        state.effects.append(Send(worker, Fetch([remote.function.digest])))
    elif remote.pulls:
        remote.asked = next(iter(remote.pulls))  # it was told to give up, and says if it has it
    else:
        _make_again(state, awaited)


def _holder(state: CoreState, known: RemoteObject) -> bytes:
    """Return one of the workers that have an object. One that is silent may be so for long."""
    return min(known.workers, key=lambda one: (state.workers[one].phase is not READY, one))


def bring_again(state: CoreState, names: Iterable[bytes]) -> None:
    """Bring results from elsewhere, since the worker that was asked for them does not have them."""
    for name in names:
        state.objects[name].asked = None
        bring(state, state.awaited[int.from_bytes(name, "big")])


def ask_others(state: CoreState, silent: Worker) -> None:
    """Bring the results that were asked of a silent worker from others that have them too."""
    for name in sorted(silent.functions & state.away.keys()):
        known = state.objects[name]
        others = (state.workers[one].phase is READY for one in known.workers)
        if known.asked == silent.id and any(others):
            bring_again(state, [name])


def _make_again(state: CoreState, awaited: AwaitedResult) -> None:
    """Run the call that made a lost result again, and the calls that made its lost inputs."""
    gone = [awaited]
    while gone:
        awaited = gone.pop()
        if awaited.remote is not None:
            objects.forget_result(state, awaited.remote)
        awaited.data, awaited.remote = None, None
        gone += _open_again(state, awaited)


def _open_again(state: CoreState, awaited: AwaitedResult) -> list[AwaitedResult]:
    """Open a copy of the task that made a result; return the inputs that must be made again as
    well.
    """
    maker, index = awaited.maker, awaited.made
    assert maker is not None
    state.last_remade -= 1
    function = objects.use_function(state, maker.function.function)
    submitter = state.submitters.get(maker.submitter.number)
    if submitter is None:
        submitter = maker.submitter
        books.add_submitter(state, submitter)
    books.open_task(submitter, function, 1, UNNUMBERED)
    needs = _use(state, maker.details.needs)
    one = replace(
        maker,
        id=state.last_remade,
        function=function,
        submitter=submitter,
        unsettled=1,
        missing=0,
        runs=(),
        kept=awaited if maker.count == 1 else {index: awaited},
        details=TaskDetails(needs=needs, remade=True),
    )
    state.open_tasks[one.id] = one
    gone, inputs = [], []
    for needed in maker.inputs:
        known = state.awaited.setdefault(needed.reference, needed)
        if known is needed and known.data is None and not known.open and not known.held:
            state.released_early.discard(known.reference)
            gone.append(known)
        known.open += 1
        inputs.append(known)
        if known.data is None:
            known.waiting = added(known.waiting, one)
            one.missing += 1
    one.inputs = tuple(inputs)
    if one.missing:
        if state.story is not None:
            state.story.move(one.only_span(), "missing", "to be made again")
    else:
        queue = state.queue_for(one.options.demand)
        queue.put_back(Span(one, index, index + 1, one.options.demand))
        state.agenda.begun[queue] = one
    return gone
