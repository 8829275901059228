"""Functions and shared objects: which worker has them, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from gridengine.dispatcher.core.calls import AwaitedResult, RemoteObject
from gridengine.dispatcher.core.events import Released, Send
from gridengine.dispatcher.core.model import Worker
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import Function, Task
from gridengine.serialize.payload import Buffer, Payload, size_of
from gridengine.serialize.shared_memory import KEPT_BYTES
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import Define, Forget, Input, Reload, input_name

SMALL_INPUT = 16 * 1024
"""Results up to this size in bytes are sent with each call that needs them; larger ones once to
each worker.
"""
KEPT_FUNCTIONS = KEPT_RESULTS = 64
"""How many functions that no task uses are kept, and at workers results that no call needs."""


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
    if not function.needs and not task.needs:
        return ()
    needs = tuple(_shared(state, needed) for needed in all_needed(function.needs, task.needs))
    for known in needs:
        known.open += 1
    return needs


def _shared(state: CoreState, needed: SharedObject) -> RemoteObject:
    known = state.objects.get(needed.name)
    if known is None:
        function = Function(needed.name, needed.payload, (), b"", "a shared object")
        known = RemoteObject(function, size_of(function.payload), shared=True, held=True)
        state.objects[needed.name] = known
    return known


def define(state: CoreState, worker: Worker, known: RemoteObject) -> None:
    """Send a worker a function or a shared object that it does not have."""
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
    """Have a result ready for the calls that need it."""
    size = len(payload[0]) if len(payload) == 1 else size_of(payload)
    if size > SMALL_INPUT:
        name = input_name(awaited.reference)
        known = RemoteObject(result_function(name, payload), size, result=True)
        awaited.remote = state.objects[name] = known


def keep_away(state: CoreState, awaited: AwaitedResult, size: int, worker: Worker | None) -> None:
    """Note that a result, of so many bytes, lies with a worker; None is one that is gone by now."""
    name = input_name(awaited.reference)
    known = RemoteObject(result_function(name, ()), size, result=True, away=True)
    if worker is not None:
        known.workers.add(worker.id)
        worker.functions.add(name)
    awaited.remote = state.objects[name] = known
    state.away[name], state.has_away = None, True


def result_function(name: bytes, payload: Payload) -> Function:
    """Return a result as functions are known, by its name."""
    return Function(name, payload, (), b"", "the result of a call")


def give_inputs(
    state: CoreState, worker: Worker, inputs: Iterable[AwaitedResult], payload: list[Buffer]
) -> list[Input]:
    """Add the results that a call needs to its payload, or define them to its worker; return what
    they are.
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
        if worker.id not in remote.workers:
            define(state, worker, remote)
        given.append(Input(awaited.reference, data.item))
    return given


def forget_result(state: CoreState, known: RemoteObject) -> None:
    """Have workers forget a result that no call needs, and none will."""
    state.idle_results.pop(known.function.digest, None)
    state.away.pop(known.function.digest, None)
    _forget(state, known.function.digest)


def rest_result(state: CoreState, known: RemoteObject) -> None:
    """Let workers keep a result a while that no call needs just now; have them forget those that
    were kept longest, each of which takes descriptors there. They are sent it again if need be.
    """
    idle = state.idle_results
    if known.workers and not known.away:
        idle[known.function.digest] = known.size
    while len(idle) > KEPT_RESULTS or sum(idle.values()) > KEPT_BYTES:
        digest = next(iter(idle))
        del idle[digest]
        forget_at_workers(state, state.objects[digest])


def reload(state: CoreState, worker: Worker) -> None:
    """Have a worker start new runners, since modules have changed that those it has may have
    loaded.
    """
    worker.generation = state.generation
    state.effects.append(Send(worker.id, Reload()))


def let_go(state: CoreState, needs: tuple[RemoteObject, ...]) -> None:
    """Release the shared objects that an ended task used."""
    for known in needs:
        known.open -= 1
        _forget_shared(state, known)


def clear(state: CoreState) -> None:
    """Forget all data: there are no workers any more, and whoever still refers to this core needs
    none of it.
    """
    for awaited in state.awaited.values():  # circles that the collector does not look for
        awaited.waiting, awaited.maker = (), None
    for kept in (state.objects, state.retired, state.open_tasks, state.awaited, state.effects):
        kept.clear()
    state.blocks.clear()
    state.away.clear()
    state.near.clear()
    state.idle_results.clear()


def released(state: CoreState, event: Released) -> None:
    """Note that the last handle of a shared object is gone."""
    known = state.objects.get(event.name)
    if known is not None:
        known.held = False
        _forget_shared(state, known)


def _forget_shared(state: CoreState, known: RemoteObject) -> None:
    """Have workers forget a shared object that has no handle and no user, and the retired functions
    that refer to it.
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
    """Keep a function that no task uses a while, since the next call is often of the same one; have
    workers forget those that were kept longest. One with results of calls in it is not kept.
    """
    if known.size > KEPT_BYTES or known.function.after:
        _forget(state, known.function.digest)
        return
    state.retired[known.function.digest] = known.size
    while len(state.retired) > KEPT_FUNCTIONS or sum(state.retired.values()) > KEPT_BYTES:
        digest = next(iter(state.retired))
        del state.retired[digest]
        _forget(state, digest)


def _forget(state: CoreState, digest: bytes) -> None:
    forget_at_workers(state, state.objects.pop(digest))


def forget_at_workers(state: CoreState, known: RemoteObject) -> None:
    """Have the workers that have it forget an object."""
    digest = known.function.digest
    for worker in known.workers:
        state.workers[worker].functions.discard(digest)
        state.effects.append(Send(worker, Forget([digest])))
    known.workers.clear()
