"""What who watches is answered, and how often that is made."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher.call_selection import NamedCalls
from gridengine.dispatcher.core.events import Event
from gridengine.dispatcher.run_reports import report_files
from gridengine.dispatcher.watch_answers import WatchAnswers
from gridengine.dispatcher.watch_messages import STATUS, Identity, WatchAnswer, WatchRequest
from gridengine.dispatcher.watch_server import FollowerAnswer
from gridengine.output.stream_writer import OutputExcerpt
from gridengine.requests import TasksCancelled
from gridengine.settings.values import Settings
from tests.support.core_play import Play

IDENTITY = Identity("sweep", "run", 1, "host", "", "", 0.0, "", "", "")


class Played:
    """A core that is watched, and what it was had to do."""

    def __init__(self, identity: Identity = IDENTITY, began: float = 0.0) -> None:
        self.play = Play()
        self.posted: list[Event] = []
        self.printed = OutputExcerpt(100)
        self.named = NamedCalls()
        launcher: Any = None
        self.answers = WatchAnswers(
            self.play.core.state,
            launcher,
            (),
            identity,
            traffic=({}, {}),
            settings=Settings(),
            post=self.posted.append,
            began=began,
            printed=self.printed,
            named=self.named,
        )

    def ask(self, ask: str, words: Sequence[str] = (), **options: Any) -> bytes:
        return self.answers.answer(msgspec.json.encode(WatchRequest(ask, words=words)), **options)


class Follower:
    def tell(self, told: FollowerAnswer) -> bool:
        return True

    def drop(self) -> None:
        return

    end = drop


@pytest.fixture
def played() -> Played:
    return Played()


def test_answers_are_shared_for_half_a_second(played: Played) -> None:
    answers = [played.ask("status") for _ in range(10)]
    assert all(one is answers[0] for one in answers)


def test_a_report_has_the_output_of_calls_and_a_status_has_not(played: Played) -> None:
    played.printed.add(b"call 5 speaks\n\xff")
    [report, status] = [
        msgspec.json.decode(played.ask(ask), type=WatchAnswer) for ask in ("report", "status")
    ]
    assert (report.printed, status.printed) == ("call 5 speaks\n\ufffd", "")


def test_a_status_without_named_runs_imports_no_sqlite(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At exit that would turn a script's death by Ctrl-C into status 1."""
    monkeypatch.delitem(sys.modules, "gridengine.journal.run_file", raising=False)
    assert msgspec.json.decode(played.ask("status"), type=WatchAnswer).status.faults == []
    assert "gridengine.journal.run_file" not in sys.modules


def test_the_job_that_the_dispatcher_runs_in_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "4"}
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    status = msgspec.json.decode(Played().ask("status"), type=WatchAnswer).status
    assert status.allocation == "the 4 cores of Slurm job 12"


def test_actions_are_done_each_time(played: Played) -> None:
    played.play.submit(3)
    for _ in range(2):
        played.ask("cancel")
    assert [type(one) for one in played.posted] == [TasksCancelled] * 2


def test_a_cancellation_of_a_named_run_ends_its_calls_alone(played: Played) -> None:
    first, second = [played.play.submit(3, submitter=number)[0].id for number in (1, 2)]
    played.named.note("sweep", "/r/sweep.sqlite", 2)
    whole, one = (
        WatchRequest("cancel", run="sweep"),
        WatchRequest("cancel", words=["1"], run="sweep"),
    )
    answers = [
        msgspec.json.decode(played.answers.answer(msgspec.json.encode(it)), type=WatchAnswer)
        for it in (whole, one)
    ]
    assert [answer.count for answer in answers] == [3, 1]
    assert answers[0].identity.runs == {"sweep": "/r/sweep.sqlite"}
    assert first != second
    all_of_it, single = played.posted
    assert isinstance(all_of_it, TasksCancelled)
    assert isinstance(single, TasksCancelled)
    assert (all_of_it.tasks, single.calls) == ([second], [(second, 1, 2)])


def test_a_watcher_may_not_act(played: Played) -> None:
    answer = msgspec.json.decode(played.ask("cancel", may_act=False), type=WatchAnswer)
    assert "may not cancel" in answer.error
    assert played.posted == []


def test_a_follower_is_answered_at_once_and_told_more(played: Played) -> None:
    played.play.submit(3)
    answer = msgspec.json.decode(played.ask("follow", follower=Follower()), type=WatchAnswer)
    assert answer.status.waiting == 3
    assert played.answers.streams.deadline < float("inf")


def test_a_file_that_a_client_cannot_write_is_told_with_whose_it_is(played: Played) -> None:
    faults = [("/night.sqlite", "disk full", "client 7")]
    played.answers._listener = SimpleNamespace(  # type: ignore[assignment]
        faults=lambda: faults, seen=list
    )
    status = msgspec.json.decode(played.ask("status"))["status"]
    [fault] = status["faults"]
    assert (fault["path"], fault["error"]) == ("/night.sqlite", "disk full")
    assert fault["loss"].startswith("the file belongs to client 7; ")


def test_only_calls_that_have_not_ended_are_counted_as_cancelled(played: Played) -> None:
    played.play.done(played.play.running(3))
    counts = [
        msgspec.json.decode(played.ask("cancel", words), type=WatchAnswer).count
        for words in (["0"], ["0", "2"])
    ]
    assert counts == [0, 1]


def test_ended_calls_are_told_with_their_workers(played: Played) -> None:
    played.play.done(played.play.running(3, first=10))
    report = msgspec.json.decode(played.ask("report"), type=WatchAnswer)
    [ended] = report.timeline
    assert (ended.id, ended.call, ended.calls) == ("1.0", "call 10 of square", 1)
    assert (ended.host, ended.job, ended.log) == ("node-w", "41", "/runs/x/1.log")
    assert report.status.functions[0].numbered == 13


@pytest.mark.parametrize(
    ("exitcode", "watched", "folder", "reports"),
    [(0, False, "", 0), (1, False, "", 1), (0, True, "", 1), (0, False, "/runs/x", 1)],
)
def test_a_short_run_leaves_a_report_when_a_call_failed_or_somebody_watched_or_it_has_logs(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    exitcode: int,
    watched: bool,
    folder: str,
    reports: int,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    played = Played(replace(IDENTITY, folder=folder), time.monotonic())
    run = played.play.running(1, retries=0)
    if exitcode:
        played.play.crash(run, 0)
    else:
        played.play.done(run)
    if watched:
        played.ask(STATUS)
    played.answers.leave_report()
    assert len(report_files()) == reports
