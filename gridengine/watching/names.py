"""The one rule by which a word names something, for all commands, `Client()` and `run_named()`.

Every word that a command prints for something names it in any other command. The rules in `RULES`
are tried in order, and the first rule by which the word names anything decides: an own name comes
before the name of a script, for example. If several things are named, none is taken; the error has
for each a word that names it alone.

Pure: `dispatcher_lookup` and `run_lookup` supply the known things.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from gridengine.dispatcher.call_selection import client_words
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.errors import ConfigurationError

T = TypeVar("T")
PROCESS_ID = re.compile(r"\d{1,7}")
"""A process id has at most seven digits (proc(5), pid_max: 4194304). The date at the beginning of a
run's id is longer.
"""
MOST_LISTED = 8


class SeveralMeant(ConfigurationError):
    """A word names several things; the text has a word for each."""


class NotKnown(ConfigurationError):
    """A word names nothing; the hint lists the known things, nearest first."""


class Word(NamedTuple):
    """The text that a user gave and, if it can be a path, the absolute path."""

    text: str
    place: str = ""


class Known(NamedTuple, Generic[T]):
    """Something that words name.

    title: its name in lists.
    about: a description that distinguishes it from others with the same title, for people.
    own: words that nothing else has, the shortest first.
    other: words of things that it belongs to, such as its script or a cluster job.
    calls: the owners of the calls that it runs or has run: named runs, each with its file, and
        clients.
    id: any beginning of it names the thing, too.
    paths: its folder or file; a path below the folder names it, too.
    """

    title: str
    thing: T
    about: str = ""
    own: Sequence[str] = ()
    other: Collection[str] = ()
    calls: Mapping[str, str] = {}
    id: str = ""
    paths: Collection[str] = ()


def word_of(text: str) -> Word:
    """Return a word. Only a text with a slash, or the name of an existing file, can be a path."""
    try:
        path = Path(text).expanduser()
        may_be = bool(text) and (os.sep in text or path.exists()) and "://" not in text
        return Word(text, os.path.realpath(path) if may_be else "")
    except (OSError, RuntimeError, ValueError):  # no file can have such a name
        return Word(text)


def short_id(run_id: str) -> str:
    """Return the end of a run's id, which differs from all others."""
    return run_id.rpartition("-")[2]


def of_answer(answer: WatchAnswer, thing: T) -> Known[T]:
    """Return the words that name a dispatcher, from its answer or report."""
    who, status = answer.identity, answer.status
    jobs = [one.job for one in status.launches]
    jobs += [one.job for one in status.workers]
    jobs += [one.job for one in status.failures]
    script = os.path.realpath(Path(who.directory, who.script)) if who.script else ""
    return Known(
        title=who.name,
        thing=thing,
        about=", ".join(
            [
                f"process {who.pid} on {who.host}",
                *([who.script] if os.sep in who.script else []),
                *(f"run {name!r}" for name in who.runs),
            ]
        ),
        own=(short_id(who.run_id), str(who.pid), who.run_id),
        other={Path(who.name).stem, Path(who.script).name, who.script, script, *jobs} - {""},
        calls={
            **{word: "" for client in who.clients for word in client_words(*client)},
            **{name: os.path.realpath(file) for name, file in who.runs.items()},
        },
        id=who.run_id,
        paths=tuple(os.path.realpath(folder) for folder in (who.home, who.folder) if folder),
    )


def _calls_of(word: Word, one: Known[T]) -> str:
    """Return the named run, or the client, whose calls a word names; empty if it names none."""
    for text in (word.text, Path(word.place).name):
        if text in one.calls:
            return text
    return next((name for name, file in one.calls.items() if file and file == word.place), "")


Rule = Callable[[Word, Known[Any]], bool]
ITSELF: Sequence[Rule] = (
    lambda word, one: word.text == one.title or word.text in one.own,
    lambda word, one: any(f"{word.place}/".startswith(f"{path}/") for path in one.paths),
    lambda word, one: word.text in one.other or (bool(word.place) and word.place in one.other),
)
"""The rules by which a word names a thing itself: its name, its place, what it belongs to."""
RULES: Sequence[Rule] = (
    *ITSELF,
    lambda word, one: bool(_calls_of(word, one)),
    # A word that can be a process id is only that, and no beginning of a run's id.
    lambda word, one: one.id.startswith(word.text) and not PROCESS_ID.fullmatch(word.text),
)
"""The rules in order. The first by which a word names anything decides."""


def meant(word: Word, known: Sequence[Known[T]]) -> list[Known[T]]:
    """Return the things that a word names; all of them for an empty word."""
    if not word.text:
        return list(known)
    for rule in RULES:
        found = [one for one in known if rule(word, one)]
        if found:
            return found
    return []


def calls_meant(word: Word, one: Known[T]) -> str:
    """Return the named run or client that the word names, unless it names the thing otherwise."""
    return "" if any(rule(word, one) for rule in ITSELF) else _calls_of(word, one)


def word_for(one: Known[T], known: Sequence[Known[T]]) -> str:
    """Return the shortest word that names this thing and nothing else."""
    words = (Word(text) for text in (one.title, *one.own))
    paths = (Word(path, path) for path in one.paths)
    alone = (word.text for word in (*words, *paths) if meant(word, known) == [one])
    return next(alone, one.title)


def listed(word: str, known: Sequence[Known[T]]) -> str:
    """Return all things as a list for people, each by a word that names it alone, the most similar
    first.
    """

    def nearness(one: Known[T]) -> float:
        return difflib.SequenceMatcher(None, word.lower(), one.title.lower()).ratio()

    nearest = sorted(known, key=nearness, reverse=True) if word else list(known)
    words = [(word_for(one, known), one.title) for one in nearest[:MOST_LISTED]]
    shown = [one if one == title else f"{one} ({title})" for one, title in words]
    more = len(known) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def only(word: Word, known: Sequence[Known[T]], kind: str) -> Known[T] | None:
    """Return the one thing that a word names; None when it names nothing.

    Raises:
        SeveralMeant: it names several.
    """
    found = meant(word, known)
    if len(found) > 1:
        words = "; ".join(f"{word_for(one, known)} ({one.title}, {one.about})" for one in found)
        raise SeveralMeant(
            f"several {kind}s are meant{f' by {word.text!r}' if word.text else ''}: {words}",
            hint="say one of them by the word before its bracket",
        )
    return found[0] if found else None
