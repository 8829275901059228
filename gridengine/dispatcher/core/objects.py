"""What workers are given to work with: functions and shared objects, who has them, and when they
are let go. Sans-I/O, over the core.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gridengine.dispatcher.core.events import Released, Send
from gridengine.dispatcher.core.model import Open, RemoteObject, Worker
from gridengine.dispatcher.core.tasks import Function, Task
from gridengine.serialize.payload import size_of
from gridengine.serialize.shared_memory import KEPT_BYTES
from gridengine.serialize.shared_objects import SharedObject, all_needed
from gridengine.wire.messages import Define, Forget, Reload

if TYPE_CHECKING:
    from gridengine.dispatcher.core.state import StateMachine

KEPT_FUNCTIONS = 64
"""How many functions that no task uses are kept."""


def take(core: StateMachine, function: Function) -> RemoteObject:
    """Return a function that tasks are about to use."""
    known = core.functions.get(function.digest)
    if known is None:
        known = core.functions[function.digest] = RemoteObject(function)
    core.retired.pop(function.digest, None)
    return known


def take_shared(core: StateMachine, function: Function, task: Task) -> tuple[RemoteObject, ...]:
    """Return the shared objects that a task is about to use."""
    if not function.needs and not task.needs:
        return ()
    needs = tuple(_take_one_shared(core, lent) for lent in all_needed(function.needs, task.needs))
    for known in needs:
        known.open += 1
    return needs


def _take_one_shared(core: StateMachine, lent: SharedObject) -> RemoteObject:
    known = core.functions.get(lent.name)
    if known is None:
        function = Function(lent.name, lent.payload, (), "", "a shared object")
        known = core.functions[lent.name] = RemoteObject(function, shared=True, held=True)
    return known


def give(core: StateMachine, worker: Worker, known: RemoteObject) -> None:
    """Have a worker that does not know it be told of a function or a shared object."""
    function = known.function
    known.workers.add(worker.id)
    worker.functions.add(function.digest)
    path, directory = list(map(os.fsencode, function.path)), os.fsencode(function.directory)
    message = Define(function.digest, path, directory, len(function.payload), shared=known.shared)
    core.effects.append(Send(worker.id, message, function.payload))


def renew(core: StateMachine, worker: Worker) -> None:
    """Have a worker start new runners, since modules have changed that those it has may have
    loaded.
    """
    worker.generation = core.generation
    core.effects.append(Send(worker.id, Reload()))


def let_go(core: StateMachine, ended: Open) -> None:
    """A task has ended: keep what no other uses as long as it may soon be used again."""
    ended.function.open -= 1
    if not ended.function.open:
        _retire(core, ended.function)
    for known in ended.needs:
        known.open -= 1
        _forget_shared(core, known)


def clear(core: StateMachine) -> None:
    """Let go of everything: there are no workers any more, and whoever still refers to this core
    wants no data of it.
    """
    for kept in (core.functions, core.retired, core.open, core.effects):
        kept.clear()


def released(core: StateMachine, event: Released, now: float) -> None:
    """The last handle of a shared object is gone."""
    known = core.functions.get(event.name)
    if known is not None:
        known.held = False
        _forget_shared(core, known)


def _forget_shared(core: StateMachine, known: RemoteObject) -> None:
    """Have workers forget a shared object that nobody holds or uses, and the functions that were
    kept and hold it themselves.
    """
    if known.held or known.open:
        return
    name = known.function.digest
    for digest in [
        one
        for one in core.retired
        if any(lent.name == name for lent in core.functions[one].function.needs)
    ]:
        del core.retired[digest]
        _forget(core, digest)
    _forget(core, name)


def _retire(core: StateMachine, known: RemoteObject) -> None:
    """Keep the last functions a while, since the next call is often of the same one; have workers
    forget the oldest.
    """
    size = size_of(known.function.payload)
    if size > KEPT_BYTES:
        _forget(core, known.function.digest)
        return
    core.retired[known.function.digest] = size
    while len(core.retired) > KEPT_FUNCTIONS or sum(core.retired.values()) > KEPT_BYTES:
        digest = next(iter(core.retired))
        del core.retired[digest]
        _forget(core, digest)


def _forget(core: StateMachine, digest: bytes) -> None:
    for worker in core.functions.pop(digest).workers:
        core.workers[worker].functions.discard(digest)
        core.effects.append(Send(worker, Forget([digest])))
