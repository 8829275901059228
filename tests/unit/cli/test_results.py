"""What `gridengine results` writes of values that a format has no words for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import results as module
from gridengine.cli.main import main
from gridengine.cli.results import WRITERS
from gridengine.errors import ConfigurationError, Pending

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("value", [{(1, 2): 3}, {1, "a"}, b"x", CIRCLE])
def test_json_is_said_to_have_nothing_for_a_value(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"JSON has no form for [\s\S]*--format pickle"):
        WRITERS["jsonl"]([value])


class Run:
    """A run with these results, of which somebody has what is missing."""

    name, path, left = "sweep", Path("/r/sweep.sqlite"), 2

    def __init__(self, *results: Any) -> None:
        self.given = list(results)
        self.waited: list[float | None] = []

    def results(self, timeout: float | None) -> list[Any]:
        self.waited.append(timeout)
        return self.given


def results(monkeypatch: pytest.MonkeyPatch, run: Run, *words: str) -> Result:
    monkeypatch.setattr(module, "run_named", lambda name, journal: run)
    monkeypatch.setattr(module, "who_has", lambda name, path: "process 7 on login1")
    monkeypatch.setattr(module, "how_left_go_on", lambda name, path: "run the script again")
    return CliRunner().invoke(main, ["results", "sweep", *words])


def test_for_whom_it_waits_is_told_and_for_how_long_can_be_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(1)
    told = results(monkeypatch, run).stderr
    had = "waiting for 2 calls that process 7 on login1 has"
    assert told == f"{had}; --now takes the results that are there\n"
    assert "waiting" in results(monkeypatch, run, "--timeout", "5").stderr
    for words in (["--now"], ["--timeout", "0"]):
        assert results(monkeypatch, run, *words).stderr == ""
    assert run.waited == [None, 5.0, 0.0, 0.0]


def test_calls_that_failed_and_calls_that_are_left_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(1, ValueError("no"), Pending("left"), Pending("left"))
    assert results(monkeypatch, run, "--now").stderr == (
        "3 of 4 calls have no result: 1 failed (`gridengine retry sweep --failed` runs these "
        "again), 2 left (run the script again)\n"
    )


def test_numbers_that_json_does_not_have_are_null() -> None:
    value = {"a": [math.nan, 1.5], "b": (-math.inf,), "c": "NaN"}
    [line] = WRITERS["jsonl"]([value]).splitlines()
    assert line == b'{"result": {"a": [null, 1.5], "b": [null], "c": "NaN"}}'


def test_text_that_is_no_unicode_is_escaped_in_csv() -> None:
    assert WRITERS["csv"](["\ud800"]) == b"result\r\n\\ud800\r\n"
