"""The runs that are known from disk: folders, reports, records of killed processes, named runs."""

from __future__ import annotations

import contextlib
import heapq
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from gridengine.dispatcher.run_directory import CONNECTION, RUN_NAME, is_under_way
from gridengine.dispatcher.run_reports import report_file, report_files
from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.errors import ConfigurationError
from gridengine.settings.values import settings
from gridengine.system.machine import started
from gridengine.watching.connections import process_of, runtime_files
from gridengine.watching.names import Known, Word, meant, of_answer, only, short_id, word_of
from gridengine.wire.connection_file import RECORD

T = TypeVar("T")
MOST_LOOKED_AT = 20
MOST_KILLED = 20
"""The records of how many killed processes are kept."""
NOT_KEPT = (
    "nothing is kept of runs of this machine's processes that took under ten seconds, in which no "
    "call failed, and that nobody watched"
)


class OtherRun(Struct, frozen=True):
    """A run without a socket on this machine: its folder, its machine and process, when it began
    (seconds since 1970), and whether it is under way.
    """

    folder: str
    host: str
    pid: int
    since: float
    under_way: bool


def other_runs(known: set[str]) -> list[OtherRun]:
    """Return the last runs, except the runs with these ids, the one that began last first. A run is
    under way if its dispatcher accepts connections.
    """
    return [_read(one) for one in run_folders()[:MOST_LOOKED_AT] if one.name not in known]


def run_folders() -> list[Path]:
    """Return the folders of runs, the one that began last first."""
    found: list[Path] = []
    with contextlib.suppress(OSError, ConfigurationError):  # there have been none
        found = [one for one in settings().runs.iterdir() if RUN_NAME.fullmatch(one.name)]
    return sorted(found, key=lambda one: one.name, reverse=True)


def known_folder(folder: Path, thing: T) -> Known[T]:
    """Return the words that name a run, from its folder alone."""
    match, id = RUN_NAME.fullmatch(folder.name), folder.name
    assert match is not None
    own = short_id(id), match[3]
    return Known(id, thing, f"on {match[2]}", own, id=id, paths=(os.path.realpath(folder),))


def _read(folder: Path) -> OtherRun:
    match = RUN_NAME.fullmatch(folder.name)
    assert match is not None
    began = time.mktime(time.strptime(match[1], "%Y%m%d-%H%M%S"))
    file = folder / CONNECTION
    under_way = file.exists() and is_under_way(file)
    return OtherRun(str(folder), match[2] or "", int(match[3]), began, under_way)


def known_runs() -> list[Known[Path]]:
    """Return the named runs, each with its file: by name, by path, and by who began it."""
    return [one for one, _ in _known_and_left()]


def _known_and_left() -> list[tuple[Known[Path], int]]:
    """Return the named runs, and how many of their calls have no result."""
    from gridengine.journal import run_reader  # imports SQLite

    found = []
    for one in map(run_reader.summary, run_reader.paths()):
        script, path = Path(one.script), Path(one.path)
        words = {one.script, script.name, script.stem, str(one.pid)} - {"", "0"}
        about = f"begun by {one.script} on {one.host}"
        known = Known(one.name, path, about, other=words, paths=(os.path.realpath(path),))
        found.append((known, one.left))
    return found


def run_begun_by(word: Word) -> str:
    """Return the name of the run that a word names by its script or process. Of several runs it is
    the one that has calls without a result. Empty when there is none.

    Raises:
        SeveralMeant: several have such calls, or none of several has.
    """
    try:
        runs = _known_and_left()
    except (OSError, ConfigurationError):  # there is no run directory
        return ""
    with_calls = [one for one, left in runs if left]
    found = only(word, with_calls, "run") or only(word, [one for one, _ in runs], "run")
    return "" if found is None or found.title == word.text else found.title


def ended_answer(name: str) -> WatchAnswer | None:
    """Return the report of the last run of this name, or of any if it is empty; None if none."""
    word = word_of(name)
    return next((one for one in ended_answers() if meant(word, [of_answer(one, None)])), None)


def ended_answers() -> Iterator[WatchAnswer]:
    """Yield the reports of ended runs, and the identities of killed ones, the last begun first."""
    reports = filter(None, map(_report_in, report_files()))
    killed = sorted(_killed(), key=lambda one: one.identity.run_id, reverse=True)
    return heapq.merge(reports, killed, key=lambda one: one.identity.run_id, reverse=True)


def check_told(answer: WatchAnswer) -> None:
    """Check that something is known of the calls of an ended run.

    Raises:
        ConfigurationError: its process was killed.
    """
    if answer.killed:
        raise ConfigurationError("nothing is known of its calls, because its process was killed")


def report_of(run_id: str) -> WatchAnswer | None:
    """Return the report of the run with this id; None if there is none."""
    path = report_file(run_id)
    return None if path is None else _report_in(path)


def _report_in(path: Path) -> WatchAnswer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=WatchAnswer)
    except (OSError, msgspec.DecodeError):  # another version's
        return None


def _killed() -> Iterator[WatchAnswer]:
    """Yield the last runs of this machine whose processes were killed; delete older records."""
    records = [path for path in runtime_files(RECORD) if not started(process_of(path))]
    dated = sorted(((_time_of(path), path) for path in records), reverse=True)
    for _, path in dated[MOST_KILLED:]:
        path.unlink(missing_ok=True)
    for _, path in dated[:MOST_KILLED]:
        try:
            yield WatchAnswer(msgspec.json.decode(path.read_bytes(), type=Identity), killed=True)
        except (OSError, msgspec.DecodeError):  # another version's
            continue


def _time_of(path: Path) -> float:
    """Return when a file was written; 0 where it has just been removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def ended_words(answer: WatchAnswer) -> str:
    """Return a sentence that says which run has ended, and when."""
    who = answer.identity
    end = "was killed; it began" if answer.killed else "ended"
    at = time.localtime(who.since + answer.status.elapsed_seconds)
    words = f"{who.name}, process {who.pid} on {who.host}, {end} at "
    return words + time.strftime("%Y-%m-%d %H:%M:%S", at)


def last_words(seen: WatchAnswer) -> str:
    """Return a sentence on how a run has ended that was watched until then: from its report, or
    from when it was last seen.
    """
    found = report_of(seen.identity.run_id)
    if found is not None:
        return f"{ended_words(found)}: {found.status.ended_words}"
    name, counts = seen.identity.name, seen.status.ended_words
    return f"{name} has ended; when it was last seen, of its calls {counts}"


def heading(answer: WatchAnswer, name: str) -> str:
    """Return the line above the description of an ended run: which run it is, and when it ended. If
    the run was found as the last of its name, the line also says which later runs leave no report.
    """
    words = ended_words(answer)
    if name in of_answer(answer, None).own:
        return words
    which = f"the last run {name!r}" if name else "the last run"
    return f"{which} that left a record: {words} ({NOT_KEPT})"
