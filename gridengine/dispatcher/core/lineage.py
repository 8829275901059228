"""Results that lie with workers alone: how each was made, so that it can be made again when its
worker is lost; and what is forgotten when nobody needs it.

A result's *maker* is the task that has made it, its *heirs* are such tasks that it was an input of.
An input that can be made again itself is forgotten as others are; another is kept for its heirs.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gridengine.dispatcher.core import books, objects
from gridengine.dispatcher.core.calls import AwaitedResult, OpenTask, Span
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.state import CoreState
from gridengine.wire.messages import Fetch


def note_maker(awaited: AwaitedResult, one: OpenTask, index: int) -> None:
    """Note how a result was made that lies with a worker, if that is not known."""
    if awaited.maker is None:
        awaited.maker, awaited.made = one, index
        for needed in one.inputs:
            needed.heirs += 1


def forget_maker(state: CoreState, awaited: AwaitedResult) -> None:
    """Forget how a result was made that is here, unless others may have to be made of it again."""
    if not awaited.heirs and (maker := awaited.maker) is not None:
        awaited.maker = None
        for needed in maker.inputs:
            needed.heirs -= 1
            forget(state, needed)


def forget(state: CoreState, awaited: AwaitedResult) -> None:
    """Forget a result, unless somebody needs it, and in turn what only it was kept for."""
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
    """Have a result come here that lies with a worker, or have it made again if that is lost."""
    remote = awaited.remote
    if remote is None or remote.asked is not None or state.closing:
        return
    for worker in remote.workers:
        remote.asked = worker
        state.effects.append(Send(worker, Fetch([remote.function.digest])))
        return
    _make_again(state, awaited)


def bring_again(state: CoreState, names: Iterable[bytes]) -> None:
    """Have results come from others that were asked of a worker which does not have them."""
    for name in names:
        state.objects[name].asked = None
        bring(state, state.awaited[int.from_bytes(name, "big")])


def _make_again(state: CoreState, awaited: AwaitedResult) -> None:
    """Have the call run again that has made a result, and those whose results it needs that are
    gone.
    """
    gone = [awaited]
    while gone:
        awaited = gone.pop()
        if awaited.remote is not None:
            objects.forget_result(state, awaited.remote)
        awaited.data, awaited.remote = None, None
        gone += _open_again(state, awaited)


def _open_again(state: CoreState, awaited: AwaitedResult) -> list[AwaitedResult]:
    """Open the task again that has made a result; return those of its inputs that are to be made,
    too.
    """
    maker, index = awaited.maker, awaited.made
    assert maker is not None
    state.last_remade -= 1
    task = replace(maker.task, id=state.last_remade, kept=((index, awaited.reference),))
    function = objects.use_function(state, maker.function.function)
    submitter = state.submitters.get(maker.submitter.number)
    if submitter is None:
        submitter = maker.submitter
        books.add_submitter(state, submitter)
    books.open_tasks(submitter, function, 1, 1)
    needs = objects.use_shared(state, function.function, task)
    one = OpenTask(task, function, 1, submitter, maker.pace, needs, maker.order, maker.since)
    one.remade, one.kept = True, awaited if task.count == 1 else {index: awaited}
    state.open_tasks[task.id] = one
    gone, inputs = [], []
    for needed in maker.inputs:
        known = state.awaited.setdefault(needed.reference, needed)
        if known is needed and known.data is None and not known.open and not known.held:
            state.released_early.discard(known.reference)
            gone.append(known)
        known.open += 1
        inputs.append(known)
        if known.data is None:
            known.add_waiting(one)
            one.missing += 1
    one.inputs = tuple(inputs)
    if one.missing:
        if state.story is not None:
            state.story.move(one.only_span(), "missing", "to be made again")
    else:
        queue = state.queue_for(task.demand)
        queue.put_back(Span(one, index, index + 1, task.demand))
        state.agenda.begun[queue] = one
    return gone
