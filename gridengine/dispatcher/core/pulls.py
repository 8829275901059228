"""Results that go straight from worker to worker, where the network lets them.

A call whose inputs other workers have is assigned at once, and its worker is told where to get them
(`Pull`). So an input travels once and not through here, while the worker is at earlier calls. A
worker that cannot get an input gives the calls back. The result then comes here (`objects.bring`),
and is not pulled again; nor is any other, for a while, between two hosts that cannot connect.
"""

from __future__ import annotations

from gridengine.dispatcher.core.calls import RemoteObject
from gridengine.dispatcher.core.events import Send
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.workers_and_queues import READY, Worker
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import UNREACHED, Forget, Pull, Pulled, Serves

MOST_SENDING = 64
"""A worker sends at most this many results at a time, or a few more."""
MOST_IN_VAIN = 3
"""No more pulls are tried when so many pairs of hosts cannot connect, and none could so far."""
NO_WAY_SECONDS = 600.0
"""After this time hosts that could not connect try again: one may merely have been suspended."""


def may_pull(state: CoreState, worker: Worker, known: RemoteObject) -> bool:
    """Return whether a worker can be told to get a result from another one."""
    return any(one.sending < MOST_SENDING for one in _sources(state, worker, known))


def _sources(state: CoreState, worker: Worker, known: RemoteObject) -> list[Worker]:
    if not known.away or known.unpulled or not worker.hello.pulls:
        return []
    now, no_ways = state.now, state.no_ways
    if not state.has_way and sum(until > now for until in no_ways.values()) >= MOST_IN_VAIN:
        return []
    return [
        one
        for one in map(state.workers.__getitem__, sorted(known.workers))
        if one.serves is not None
        and one.phase is READY
        and no_ways.get((one.hello.host, worker.hello.host), 0.0) <= now
    ]


def pull(state: CoreState, worker: Worker, known: RemoteObject) -> None:
    """Tell a worker to get a result from the one of its holders that sends the fewest."""
    source = min(_sources(state, worker, known), key=lambda one: one.sending)
    assert source.serves is not None
    state.last_pull = number = state.last_pull + 1
    name = known.function.digest
    known.pulls[worker.id] = source.id, number
    worker.functions.add(name)
    source.sending += 1
    message = Pull(name, number, source.serves.addresses, source.serves.key)
    state.effects.append(Send(worker.id, message))


def serves(state: CoreState, worker: Worker, message: Serves, buffers: Payload) -> None:
    """Note where other workers get the results that a worker has."""
    worker.serves = message if message.addresses else None


def answered(state: CoreState, worker: Worker, known: RemoteObject, message: Pulled) -> None:
    """Note that a worker has got a result, or could not get it."""
    source = state.workers.get(known.pulls[worker.id][0])
    end(state, known, worker.id)
    if not message.failure:
        known.workers.add(worker.id)
        if source is not None and source.hello.host != worker.hello.host:
            state.has_way = True
    else:
        worker.functions.discard(message.name)
        state.effects.append(Send(worker.id, Forget([message.name])))
        known.unpulled = True
        if message.failure == UNREACHED and source is not None:
            hosts = source.hello.host, worker.hello.host
            if hosts not in state.no_ways:
                state.say(state.log.no_way(*hosts, state.now))
            state.no_ways[hosts] = state.now + NO_WAY_SECONDS


def end(state: CoreState, known: RemoteObject, puller: bytes) -> None:
    """Forget the pull of a worker, if there is one."""
    source, _ = known.pulls.pop(puller, (b"", 0))
    if source in state.workers:
        state.workers[source].sending -= 1


def give_up_from(state: CoreState, source: Worker) -> None:
    """Tell the workers that get results from this one, which leaves or is lost, to give up. Their
    answers tell whether they had them already.
    """
    for known in map(state.objects.__getitem__, source.functions if source.sending else ()):
        for puller, (sender, number) in known.pulls.items():
            if sender == source.id:
                state.effects.append(Send(puller, Pull(known.function.digest, number)))


def runs_that_wait(worker: Worker) -> set[int]:
    """Return the runs of a worker's batches that cannot have begun: an input of them is pulled."""
    batches = {
        id(run.batch)
        for run in worker.runs.values()
        for needed in run.span.open_task.inputs
        if needed.remote is not None and worker.id in needed.remote.pulls
    }
    return {run.number for run in worker.runs.values() if id(run.batch) in batches}
