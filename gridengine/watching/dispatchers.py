"""Find this user's dispatchers on this machine, and ask them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gridengine.dispatcher.watch_messages import Answer
from gridengine.errors import ClusterError
from gridengine.settings.values import settings
from gridengine.watching.watched import ANSWER_SECONDS
from gridengine.watching.watched import Watched as Watched
from gridengine.wire.connection_file import SOCKET, is_private, runtime_folders


def sockets() -> list[Path]:
    """Return the sockets of this user's dispatchers on this machine, including leftovers of killed
    ones.
    """
    return runtime_files(SOCKET)


def runtime_files(end: str) -> list[Path]:
    """Return what this user's dispatchers on this machine have by names that end so."""
    found = []
    for folder in runtime_folders(os.environ, settings().watch_directory):
        if is_private(folder):
            with contextlib.suppress(OSError):  # the folder has just been removed
                found += [one for one in folder.iterdir() if one.name.endswith(end)]
    return found


def connect_all(seconds: float = ANSWER_SECONDS) -> Iterator[Watched]:
    """Yield a connection to each running dispatcher, and close it afterwards. Remove leftovers of
    killed ones. Each has this many seconds for an answer.
    """
    for path in sockets():
        try:
            with Watched(path, seconds=seconds) as one:
                yield one
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:  # the dispatcher has just ended
            continue


def answers(seconds: float = ANSWER_SECONDS) -> tuple[list[Answer], list[str]]:
    """Return the answers of all running dispatchers, the latest begun first; and the errors of
    those that gave none.
    """
    found, silent = ask_all(seconds)
    answers = sorted((answer for _, answer in found), key=lambda one: -one.identity.since)
    return answers, [error.message for _, error in silent]


def ask_all(
    seconds: float,
) -> tuple[list[tuple[Path, Answer]], list[tuple[Path, ClusterError]]]:
    """Return the socket and the answer of each running dispatcher, and the socket and the error of
    each that does not answer.
    """
    found: list[tuple[Path, Answer]] = []
    silent: list[tuple[Path, ClusterError]] = []
    for one in connect_all(seconds):
        try:
            found.append((one.path, one.ask(most=0)))
        except ClusterError as error:
            silent.append((one.path, error))
    return found, silent
