"""`NamedCalls`: by which words people mean some of a dispatcher's calls: a run, or a client."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gridengine.wire.messages import NUMBER_BITS, ClientHello

MOST_NAMES, MOST_SUBMITTERS = 100, 10_000
"""How many are remembered: the last ones."""


class NamedCalls:
    """Whose the calls are that a dispatcher runs or has run, by the calls' submitters. Its methods
    may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, str] = {}
        self._words: dict[int, tuple[str, ...]] = {}

    def note(self, name: str, file: str, submitter: int) -> None:
        """Note that a submitter's calls are of a run."""
        with self._lock:
            _put_last(self._files, name, file, MOST_NAMES)
            _put_last(self._words, submitter, (name,), MOST_SUBMITTERS)

    def note_client(self, number: int, hello: ClientHello) -> None:
        """Note who a client is, in another process, and of which run its calls are, if of one."""
        name = hello.keep.rpartition("/")[0]
        words = client_words(hello.script, hello.pid)
        with self._lock:
            if name:
                words += (name,)
                from gridengine.journal.run_file import path_of  # imports SQLite

                _put_last(self._files, name, str(path_of(name)), MOST_NAMES)
            _put_last(self._words, number << NUMBER_BITS, words, MOST_SUBMITTERS)

    def files(self) -> dict[str, str]:
        """Return the names of the runs, each with the run's file: of a client's the one that it has
        unless `journal=` says another.
        """
        with self._lock:
            return dict(self._files)

    def has(self, word: str, submitter: int) -> bool:
        """Return whether a word means the calls of a submitter."""
        client = submitter >> NUMBER_BITS << NUMBER_BITS
        with self._lock:
            return word in (*self._words.get(submitter, ()), *self._words.get(client, ()))


def client_words(script: str, pid: int) -> tuple[str, ...]:
    """Return the words that name a client: its script's path, file name and that without its
    suffix, and its process id.
    """
    path = Path(script)
    return (*((script, path.name, path.stem) if script else ()), str(pid))


def _put_last(into: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    into.pop(key, None)
    into[key] = value
    if len(into) > most:
        del into[next(iter(into))]
