"""`gridengine calls`, `cancel` and `retry`."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.api import named_runs
from gridengine.cli import calls as module
from gridengine.cli.main import main
from gridengine.client import outliving_calls
from gridengine.dispatcher.watch_messages import CANCEL, WatchAnswer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import FunctionStatus, RunStatus, Status
from tests.support.watched import WHO, FakeWatched


def run(number: int, seconds: float, function: str = "f", **facts: object) -> RunStatus:
    return RunStatus(  # type: ignore[misc]
        *(f"1.{number}", f"call {number} of {function}", function, 1, seconds, "node1", "4711"),
        *("", "w1", 2, 3),
        **facts,
    )


STATUS = Status(
    running=5,
    failed=3,
    functions=[FunctionStatus("f", p95_seconds=2.0), FunctionStatus("new")],
    runs=[run(1, 1.0), run(2, 3.0, waits=True), run(3, 5.0, late=True), run(4, 0.5, "new")],
    failures=[
        FailureStatus("1.8", "call 8 of f", "f", 1, 9.0, error="disk full", seconds=0.0),
        FailureStatus("1.9", "call 9 of f", "f", 3, 9.0, error="=1+1", cancelled=True),
    ],
)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "answer_of", lambda name: (WatchAnswer(WHO, STATUS), True))


def call(*words: str) -> Result:
    result = CliRunner().invoke(main, ["calls", *words])
    assert result.exit_code == 0
    return result


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), ["1.1", "1.2", "1.3", "1.4", "1.9", "1.8"]),
        (("--running",), ["1.1", "1.2", "1.3", "1.4"]),
        (("--failed",), ["1.9", "1.8"]),
        (("--failed", "--running"), ["1.1", "1.2", "1.3", "1.4", "1.9", "1.8"]),
        (("--slow",), ["1.3", "1.2", "1.4"]),
    ],
)
def test_calls_are_told_that_are_asked_for(words: tuple[str, ...], ids: list[str]) -> None:
    assert [one["id"] for one in json.loads(call("--json", *words).stdout)] == ids


def test_the_state_of_each_is_told_in_a_word() -> None:
    states = [one["state"] for one in json.loads(call("--json").stdout)]
    assert states == ["runs", "waits", "late", "runs", "cancelled", "failed"]


def test_spreadsheets_and_people_have_the_same_calls() -> None:
    rows = list(csv.DictReader(io.StringIO(call("--csv", "--failed").stdout)))
    assert [(one["id"], one["call"], one["why"]) for one in rows] == [
        ("1.9", "call 9 of f and 2 more", "=1+1"),
        ("1.8", "call 8 of f", "disk full"),
    ]
    result = call("--failed")
    assert re.search(r"^1\.9 +call 9 of f and 2 more", result.stdout, re.MULTILINE)
    assert "5 running, 0 waiting, 0 done, 3 failed; 2 shown" in result.stderr


def test_the_end_of_a_run_is_told_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "answer_of", lambda name: (WatchAnswer(WHO, STATUS), False))
    result = call("--json")
    assert "sweep.py, process 4242 on login1, ended at" in result.stderr
    assert json.loads(result.stdout)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> FakeWatched:
    """A dispatcher with three calls, of which two are ended by name."""
    status = Status(waiting=2, running=1)
    one = FakeWatched(lambda ask: WatchAnswer(WHO, status, count=2 if ask == CANCEL else 0))
    monkeypatch.setattr(module, "connect", lambda name: one)
    return one


def cancel(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["cancel", *words], input=typed)


def acted(watched: FakeWatched) -> list[list[str]]:
    return [list(words) for ask, words in watched.asked if ask == CANCEL]


def test_calls_that_are_named_are_ended_without_a_question(watched: FakeWatched) -> None:
    result = cancel("sweep", "190", "191")
    assert (result.exit_code, result.output) == (0, "2 calls ended\n")
    assert (acted(watched), watched.closed) == ([["190", "191"]], True)


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_before_all_are_ended_it_is_asked(watched: FakeWatched, typed: str) -> None:
    result = cancel("sweep", typed=typed)
    assert "End all 3 calls of sweep.py?" in result.output
    assert (result.exit_code, acted(watched)) == (1, [])


@pytest.mark.parametrize(("words", "typed"), [((), "y\n"), (("--yes",), "")])
def test_yes_ends_all_calls(watched: FakeWatched, words: tuple[str, ...], typed: str) -> None:
    assert cancel("sweep", *words, typed=typed).exit_code == 0
    assert acted(watched) == [[]]


def test_the_question_names_the_run_whose_calls_end(watched: FakeWatched) -> None:
    watched.run = "seen"
    assert "End all calls of seen at sweep.py?" in cancel("seen", typed="n\n").output


def test_the_exit_status_says_that_nothing_was_ended(watched: FakeWatched) -> None:
    watched.answer = lambda ask: WatchAnswer(WHO, Status())
    result = cancel("sweep", "999")
    assert (result.exit_code, result.output) == (
        1,
        "no such call waits or runs; `gridengine calls sweep` lists those that run\n",
    )


def test_named_calls_that_had_ended_are_told(watched: FakeWatched) -> None:
    result = cancel("sweep", "15", "190", "191")
    assert result.output == "2 calls ended; the others neither wait nor run\n"


class Run:
    """A run with a name, whose calls give these results when they are made again."""

    name, path = "sweep", Path("/r/sweep.sqlite")

    def __init__(self, failed: int, left: int, *results: Any) -> None:
        self.failed, self.left, self.results = failed, left, list(results)
        self.made: list[bool] = []

    def resubmit(self, *, failed_only: bool, scheduler: object) -> list[Any]:
        self.made.append(failed_only)
        return self.results


def retry(monkeypatch: pytest.MonkeyPatch, run: Run, *words: str, typed: str = "y\n") -> Result:
    monkeypatch.setattr(named_runs, "run_named", lambda name, journal: run)
    return CliRunner().invoke(main, ["retry", "sweep", *words], input=typed)


@pytest.mark.parametrize(
    ("words", "asked", "failed_only"),
    [(("--failed",), "2 calls", True), ((), "5 calls", False)],
)
def test_a_retry_asks_before_and_tells_how_many_have_ended(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], asked: str, failed_only: bool
) -> None:
    run = Run(2, 3, 1, 2)
    result = retry(monkeypatch, run, *words)
    assert f"Run {asked} of sweep again?" in result.output
    assert "sweep: 2 calls done, 0 failed" in result.output
    assert (result.exit_code, run.made) == (0, [failed_only])
    refused = Run(2, 3)
    assert retry(monkeypatch, refused, *words, typed="n\n").exit_code == 1
    assert refused.made == []


def test_calls_that_fail_again_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = retry(monkeypatch, Run(2, 0, 1, ValueError("no")), "--yes")
    assert result.exit_code == 1
    assert "1 call done, 1 failed" in result.stdout
    assert "ValueError('no')" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [((), "nothing has failed, and nothing is left"), (("--failed",), "nothing has failed")],
)
def test_nothing_is_asked_when_there_is_nothing_to_retry(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    result = retry(monkeypatch, Run(0, 0), *words)
    assert (result.exit_code, result.output) == (0, f"sweep: {told}\n")


def test_a_dispatcher_that_makes_calls_of_the_run_is_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = [SimpleNamespace(name="sweeps"), SimpleNamespace(name="night")]
    monkeypatch.setattr(outliving_calls, "dispatchers_with", lambda name, path: folders)
    refused = retry(monkeypatch, Run(1, 2), "--dispatcher", "night", typed="n\n")
    assert "the dispatcher sweeps has calls of it without a result" in refused.stderr
    assert "the dispatcher night" not in refused.stderr
    assert "has calls" not in retry(monkeypatch, Run(1, 2), "--failed", typed="n\n").stderr


def test_a_dispatcher_has_a_scheduler_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(1, 0)
    words = "--dispatcher", "sweeps", "--max-workers", "3", "--yes"
    assert retry(monkeypatch, run, *words).exit_code == 2
    assert run.made == []
