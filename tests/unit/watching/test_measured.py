"""Resources as earlier runs have measured them."""

from __future__ import annotations

import pytest

import gridengine
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.resources.base import ZERO
from gridengine.resources.kinds import Memory, WTime
from gridengine.status.rows import FunctionStatus, Status
from gridengine.watching import measured as module
from gridengine.watching.measured import measured
from tests.support.watched import WHO


def run(name: str, **facts: int) -> WatchAnswer:
    one = FunctionStatus(name, done=3, histogram=[(2.0, 2), (100.0, 1)], **facts)
    return WatchAnswer(WHO, Status(functions=[one]))


def test_the_most_that_the_last_runs_have_used_is_requested_with_a_margin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [run("f", peak_memory=2**30), run("g", peak_memory=2**40), run("f", peak_memory=2**31)]
    monkeypatch.setattr(module, "ended_answers", lambda: iter(runs))
    assert measured("f") == Memory(2.5) & WTime(200)
    [text] = [one.getMessage() for one in caplog.records]
    assert text.startswith("resources of f as measured in 2 runs: Memory(2.5) (up to 2.0 GB,")


def test_without_a_report_nothing_is_requested(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "ended_answers", lambda: iter([run("g")]))
    assert measured("f") == ZERO
    assert "no report has calls of f" in caplog.text


def test_another_text_in_the_place_of_resources_is_refused() -> None:
    with pytest.raises(gridengine.ConfigurationError, match="resources='lots' are none"):
        gridengine.map(abs, [1], resources="lots")  # type: ignore[arg-type]
