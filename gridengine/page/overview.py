"""The part of the page that is always visible: the dispatcher, its progress, why calls wait."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.errors import GridEngineError
from gridengine.status.rows import Status
from gridengine.watching.explanation import explain
from gridengine.watching.phrases import Explanation, seconds, size


class Overview(Struct, frozen=True):
    """The data of the event that is sent each second.

    gone: why the dispatcher does not answer, empty while it does; then the other fields are left
        out.
    seen: when a report was made of a dispatcher that runs, else empty.
    ended: when the dispatcher has ended, empty while it runs.
    calls, workers: their numbers by state.
    facts: other facts, by name.
    cpu_seconds: processor time of the dispatcher's process.
    memory: of all workers with their processes, in bytes, as far as they have told.
    actions: whether calls may be ended.
    graph: whether calls need the results of others.
    """

    name: str
    run: str
    where: str
    gone: str = ""
    seen: str = ""
    ended: str = ""
    elapsed: str = ""
    left: str = ""
    total: int = 0
    calls: Mapping[str, int] = {}
    workers: Mapping[str, int] = {}
    facts: Mapping[str, str] = {}
    explanations: Sequence[Explanation] = ()
    cpu_seconds: float = 0.0
    memory: int = 0
    elapsed_seconds: float = 0.0
    actions: bool = False
    graph: bool = False


def overview(answer: WatchAnswer, *, actions: bool, is_report: bool = False) -> Overview:
    """Return the overview of a dispatcher, from its answer, or from the report that it has left."""
    who, status = answer.identity, answer.status
    end = time.localtime(who.since + status.elapsed_seconds)
    queued = sum(one.queued for one in status.launches)
    return Overview(
        who.name,
        who.run_id,
        _where(who),
        ended=time.strftime("%H:%M on %Y-%m-%d", end) if is_report else "",
        elapsed=seconds(status.elapsed_seconds),
        left="" if status.left_seconds is None or is_report else seconds(status.left_seconds),
        total=status.ended + status.running + status.waiting,
        calls={
            "done": status.done,
            "failed": status.failed,
            "cancelled": status.cancelled,
            "running": status.running,
            "waiting": status.waiting,
        },
        workers={} if status.local else {**status.statuses, "queued": queued},
        facts=_facts(answer, is_report=is_report),
        explanations=explain(answer),
        cpu_seconds=answer.cpu_seconds,
        memory=_memory(status),
        elapsed_seconds=status.elapsed_seconds,
        actions=actions and not is_report,
        graph=status.awaited > 0,
    )


def _memory(status: Status) -> int:
    """Return the bytes of all workers, by those that are listed."""
    listed = [one.memory or 0 for one in status.workers]
    return sum(listed) * status.worker_count // len(listed) if listed else 0


def _facts(answer: WatchAnswer, *, is_report: bool) -> dict[str, str]:
    status = answer.status
    there = f"{status.in_room:,} of {status.room:,}"
    busy = min(status.running, status.worker_slots)
    present = {
        "workers": there if status.max_workers else status.worker_words,
        "busy slots": f"{busy:,} of {status.worker_slots:,}",
        "workers' memory": size(_memory(status)),
    }
    return {
        **({} if is_report else present),
        "lost workers": f"{status.lost_workers:,}",
        "retried": f"{status.retried:,}",
        "most of a call": size(max((one.peak_memory for one in status.functions), default=0)),
        "dispatcher": size(answer.memory),
    }


def gone(who: Identity, error: GridEngineError) -> Overview:
    """Return the overview of a dispatcher that does not answer."""
    return Overview(who.name, who.run_id, _where(who), gone=str(error.message))


def _where(who: Identity) -> str:
    return f"process {who.pid} on {who.host}, {who.scheduler}"
