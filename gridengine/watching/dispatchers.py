"""Finds the dispatchers of this user that can be watched, and asks them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gridengine.dispatcher.watch_messages import Answer, Identity
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.settings.files import nearest
from gridengine.settings.values import settings
from gridengine.watching.watched import ANSWER_SECONDS, process_of
from gridengine.watching.watched import Watched as Watched
from gridengine.wire.runtime_folder import SOCKET, is_private, runtime_folders

PROCESS_ID = re.compile(r"\d{1,7}")
"""The largest is 4194304 (proc(5), pid_max); the day that a run's name begins with is longer."""
NONE_RUNS = "no dispatcher of yours runs on this machine"


class SeveralMeant(ConfigurationError):
    """Several dispatchers have the name that was said."""


def sockets() -> list[Path]:
    """Return the sockets of this user's dispatchers on this machine; some may be left of those that
    were killed.
    """
    found = []
    for folder in runtime_folders(os.environ, settings().watch_directory):
        if is_private(folder):
            with contextlib.suppress(OSError):  # it has just been removed
                found += [one for one in folder.iterdir() if one.name.endswith(SOCKET)]
    return found


def connect_all(seconds: float = ANSWER_SECONDS) -> Iterator[Watched]:
    """Yield a connection to each dispatcher that is there, and close it after; remove what was left
    of those that were killed. Each has so many seconds for an answer.
    """
    for path in sockets():
        try:
            with Watched(path, seconds=seconds) as one:
                yield one
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:  # it has ended since
            continue


def answers(seconds: float = ANSWER_SECONDS) -> tuple[list[Answer], list[str]]:
    """Return the answers of all dispatchers that are there, the last begun first; and the words of
    those that gave none.
    """
    found, silent = _ask_all(seconds)
    answers = sorted((answer for _, answer in found), key=lambda one: -one.identity.since)
    return answers, [error.message for _, error in silent]


def _ask_all(
    seconds: float,
) -> tuple[list[tuple[Path, Answer]], list[tuple[Path, ClusterError]]]:
    """Return the socket and the answer of each dispatcher that is there, and of others the socket
    and why there is none.
    """
    found: list[tuple[Path, Answer]] = []
    silent: list[tuple[Path, ClusterError]] = []
    for one in connect_all(seconds):
        try:
            found.append((one.path, one.ask(most=0)))
        except ClusterError as error:
            silent.append((one.path, error))
    return found, silent


def matches(identity: Identity, name: str) -> bool:
    """Return whether a dispatcher is meant by this name: its own, its script's file name with or
    without the suffix, or what `is_run` takes.
    """
    called = {identity.name, Path(identity.name).stem, Path(identity.script).name}
    return name in called or is_run(name, identity.run_id, identity.pid)


def is_run(name: str, run_id: str, pid: int) -> bool:
    """Return whether a run is meant by its process id, or by the beginning of its name; what may be
    a process id is one.
    """
    return name == str(pid) or bool(run_id.startswith(name) and not PROCESS_ID.fullmatch(name))


def connect(name: str = "") -> Watched:
    """Return a connection to the dispatcher of this name; of any when there is but one.

    Raises:
        SeveralMeant: there are several; the text names them.
        ConfigurationError: there is none.
        ClusterError: it does not answer, or may be one of those that do not.
    """
    there, unanswered = _ask_all(ANSWER_SECONDS)
    found = [(path, one.identity) for path, one in there if matches(one.identity, name)]
    silent = {str(process_of(path)): error for path, error in unanswered}
    if not found and (name in silent or (silent and not name)):
        raise silent.get(name) or next(iter(silent.values()))
    if not found and (elsewhere := _elsewhere(name)) is not None:
        return elsewhere
    if not found and silent:
        raise _not_known(name, list(silent.values()))
    if len(found) != 1:
        names = [one.identity.name for _, one in there]
        raise _not_one(name, [identity for _, identity in found], names)
    try:
        return Watched(found[0][0])
    except OSError as error:
        raise ClusterError(f"{found[0][1].name} has just ended") from error


def _elsewhere(name: str) -> Watched | None:
    """Return a connection to the dispatcher of this name, or the only one, that stands on its own
    on another machine; None when there is none.

    Raises:
        SeveralMeant: there are several.
        ClusterError: it does not answer.
    """
    from gridengine.watching.elsewhere import RemoteWatched, folders  # imports ZeroMQ

    found = folders(name)
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise SeveralMeant(f"several dispatchers are meant: {names}", hint="say one of them")
    return RemoteWatched(found[0]) if found else None


def _not_known(name: str, silent: Sequence[ClusterError]) -> ClusterError:
    """Return what to raise where none that answers has this name."""
    others = "; ".join(str(one.message) for one in silent)
    return ClusterError(
        f"no dispatcher that answers on this machine is called {name!r}, and what others are "
        f"called cannot be known: {others}",
        hint=silent[0].hint,
    )


def _not_one(name: str, found: Sequence[Identity], names: Sequence[str]) -> ConfigurationError:
    if found:
        named = ", ".join(f"{one.name} (process {one.pid}, {one.run_id})" for one in found)
        return SeveralMeant(
            f"several dispatchers are meant: {named}",
            hint="say one of them, by its process's id or the beginning of what stands behind it",
        )
    words = f"no dispatcher {name!r} runs on this machine" if name else NONE_RUNS
    near = nearest(name, names) if name else None
    return ConfigurationError(
        words,
        hint=f"{f'{near} is one; ' if near else ''}`gridengine ls` lists those that run, and the "
        "last runs that have ended",
    )
