"""`NamedCalls`: the words that name a part of a dispatcher's calls: a named run or a client."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gridengine.wire.messages import NUMBER_BITS, ClientHello

MOST_NAMES, MOST_SUBMITTERS = 100, 10_000
"""How many names and submitters are remembered; the oldest are forgotten."""


class NamedCalls:
    """The named run and the client of a dispatcher's calls, by the calls' submitters. Any thread
    may call its methods.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, str] = {}
        self._words: dict[int, tuple[str, ...]] = {}

    def note(self, name: str, file: str, submitter: int) -> None:
        """Note that a submitter's calls belong to a named run."""
        with self._lock:
            _put_last(self._files, name, file, MOST_NAMES)
            _put_last(self._words, submitter, (name,), MOST_SUBMITTERS)

    def note_client(self, number: int, hello: ClientHello) -> None:
        """Note a client in another process, and the named run of its calls, if they have one."""
        name = hello.keep.rpartition("/")[0]
        words = client_words(hello.script, hello.pid)
        with self._lock:
            if name:
                words += (name,)
                from gridengine.journal.run_file import path_of  # imports SQLite

                _put_last(self._files, name, str(path_of(name)), MOST_NAMES)
            _put_last(self._words, number << NUMBER_BITS, words, MOST_SUBMITTERS)

    def files(self) -> dict[str, str]:
        """Return the names of the runs, each with the run's file. For runs of clients in other
        processes this is the default file, which `journal=` may have changed.
        """
        with self._lock:
            return dict(self._files)

    def has(self, word: str, submitter: int) -> bool:
        """Return whether a word names the calls of a submitter."""
        client = submitter >> NUMBER_BITS << NUMBER_BITS
        with self._lock:
            return word in (*self._words.get(submitter, ()), *self._words.get(client, ()))


def client_words(script: str, pid: int) -> tuple[str, ...]:
    """Return the words that name a client: its script's path, file name, and file name without
    suffix, and its process id.
    """
    path = Path(script)
    return (*((script, path.name, path.stem) if script else ()), str(pid))


def _put_last(into: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    into.pop(key, None)
    into[key] = value
    if len(into) > most:
        del into[next(iter(into))]
