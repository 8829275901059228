"""Finds the logs of a run's workers: of one that is under way by asking it, else by its folder."""

from __future__ import annotations

from pathlib import Path

from gridengine.dispatcher.core.status import Status
from gridengine.dispatcher.old_runs import LOGS
from gridengine.errors import ConfigurationError
from gridengine.watching.dispatchers import SeveralMeant, is_run
from gridengine.watching.explanation import names_of
from gridengine.watching.figures import seconds
from gridengine.watching.kept import answer_of
from gridengine.watching.other_runs import other_runs


def find_logs(name: str, which: str, *, failed: bool) -> tuple[list[str], list[Path]]:
    """Return the last lines of a dispatcher's own log, when all is asked for, and the paths of
    workers' logs: of a call's or worker's, of those where calls have failed, or of all. Those of a
    run that has ended are found by what was kept of it, or by its folder.

    Raises:
        ConfigurationError: there is neither such a dispatcher nor such a run.
    """
    try:
        answer, _ = answer_of(name)
    except SeveralMeant:
        raise
    except ConfigurationError:
        runs = [(Path(one.folder), one.pid) for one in other_runs(set())]
        found = [folder for folder, pid in runs if name and is_run(name, folder.name, pid)]
        if not found or failed:
            raise
        return [], [path for path in logs_in(found[0]) if which in path.name]
    folder = answer.identity.folder
    logs = logs_in(Path(folder)) if folder else []
    if failed:
        return [], _paths([one.log for one in answer.status.failures])
    if which:
        named = _paths(_logs_of(answer.status, which))
        return [], named or [path for path in logs if which in path.name]
    told = [f"{seconds(one.seconds_ago)} ago: {one.text}" for one in answer.lines]
    return told, logs


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
    """Return the logs of the workers of a run, by its folder."""
    logs = folder / LOGS
    return sorted(logs.glob("*.log")) if logs.is_dir() else []
