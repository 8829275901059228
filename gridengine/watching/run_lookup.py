"""Find the file of the named run that a word names: by the run's name or path, by the dispatcher
that runs its calls, or by the script and process that began it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gridengine.errors import GridEngineError, JournalError
from gridengine.journal import run_reader
from gridengine.journal.run_file import SUFFIX, path_of
from gridengine.watching.dispatcher_lookup import connect
from gridengine.watching.names import Known, SeveralMeant, Word, listed, only, word_of
from gridengine.watching.runs_on_disk import ended_answer, known_runs


def run_file(text: str, journal: Any = None) -> Path:
    """Return the file of the named run that a word names. With a folder `journal`, the word is the
    name of a run there.

    Raises:
        SeveralMeant: there are several; the text has a word for each.
        JournalError: there is none.
    """
    word = word_of(text)
    if journal is not None:
        return run_reader.find(text, journal)
    if os.sep not in text and (path := path_of(text)).is_file():
        return path
    runs = known_runs()
    by_itself = [one._replace(other=()) for one in runs]
    found = only(word, by_itself, "run") or _of_dispatcher(word, runs) or only(word, runs, "run")
    if found is not None:
        return found.thing
    if word.place.endswith(SUFFIX) and Path(word.place).is_file():
        return Path(word.place)
    near = listed(text, runs)
    there_are = f"there {'are' if len(runs) > 1 else 'is'}: {near}; " if near else ""
    raise JournalError(f"there is no run {text!r}", hint=f"{there_are}`gridengine runs` lists them")


def own_run_file(text: str, journal: Any = None) -> Path:
    """Return the file as `run_file` does, for commands that delete: only by a run's own name or
    path.

    Raises:
        JournalError: the word names the run by something else, such as its script.
    """
    path = run_file(text, journal)
    name = path.name.removesuffix(SUFFIX)
    if journal is None and text != name and word_of(text).place != os.path.realpath(path):
        raise JournalError(
            f"{text!r} belongs to the run {name!r}, which is deleted by its own name alone",
            hint=f"gridengine forget {name}",
        )
    return path


def _of_dispatcher(word: Word, runs: Sequence[Known[Path]]) -> Known[Path] | None:
    """Return the run whose calls the named dispatcher runs or has run; None when the word names no
    dispatcher that answers or has a report.

    Raises:
        SeveralMeant: it has several runs, or there are several dispatchers.
        JournalError: it has none.
    """
    try:
        with connect(word.text) as watched:
            who = watched.ask(most=0).identity
    except SeveralMeant:
        raise
    except GridEngineError:
        ended = ended_answer(word.text)
        if ended is None:
            return None
        who = ended.identity
    files = {os.path.realpath(file): name for name, file in who.runs.items()}
    here = [one for one in runs if files.keys() & one.paths]
    others = [
        Known(name, Path(file), f"in {file}", paths=(file,))
        for file, name in files.items()
        if Path(file).is_file() and not any(file in one.paths for one in here)
    ]
    if not (here or others) and only(word, runs, "run") is None:
        raise JournalError(
            f"{who.name} (process {who.pid}) has no run with a name: its calls and their "
            "results are not stored",
            hint="say retries= there, or name= and then `gridengine retry NAME --failed`; "
            f"`gridengine calls {word.text} --failed` lists those that have failed",
        )
    return only(Word(""), [*here, *others], "run")
