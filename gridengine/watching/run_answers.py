"""What is known of a run, whether it is under way or over."""

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
    """Return what a run's dispatcher answers, and True; or of the last run of this name what was
    kept when it ended, and False. Without a name it is the only one that runs, or the last.

    Raises:
        ConfigurationError: there is neither; or several are meant.
        ClusterError: it does not answer.
    """
    try:
        with connect(name) as watched:
            return watched.ask(ask, most=MOST_SAMPLED), True
    except NotKnown:
        found = kept_answer(name)
        if found is None:
            raise
        return found, False


def kept_answer(name: str) -> Answer | None:
    """Return what was kept of the last run of this name, or of the last; None if nothing was."""
    word = word_of(name)
    return next((one for one in kept_answers() if meant(word, [of_answer(one, None)])), None)


def kept_answers() -> Iterator[Answer]:
    """Yield what was kept of runs that have ended, the last first."""
    for path in kept():
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Answer)
        except (OSError, msgspec.DecodeError):  # another version's
            continue


def ended_words(answer: Answer) -> str:
    """Return that a run is over, and when it was."""
    who = answer.identity
    ended = time.localtime(who.since + answer.status.elapsed_seconds)
    return f"{who.name}, process {who.pid} on {who.host}, ended at " + time.strftime(
        "%Y-%m-%d %H:%M:%S", ended
    )
