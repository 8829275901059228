"""`gridengine calls`."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import calls as module
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import Answer
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import FunctionStatus, RunStatus, Status
from tests.support.watched import WHO


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
    monkeypatch.setattr(module, "answer_of", lambda name: (Answer(WHO, STATUS), True))


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


def test_that_a_run_is_over_is_told_beside_what_scripts_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "answer_of", lambda name: (Answer(WHO, STATUS), False))
    result = call("--json")
    assert "sweep.py, process 4242 on login1, ended at" in result.stderr
    assert json.loads(result.stdout)
