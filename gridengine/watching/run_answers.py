"""The answers of runs: of a running dispatcher by asking it, of an ended one by its report.

A process that is killed writes no report. It leaves the record beside its socket, which says who it
was: without that, the report of an older run of the same name would be shown in its place.
Rejected: writing a report every few seconds. The folder of reports may be on a slow file server,
and the I/O thread, on which all calls depend, would wait for it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gridengine.dispatcher.reports import report_files
from gridengine.dispatcher.watch_messages import STATUS, Answer, Identity
from gridengine.watching.dispatchers import runtime_files
from gridengine.watching.lookup import NOT_KEPT, connect
from gridengine.watching.names import NotKnown, meant, of_answer, word_of
from gridengine.watching.watched import process_of
from gridengine.wire.connection_file import RECORD
from gridengine.wire.processes import started

MOST_SAMPLED = 1000
MOST_KILLED = 20
"""How many runs are remembered whose processes were killed."""


def answer_of(name: str, ask: str = STATUS) -> tuple[Answer, bool]:
    """Return the answer of a run's dispatcher, and True; or the report of the last run of this
    name, and False. Without a name, it is the only running dispatcher, or the last report.

    Raises:
        ConfigurationError: there is neither, or there are several.
        ClusterError: the dispatcher does not answer.
    """
    try:
        with connect(name) as watched:
            return watched.ask(ask, most=MOST_SAMPLED), True
    except NotKnown:
        found = ended_answer(name)
        if found is None:
            raise
        return found, False


def ended_answer(name: str) -> Answer | None:
    """Return the report of the last run of this name, or without a name of the last run; None if
    there is none.
    """
    word = word_of(name)
    return next((one for one in ended_answers() if meant(word, [of_answer(one, None)])), None)


def ended_answers() -> Iterator[Answer]:
    """Yield the reports of ended runs, and the identities of killed ones, the last begun first."""
    killed = sorted(_killed(), key=lambda one: one.identity.run_id, reverse=True)
    return heapq.merge(_reports(), killed, key=lambda one: one.identity.run_id, reverse=True)


def _reports() -> Iterator[Answer]:
    for path in report_files():
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Answer)
        except (OSError, msgspec.DecodeError):  # another version's
            continue


def _killed() -> Iterator[Answer]:
    """Yield the last runs of this machine whose processes were killed; forget older ones."""
    records = [path for path in runtime_files(RECORD) if not started(process_of(path))]
    dated = sorted(((_time_of(path), path) for path in records), reverse=True)
    for _, path in dated[MOST_KILLED:]:
        path.unlink(missing_ok=True)
    for _, path in dated[:MOST_KILLED]:
        try:
            yield Answer(msgspec.json.decode(path.read_bytes(), type=Identity), killed=True)
        except (OSError, msgspec.DecodeError):  # another version's
            continue


def _time_of(path: Path) -> float:
    """Return when a file was written; 0 where it has just been removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def ended_words(answer: Answer) -> str:
    """Return a sentence that says that a run has ended, and when."""
    who = answer.identity
    end = "was killed; it began" if answer.killed else "ended"
    at = time.localtime(who.since + answer.status.elapsed_seconds)
    words = f"{who.name}, process {who.pid} on {who.host}, {end} at "
    return words + time.strftime("%Y-%m-%d %H:%M:%S", at)


def heading(answer: Answer, name: str) -> str:
    """Return that a run is over, above what is told of it; where it is the last of a name, or the
    last of all, which of the runs that have ended since nothing is kept of.
    """
    words = ended_words(answer)
    if name in of_answer(answer, None).own:
        return words
    which = f"the last run {name!r}" if name else "the last run"
    return f"{which} of which something is kept: {words} ({NOT_KEPT})"
