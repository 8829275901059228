"""`gridengine retry`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.api import named_runs
from gridengine.cli.main import main
from gridengine.client import outliving_calls


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
