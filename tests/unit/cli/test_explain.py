"""`gridengine explain`."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from gridengine.cli import explain as module
from gridengine.cli.explain import REASONS_SECONDS, status_with_reasons
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import CALLS, REASONS, STATUS, WatchAnswer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import CallStatus, FunctionStatus, LaunchStatus, Status
from tests.support.watched import WHO, FakeWatched, Machine

FAILED = Status(failed=1, failures=[FailureStatus("1.6", "call 6 of f", "f", 1, 2.0, error="bad")])


class Clock:
    """Time goes on by what is slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        here = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(module, "time", here)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def queued(reason: str) -> WatchAnswer:
    return WatchAnswer(WHO, Status(launches=[LaunchStatus("", queued=1, reason=reason)]))


def test_no_reason_is_asked_for_when_nothing_is_queued() -> None:
    watched = FakeWatched()
    status_with_reasons(watched, ["1.0"])  # type: ignore[arg-type]
    assert watched.asked == [(STATUS, ["1.0"])]


def test_explain_waits_for_the_batch_system_s_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    watched = FakeWatched()
    watched.answer = lambda ask: queued("Priority" if len(watched.asked) > 4 else "")
    answer = status_with_reasons(watched)  # type: ignore[arg-type]
    assert answer.status.launches[0].reason == "Priority"
    assert [ask for ask, _ in watched.asked] == [STATUS, REASONS, STATUS, STATUS, STATUS]


def test_a_system_without_reasons_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    answer = status_with_reasons(FakeWatched(lambda ask: queued("")))  # type: ignore[arg-type]
    assert answer.status.launches[0].reason == ""
    assert clock.now >= REASONS_SECONDS


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def test_scripts_have_each_cause_with_its_next_step(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    machine.says(queued("Priority"))
    result = explain("--json")
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)[0]) == {"cause", "place", "text", "next_step"}


@pytest.mark.parametrize("which", ["6", "1.6", "call 6 of f"])
def test_a_call_that_failed_is_looked_up(machine: Machine, which: str) -> None:
    machine.says(WatchAnswer(WHO, FAILED))
    result = explain("sweep", which)
    assert re.match(r"call 6 of f failed at [-\d: ]+: bad", result.output)


def test_a_call_that_waits_is_looked_up_and_one_that_has_ended_is_none(machine: Machine) -> None:
    calls = [
        CallStatus("1.7", "call 7 of f", "f", "ended", 5.0),
        CallStatus("1.8", "call 7 of g", "g", "waiting", 5.0, missing=2),
    ]
    machine.add(
        FakeWatched(lambda ask: WatchAnswer(WHO, Status(), calls=calls if ask == CALLS else ()))
    )
    [line] = explain("sweep", "7").output.splitlines()
    assert line.startswith("call 7 of g was submitted 5.0 s ago, and waits for 2 results")


def test_a_call_that_is_done_is_told_so(machine: Machine) -> None:
    counts = FunctionStatus("f", done=20, numbered=20)
    answer = WatchAnswer(WHO, Status(functions=[counts]))
    machine.says(answer)
    result = explain("sweep", "15")
    assert (result.exit_code, result.output[:16]) == (0, "call 15 is done;")
    machine.says()
    machine.ended(answer)
    assert "call 15 is done" in explain("sweep", "15").stdout
    assert "'20' is not a call" in explain("sweep", "20").stderr


def test_a_name_of_neither_call_nor_worker_is_told(machine: Machine) -> None:
    machine.says(WatchAnswer(WHO))
    result = explain("sweep", "nosuch")
    assert result.exit_code == 1
    assert "'nosuch' names no call that waits" in result.output


def test_the_end_of_an_ended_run_is_told(machine: Machine) -> None:
    assert "no dispatcher of yours runs" in explain().output
    machine.ended(WatchAnswer(WHO, FAILED))
    result = explain("sweep")
    assert "ended at" in result.stderr
    assert "call 6 of f failed: bad" in result.stdout
    assert "call 6 of f failed" in explain("sweep", "6").stdout
    assert "'7' is not a call of this run" in explain("sweep", "7").output
    assert "ended at" in explain().stderr


def test_ended_runs_are_left_out_when_several_are_meant(machine: Machine) -> None:
    machine.ended(WatchAnswer(WHO, FAILED))
    machine.says(*(WatchAnswer(replace(WHO, run_id=f"{n}", pid=n)) for n in (1, 2)))
    result = explain("sweep")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "several" in result.stderr
