"""The answers of runs: of a running dispatcher by asking it, of an ended one by its report."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from gridengine.dispatcher.kept_reports import kept
from gridengine.dispatcher.watch_messages import STATUS, Answer
from gridengine.watching.lookup import connect
from gridengine.watching.names import NotKnown, meant, of_answer, word_of

MOST_SAMPLED = 1000


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
    """Yield the reports of ended runs, the last run first."""
    for path in kept():
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Answer)
        except (OSError, msgspec.DecodeError):  # another version's
            continue


def ended_words(answer: Answer) -> str:
    """Return a sentence that says that a run has ended, and when."""
    who = answer.identity
    ended = time.localtime(who.since + answer.status.elapsed_seconds)
    return f"{who.name}, process {who.pid} on {who.host}, ended at " + time.strftime(
        "%Y-%m-%d %H:%M:%S", ended
    )
