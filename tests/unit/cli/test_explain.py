"""`gridengine explain`."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import explain as module
from gridengine.cli.explain import REASONS_SECONDS, status_with_reasons
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import CALLS, REASONS, STATUS, WatchAnswer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import CallStatus, FunctionStatus, LaunchStatus, Status
from gridengine.watching import dispatcher_lookup
from gridengine.watching.names import NotKnown, SeveralMeant
from tests.support.watched import WHO, FakeWatched

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


def explain(
    monkeypatch: pytest.MonkeyPatch, watched: FakeWatched | Exception, *words: str
) -> Result:
    def connect(name: str) -> FakeWatched:
        if isinstance(watched, Exception):
            raise watched
        return watched

    monkeypatch.setattr(dispatcher_lookup, "connect", connect)
    return CliRunner().invoke(main, ["explain", *words])


def test_scripts_have_each_cause_with_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    result = explain(monkeypatch, FakeWatched(lambda ask: queued("Priority")), "--json")
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)[0]) == {"cause", "place", "text", "next_step"}


@pytest.mark.parametrize("which", ["6", "1.6", "call 6 of f"])
def test_a_call_that_failed_is_looked_up(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    result = explain(monkeypatch, FakeWatched(lambda ask: WatchAnswer(WHO, FAILED)), "sweep", which)
    assert re.match(r"call 6 of f failed at [-\d: ]+: bad", result.output)


def test_a_call_that_waits_is_looked_up_and_one_that_has_ended_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = [
        CallStatus("1.7", "call 7 of f", "f", "ended", 5.0),
        CallStatus("1.8", "call 7 of g", "g", "waiting", 5.0, missing=2),
    ]
    watched = FakeWatched(
        lambda ask: WatchAnswer(WHO, Status(), calls=calls if ask == CALLS else ())
    )
    result = explain(monkeypatch, watched, "sweep", "7")
    [line] = result.output.splitlines()
    assert line.startswith("call 7 of g was submitted 5.0 s ago, and waits for 2 results")


def test_a_call_that_is_done_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = FunctionStatus("f", done=20, numbered=20)
    answer = WatchAnswer(WHO, Status(functions=[counts]))
    result = explain(monkeypatch, FakeWatched(lambda ask: answer), "sweep", "15")
    assert (result.exit_code, result.output[:16]) == (0, "call 15 is done;")
    monkeypatch.setattr(dispatcher_lookup, "ended_answer", lambda name: answer)
    none = NotKnown("no dispatcher runs")
    assert "call 15 is done" in explain(monkeypatch, none, "sweep", "15").stdout
    assert "'20' is not a call" in explain(monkeypatch, none, "sweep", "20").stderr


def test_a_name_of_neither_call_nor_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = explain(monkeypatch, FakeWatched(), "sweep", "nosuch")
    assert result.exit_code == 1
    assert "'nosuch' names no call that waits" in result.output


def test_the_end_of_an_ended_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    none = NotKnown("no dispatcher runs")
    monkeypatch.setattr(dispatcher_lookup, "ended_answer", lambda name: WatchAnswer(WHO, FAILED))
    result = explain(monkeypatch, none, "sweep")
    assert "ended at" in result.stderr
    assert "call 6 of f failed: bad" in result.stdout
    assert "call 6 of f failed" in explain(monkeypatch, none, "sweep", "6").stdout
    assert "'7' is not a call of this run" in explain(monkeypatch, none, "sweep", "7").output
    assert "ended at" in explain(monkeypatch, none).stderr
    monkeypatch.setattr(dispatcher_lookup, "ended_answer", lambda name: None)
    assert "no dispatcher runs" in explain(monkeypatch, none).output


def test_ended_runs_are_left_out_when_several_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_lookup, "ended_answer", lambda name: WatchAnswer(WHO, FAILED))
    result = explain(monkeypatch, SeveralMeant("several are meant"), "sweep")
    assert (result.exit_code, result.output) == (1, "Error: several are meant\n")
