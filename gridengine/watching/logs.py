"""Find the logs of a run's workers: by asking a running dispatcher, else in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gridengine.dispatcher.core.status import Status
from gridengine.dispatcher.run_directory import CONNECTION, LOGS, is_under_way
from gridengine.dispatcher.watch_messages import REPORT
from gridengine.watching.explanation import names_of
from gridengine.watching.formats import seconds
from gridengine.watching.names import NotKnown, meant, word_of
from gridengine.watching.other_runs import known_folder, run_folders
from gridengine.watching.run_answers import answer_of


class FoundLogs(NamedTuple):
    """The last lines of a dispatcher's own log (if all logs are requested), the paths of workers'
    logs, whether the first of these may still come, and output of calls that is in no log.
    """

    told: list[str]
    paths: list[Path]
    may_come: bool
    printed: str = ""


def find_logs(name: str, which: str, *, failed: bool) -> FoundLogs:
    """Return the logs of a call or worker, of workers where calls have failed, or all. The logs of
    an ended run are found by its report, or by its folder.

    Raises:
        ConfigurationError: there is neither such a dispatcher nor such a run.
    """
    try:
        answer, runs = answer_of(name, REPORT)
    except NotKnown:
        folders = [known_folder(one, one) for one in run_folders()] if name else []
        found = meant(word_of(name), folders)
        if not found or failed:
            raise
        folder = found[0].thing  # the last begun
        named = [path for path in logs_in(folder) if which in path.name]
        return FoundLogs([], named, not which and is_under_way(folder / CONNECTION))
    logs = logs_in(Path(answer.identity.folder)) if answer.identity.folder else []
    may_come = runs and bool(answer.identity.folder)
    if failed:
        return FoundLogs([], _paths([one.log for one in answer.status.failures]), may_come)
    if which:
        named = _paths(_logs_of(answer.status, which))
        return FoundLogs([], named or [path for path in logs if which in path.name], False)
    told = [f"{seconds(one.seconds_ago)} ago: {one.text}" for one in answer.lines]
    return FoundLogs(told, logs, may_come, answer.printed)


def _logs_of(status: Status, which: str) -> list[str]:
    calls = [(one.id, one.call, one.log) for one in status.runs]
    calls += [(one.id, one.call, one.log) for one in status.failures]
    workers = [
        one.log for one in status.workers if which in (one.id, str(one.pid), one.job, one.host)
    ]
    return [log for id, call, log in calls if which in (id, *names_of(call))] + workers


def _paths(logs: list[str]) -> list[Path]:
    return [path for path in map(Path, dict.fromkeys(filter(None, logs))) if path.exists()]


def logs_in(folder: Path) -> list[Path]:
    """Return the workers' logs in the folder of a run."""
    logs = folder / LOGS
    return sorted(logs.glob("*.log")) if logs.is_dir() else []
