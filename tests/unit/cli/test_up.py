"""Workers that `gridengine up` starts: how many, what is said of them, how many failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gridengine.cli import up
from gridengine.cli.up import ExtraWorkers
from gridengine.errors import SubmissionRefused
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import (
    Handle,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
    WorkerStatus,
)
from gridengine.settings.values import Settings

QUEUED, RUNNING, ENDED, FAILED = (
    Report(WorkerStatus.QUEUED),
    Report(WorkerStatus.RUNNING),
    Report(WorkerStatus.ENDED),
    Report(WorkerStatus.FAILED, "killed by SIGKILL"),
)


class ScriptedLauncher(Launcher):
    """Launches at most so many workers at a time, and reports of each what a test says in turn."""

    def __init__(self, batches: Sequence[int], reports: Mapping[str, Sequence[Report]]) -> None:
        self.batches = list(batches)
        self.reports = {name: list(told) for name, told in reports.items()}
        self.names = iter(reports)

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        batch = self.batches.pop(0)
        if not batch:
            raise TryAgain("the master is away")
        return [Handle(next(self.names), "/runs/a.log") for _ in range(min(batch, count))]

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Report]:
        return {handle: self.reports[handle.id].pop(0) for handle in handles}

    def cancel(self, handles: Sequence[Handle]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "settings", lambda: Settings(poll_seconds=0.0))


def test_each_change_of_a_worker_is_said_once() -> None:
    lines: list[str] = []
    launcher = ScriptedLauncher([1], {"7": [QUEUED, QUEUED, RUNNING, RUNNING, ENDED]})
    workers = ExtraWorkers(launcher, ANY, lines.append)
    workers.run(1)
    assert lines == [
        "1 workers asked for: 7",
        "worker 7 queued",
        "worker 7 running",
        "worker 7 ended",
    ]
    assert workers.failed == 0


def test_a_worker_that_failed_is_counted_and_its_log_named() -> None:
    lines: list[str] = []
    launcher = ScriptedLauncher([2], {"7": [FAILED], "8": [ENDED]})
    workers = ExtraWorkers(launcher, ANY, lines.append)
    workers.run(2)
    assert workers.failed == 1
    at = lines.index("worker 7 failed: killed by SIGKILL")
    assert lines[at + 1] == "  its log: /runs/a.log"


def test_what_the_batch_system_does_not_take_now_is_asked_for_again() -> None:
    lines: list[str] = []
    launcher = ScriptedLauncher([1, 0, 1], {"7": [RUNNING, RUNNING, ENDED], "8": [ENDED]})
    ExtraWorkers(launcher, ANY, lines.append).run(2)
    assert "no workers for now: the master is away" in lines
    assert [line for line in lines if "asked for" in line] == [
        "1 workers asked for: 7",
        "1 workers asked for: 8",
    ]


def test_a_refusal_is_the_error() -> None:
    class Refusing(ScriptedLauncher):
        def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
            raise SubmissionRefused("unknown queue")

    with pytest.raises(SubmissionRefused, match="unknown queue"):
        ExtraWorkers(Refusing([], {}), ANY, print).run(1)
