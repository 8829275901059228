"""Find the logs of a run's workers: by asking a running dispatcher, else in the run's folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from gridengine.dispatcher.run_directory import CONNECTION, LOGS, is_under_way
from gridengine.dispatcher.watch_messages import REPORT, WatchAnswer
from gridengine.status.figures import EndedCall, FailureStatus
from gridengine.status.rows import RunStatus
from gridengine.watching.call_explanation import ended_calls, explain_call, explain_ended
from gridengine.watching.dispatcher_lookup import answer_of
from gridengine.watching.names import NotKnown, meant, word_of
from gridengine.watching.phrases import clock, names_of
from gridengine.watching.runs_on_disk import heading, known_folder, run_folders

NO_LOG = (
    "calls in this machine's processes print to the output of the script, not to a log; "
    "`gridengine logs {}` shows the last of it"
)


class FoundLogs(NamedTuple):
    """The logs of a run.

    told: the last lines of the dispatcher's own log, if all logs are requested.
    paths: the workers' logs.
    may_come: whether workers may still write logs.
    printed: output of calls that is in no log.
    why: the reason why all of these are empty.
    heading: a line that says which run has ended, and when.
    """

    told: list[str]
    paths: list[Path]
    may_come: bool
    printed: str = ""
    why: str = ""
    heading: str = ""


def find_logs(name: str, which: str, *, failed: bool) -> FoundLogs:
    """Return the logs of a call or worker, of workers where calls have failed, or all. The logs of
    an ended run are found by its report, or by its folder.

    Raises:
        ConfigurationError: there is neither such a dispatcher nor such a run.
    """
    try:
        answer, runs = answer_of(name, REPORT)
    except NotKnown:
        folder = _folder_of(name)
        if folder is None or failed:
            raise
        return _logs_of_folder(folder, which)
    folder = None if runs or name or failed else _folder_of("")
    if folder is not None and folder.name > answer.identity.run_id:  # it has left no report
        return _logs_of_folder(folder, which)
    logs = logs_in(Path(answer.identity.folder)) if answer.identity.folder else []
    told: list[str] = []
    if failed:
        logs = _paths([one.log for one in answer.status.failures])
    elif which:
        logs = _paths(_logs_of(answer, which)) or [path for path in logs if _is_named(path, which)]
    else:
        told = [f"{clock(answer, one.seconds_ago)} {one.text}" for one in answer.lines]
    return FoundLogs(
        told,
        logs,
        runs and bool(answer.identity.folder) and not which,
        "" if failed or which else answer.printed,
        _why_none(answer, which),
        "" if runs else heading(answer, name),
    )


def _folder_of(name: str) -> Path | None:
    """Return the folder of the last run of this name, or of any if it is empty; None if none."""
    folders = run_folders()
    if name:
        named = meant(word_of(name), [known_folder(one, one) for one in folders])
        folders = [one.thing for one in named]
    return folders[0] if folders else None


def _logs_of_folder(folder: Path, which: str) -> FoundLogs:
    """Return the logs of a run of which only its folder is there."""
    named = [path for path in logs_in(folder) if not which or _is_named(path, which)]
    may_come = not which and is_under_way(folder / CONNECTION)
    return FoundLogs([], named, may_come, heading=f"the run {folder.name}")


def _logs_of(answer: WatchAnswer, which: str) -> list[str]:
    """Return the logs of a call, and of workers by id, process, cluster job or host. Workers that
    have left are known by the calls that they ran.
    """
    status = answer.status
    calls: list[RunStatus | FailureStatus] = [*status.runs, *status.failures]
    logs = [one.log for one in calls if which in (one.id, *names_of(one.call))]
    logs += [one.log for one in ended_calls(answer, which)]
    there = [one for one in status.workers if which in (one.id, str(one.pid), one.job, one.host)]
    left: list[FailureStatus | EndedCall] = [*status.failures, *answer.timeline]
    logs += [one.log for one in there]
    return logs + [one.log for one in left if which in (one.job, one.host)]


def _is_named(path: Path, which: str) -> bool:
    """Return whether `which` is the file's path or name. A number alone is always a call."""
    return which in (str(path), path.name, path.stem)


def _why_none(answer: WatchAnswer, which: str) -> str:
    """Return why there is no log at all, or none of the named call or worker."""
    if answer.killed:
        return "nothing is known of its calls, because its process was killed"
    found = explain_call(answer, which) or explain_ended(answer, which)
    words = [str(one).rstrip(".") for one in found[:1]]
    if which and not found:
        words.append(f"{which!r} names no call that runs or has ended, no worker and no log")
    if answer.status.local and not answer.identity.home:
        words.append(NO_LOG.format(shlex.quote(answer.identity.name)))
    elif found or not which:
        words.append("its worker has left no log" if which else "no worker has written a log")
    return "; ".join(words)


def _paths(logs: list[str]) -> list[Path]:
    return [path for path in map(Path, dict.fromkeys(filter(None, logs))) if path.exists()]


def logs_in(folder: Path) -> list[Path]:
    """Return the workers' logs in the folder of a run."""
    logs = folder / LOGS
    return sorted(logs.glob("*.log")) if logs.is_dir() else []
