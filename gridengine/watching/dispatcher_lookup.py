"""Find the dispatcher that a word names: for commands, clients, and workers started by hand.

`names` has the rule. This module applies it: to dispatchers that run on this machine, by asking
them; to stand-alone dispatchers, by their folders; and to runs on other machines, by their folders.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from gridengine.dispatcher.run_directory import CLIENT, CONNECTION, WORKER, was_killed
from gridengine.dispatcher.standalone.dispatcher_folder import (
    OPTIONS,
    DispatcherFolder,
    DispatcherState,
    is_name,
)
from gridengine.dispatcher.watch_messages import STATUS, WatchAnswer
from gridengine.errors import ClusterError, ConfigurationError, GridEngineError
from gridengine.watching.connections import (
    Watched,
    ask_all,
    is_watched_elsewhere,
    process_of,
    standalone_folders,
    why_blocked,
)
from gridengine.watching.names import (
    Known,
    NotKnown,
    Word,
    calls_meant,
    listed,
    meant,
    of_answer,
    only,
    short_id,
    word_of,
)
from gridengine.watching.runs_on_disk import (
    NOT_KEPT,
    ended_answer,
    known_folder,
    run_begun_by,
    run_folders,
)

T = TypeVar("T")
MOST_SAMPLED = 1000
"""How many calls and workers of a run an answer lists at most."""
LISTS = f"`gridengine ls` lists those that run, and the last runs that have ended; {NOT_KEPT}"
TAKES_NONE = (
    "takes no workers from elsewhere: its calls run on its own machine alone, where "
    "ProcessScheduler(max_workers=8) has more of them run at a time"
)


class DispatcherPlace(NamedTuple):
    """Where a dispatcher is found: its socket on this machine, the folder of its run, and the
    folder of a stand-alone dispatcher.
    """

    socket: Path | None = None
    folder: Path | None = None
    standalone: DispatcherFolder | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs on another machine, and can be watched over the network."""
        one = self.standalone
        return self.socket is None and one is not None and is_watched_elsewhere(one)

    @property
    def is_watchable(self) -> bool:
        """Whether it can be watched from here."""
        return self.socket is not None or self.is_elsewhere

    @property
    def worker_file(self) -> Path | None:
        """The connection file for workers that others start; None if the dispatcher takes none, or
        does not run.
        """
        one = self.standalone
        ended = (
            one is not None and self.socket is None and one.state() is not DispatcherState.RUNNING
        )
        if self.folder is None or ended:
            return None
        files = (self.folder / name for name in (WORKER, CONNECTION))
        return next((file for file in files if file.exists()), None)

    def open(self) -> Watched:
        """Return a connection.

        Raises:
            ClusterError: the dispatcher has just ended, or does not answer.
        """
        if self.socket is not None:
            return Watched(self.socket)
        from gridengine.watching.remote_connections import RemoteWatched  # imports ZeroMQ

        assert self.standalone is not None
        return RemoteWatched(self.standalone)


Silent: TypeAlias = Mapping[int, ClusterError]
"""The errors, by process, of the dispatchers on this machine that do not answer."""


def there() -> tuple[list[Known[DispatcherPlace]], Silent]:
    """Return the dispatchers that run on this machine, and all stand-alone dispatchers."""
    answers, silent = ask_all()
    alone = list(map(of_folder, standalone_folders()))
    known = [_of_answer(path, answer) for path, answer in answers]
    seen = {one.id for one in known}
    known += [one for one in alone if not one.id or one.id not in seen]
    return known, {process_of(path): error for path, error in silent}


def of_folder(folder: DispatcherFolder) -> Known[DispatcherPlace]:
    """Return the words that name a stand-alone dispatcher, from its files."""
    holder, run_id = folder.holder(), folder.run_id()
    own = [*([short_id(run_id)] if run_id else []), *([str(holder.pid)] if holder else [])]
    about = "it does not run" if holder is None else f"process {holder.pid} on {holder.host}"
    words = (*own, *([run_id] if run_id else []), *folder.addresses())
    path = os.path.realpath(folder.path)
    place = DispatcherPlace(None, folder.path, folder)
    return Known(folder.name, place, about, words, id=run_id, paths=(path,))


def _of_answer(socket: Path, answer: WatchAnswer) -> Known[DispatcherPlace]:
    who = answer.identity
    if not who.home:
        return of_answer(answer, DispatcherPlace(socket, Path(who.folder) if who.folder else None))
    home = DispatcherFolder(Path(who.home))
    told = of_answer(answer, DispatcherPlace(socket, home.path, home))
    own = tuple(dict.fromkeys([*told.own, *of_folder(home).own]))
    return told._replace(own=own)


def _asked_of(word: Word, one: Known[DispatcherPlace]) -> Known[DispatcherPlace]:
    """Ask a dispatcher about the word as a cluster job, and return the words that name it."""
    if not one.thing.is_watchable:
        return one
    try:
        with one.thing.open() as watched:
            answer = watched.ask(most=1, words=[word.text])
    except (OSError, ClusterError):  # it has ended or is silent: go on with what its files say
        return one
    told = of_answer(answer, one.thing)
    others = told.other if word.text in {each.job for each in answer.status.workers} else one.other
    return one._replace(other=others, calls=told.calls)


WIDER: Sequence[Callable[[Word, list[Known[DispatcherPlace]]], list[Known[DispatcherPlace]]]] = (
    lambda word, known: known,
    # Only a dispatcher itself knows its named runs and cluster jobs.
    lambda word, known: [_asked_of(word, one) for one in known],
    lambda word, known: [
        *known,
        *(known_folder(one, DispatcherPlace(None, one)) for one in run_folders()),
    ],
)
"""Where a name is looked for, in this order: each place takes longer than the one before."""


def find(
    text: str, wanted: Callable[[DispatcherPlace], object], why_not: str
) -> Known[DispatcherPlace]:
    """Return the dispatcher that a word names, among those that are `wanted`. `why_not` ends the
    error for one that is not.

    Raises:
        SeveralMeant: the word names several.
        NotKnown: it names none that runs.
        ConfigurationError: it names one that is not wanted, or was killed.
        ClusterError: the named one does not answer, or may be one of those that do not.
    """
    if not text:
        raise ConfigurationError("no dispatcher is named: the name is empty", hint=LISTS)
    word, (known, silent) = word_of(text), there()
    for widen in WIDER:
        known = widen(word, known)
        candidates = [one for one in known if wanted(one.thing)]
        found = only(word, candidates, "dispatcher")
        if found is not None:
            return found
    raise _none(word, known, silent, why_not) or _unknown(text, candidates)


def _none(
    word: Word, known: Sequence[Known[DispatcherPlace]], silent: Silent, why_not: str
) -> GridEngineError | None:
    """Return the error for a word that names no wanted dispatcher, if the reason is known."""
    for one in meant(word, known):
        place, folder, name = one.thing, one.thing.standalone, one.title
        if folder is not None:
            holder, state = folder.holder(), folder.state()
            start = folder.how_to_start()
            if holder is not None and holder.is_here and holder.pid in silent:
                return silent[holder.pid]
            if state is DispatcherState.DIED:
                hint = f"`{start}` goes on with its calls"
                return ConfigurationError(f"the dispatcher {name!r} was killed", hint=hint)
            if state is DispatcherState.DISCONNECTED:
                return folder.not_running()
            folder.check_here("worker", name)
            if state is DispatcherState.ENDED:
                hint = f"start it: {start}"
                return NotKnown(f"the dispatcher {name!r} does not run", hint=hint)
        killed = place.folder is not None and was_killed(place.folder)
        if place.socket is None and (killed or place.worker_file is None):
            hint = f"`gridengine logs {name}` shows what its workers wrote; {NOT_KEPT}"
            return NotKnown(f"the run {name} has ended", hint=hint)
        return ConfigurationError(f"{name} ({one.about}) {why_not}", hint=LISTS)
    if word.text.isdecimal() and int(word.text) in silent:
        return silent[int(word.text)]
    if silent:
        others = "; ".join(str(one.message) for one in silent.values())
        return ClusterError(
            f"no dispatcher that answers on this machine is called {word.text!r}, and others "
            f"do not tell their names: {others}",
            hint=next(iter(silent.values())).hint,
        )
    return None


def _unknown(text: str, candidates: Sequence[Known[DispatcherPlace]]) -> NotKnown:
    """Return the error for a word that names nothing, with what it may have meant."""
    from gridengine.journal.run_file import SUFFIX, folder  # imports SQLite

    running = [one for one in candidates if one.thing.socket or one.thing.standalone]
    path, near = _path(text), listed(text, running)
    hint = f"there {'are' if len(running) > 1 else 'is'}: {near}; {LISTS}" if near else LISTS
    words = f"no dispatcher {text!r} runs on this machine, nor a stand-alone one elsewhere"
    if path is not None and not path.exists():
        words += f", and {path} does not exist"
    run = Path(text).name.removesuffix(SUFFIX)
    with contextlib.suppress(OSError, ValueError):  # there is no run directory, or no such name
        if run and (folder() / f"{run}{SUFFIX}").is_file():
            words = f"no dispatcher runs calls of the run {run!r} now"
            hint = f"`gridengine results {run}` has their results; {hint}"
    return NotKnown(words, hint=hint)


def connect(text: str = "") -> Watched:
    """Return a connection to the dispatcher that a word names. Without a word, it is the only one
    that runs on this machine or, if there is none here, the only stand-alone one elsewhere. Its
    `run` is the named run, or the client, if the word names the dispatcher only by that.

    Raises:
        SeveralMeant: there are several; the text has a word for each.
        NotKnown: there is none.
        ConfigurationError: it was killed, or can be asked on its own machine alone.
        ClusterError: it does not answer, or may be one of those that do not.
    """
    text, found = _watchable(text) if text else ("", _the_only_one())
    try:
        watched = found.thing.open()
    except OSError as error:
        raise ClusterError(f"{found.title} has just ended") from error
    watched.run = calls_meant(word_of(text), found)
    return watched


def running_or_ended(name: str) -> Watched | WatchAnswer:
    """Return a connection to the dispatcher of this name; if none runs, the report of the last run
    of this name. An empty name means the only dispatcher that runs, else the last report.

    Raises:
        ConfigurationError: there is neither, or there are several.
        ClusterError: the dispatcher does not answer.
    """
    try:
        return connect(name)
    except NotKnown:
        found = ended_answer(name)
        if found is None:
            raise
        return found


def answer_of(name: str, ask: str = STATUS) -> tuple[WatchAnswer, bool]:
    """Return the answer of the dispatcher of this name, and True; or a report, as
    `running_or_ended` finds it, and False.
    """
    found = running_or_ended(name)
    if isinstance(found, WatchAnswer):
        return found, False
    with found:
        return found.ask(ask, most=MOST_SAMPLED), True


def or_as_call(look: Callable[[str, str], T], name: str, which: str) -> T:
    """Return what `look` finds for a dispatcher and a call. A number alone that names no dispatcher
    is a call of the only one that runs, else of the last that has ended.

    Raises:
        SeveralMeant: there are several; the text has a word for each.
    """
    try:
        return look(name, which)
    except NotKnown:
        if which or not name.isdecimal():
            raise
        with contextlib.suppress(NotKnown):
            return look("", name)
        raise


def _watchable(text: str) -> tuple[str, Known[DispatcherPlace]]:
    """Return the dispatcher that a word names, and the word. If it names none, it may be the script
    or process that began a named run: return that run's name, and the dispatcher that has its
    calls.
    """
    why_not = "can be asked on its machine alone"
    try:
        return text, find(text, lambda place: place.is_watchable, why_not)
    except NotKnown as error:
        run = run_begun_by(word_of(text))
        with contextlib.suppress(NotKnown):
            if run:
                return run, find(run, lambda place: place.is_watchable, why_not)
        raise error from None


def _the_only_one() -> Known[DispatcherPlace]:
    known, silent = there()
    here = [one for one in known if one.thing.socket is not None]
    if not here and silent:
        raise next(iter(silent.values()))
    candidates = here or [one for one in known if one.thing.is_elsewhere]
    found = only(Word(""), candidates, "dispatcher")
    if found is None:
        raise NotKnown("no dispatcher of yours runs on this machine", hint=why_blocked() or LISTS)
    return found


def standalone(text: str) -> DispatcherFolder:
    """Return the folder of the stand-alone dispatcher that a word names. It need not run.

    Raises:
        SeveralMeant: there are several; the text has a word for each.
        ConfigurationError: there is none.
        ClusterError: it may be one of those that do not answer.
    """
    return _standalone(text)[0]


def by_itself(text: str) -> DispatcherFolder:
    """Return the folder as `standalone` does, for commands that end or change a whole dispatcher.
    The word must not be a named run or a client, because the dispatcher may have others.

    Raises:
        ConfigurationError: the word is a named run or a client.
    """
    folder, run = _standalone(text)
    if run:
        raise ConfigurationError(
            f"{text!r} names calls at the dispatcher {folder.name!r}, which may have others too",
            hint=f"say {folder.name} to mean all of it; `gridengine cancel {run}` ends those calls",
        )
    return folder


def _standalone(text: str) -> tuple[DispatcherFolder, str]:
    """Return the folder; and the named run or client, if the word is one, else an empty text."""
    word = word_of(text)
    places = [DispatcherFolder.of(text).path] if is_name(text) else []
    places += [Path(word.place), Path(word.place).parent] if word.place else []
    for path in places:
        if (path / OPTIONS).exists():
            return DispatcherFolder(path), ""
    try:
        found = find(text, lambda place: place.standalone, "is no stand-alone dispatcher")
    except NotKnown as error:
        raise _no_standalone(text) from error
    assert found.thing.standalone is not None
    return found.thing.standalone, calls_meant(word, found)


def _no_standalone(text: str) -> ConfigurationError:
    near = listed(text, list(map(of_folder, standalone_folders())))
    hints = [f"there are: {near}"] if near else []
    if is_name(text):
        hints.append(f"start one: gridengine dispatcher start {text}")
    elif "://" in text:
        hints.append(
            "for one elsewhere, give the path of a copy of its client.json, which has the keys"
        )
    return ConfigurationError(f"there is no dispatcher {text!r}", hint="; ".join(hints) or LISTS)


def new_or_known(text: str) -> DispatcherFolder:
    """Return the folder of a dispatcher that is to be started: an existing one, or a new one of
    this name. A word that names an existing one only by its runs or its script names a new one.

    Raises:
        ConfigurationError: there is none, and the word cannot be the name of a new one.
    """
    if os.sep in text:
        return standalone(text)
    named = DispatcherFolder.of(text)
    if named.options_file.exists():
        return named
    found = (one for one in standalone_folders() if text in of_folder(one).own)
    return next(found, named)


def client_file(text: str) -> Path:
    """Return the connection file for clients of the stand-alone dispatcher that a word names; or
    the file itself, if the word is the path of a copy from elsewhere.

    Raises:
        ConfigurationError: there is no such dispatcher, or it does not run.
        ClusterError: it may be one of those that do not answer.
    """
    if is_name(text) and (file := DispatcherFolder.of(text).client_file).exists():
        return file
    path = _path(text)
    copied = path / CLIENT if path is not None and path.is_dir() else path
    if copied is not None and copied.name != CONNECTION and _is_copied(copied):
        return copied
    folder = standalone(text)
    if not folder.client_file.exists():
        raise folder.not_running()
    return folder.client_file


def worker_file(text: str) -> Path:
    """Return the connection file for workers of the dispatcher that a word names; or the file
    itself, if the word is the path of a copy from elsewhere.

    Raises:
        ConfigurationError: there is no such dispatcher, or it does not run, or takes no workers.
        ClusterError: it may be one of those that do not answer.
    """
    path = _path(text)
    copied = DispatcherPlace(None, path).worker_file or path
    if copied is not None and _is_copied(copied):
        if copied.name == CLIENT:
            raise ConfigurationError(f"{copied} is for clients", hint=f"copy {WORKER} beside it")
        return copied
    if path is not None and path.is_dir() and os.sep in text and not (path / OPTIONS).exists():
        raise NotKnown(f"{text} has no {CONNECTION}: that run has ended", hint=LISTS)
    file = find(text, lambda place: place.worker_file, TAKES_NONE).thing.worker_file
    assert file is not None
    return file


def _path(text: str) -> Path | None:
    place = word_of(text).place
    return Path(place) if place else None


def _is_copied(path: Path) -> bool:
    """Return whether this is a connection file outside a stand-alone dispatcher's folder."""
    if not path.is_file() or (path.parent / OPTIONS).exists():
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(1) == b"{"
    return False
