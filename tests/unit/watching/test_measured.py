"""Resources as earlier runs have measured them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import gridengine
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.resources.base import ZERO
from gridengine.resources.kinds import Memory, WTime
from gridengine.status.rows import FunctionStatus, Status
from gridengine.watching.measured import measured
from tests.support.watched import WHO, Machine


def run(name: str, id: str = "1", **facts: int) -> WatchAnswer:
    one = FunctionStatus(name, done=3, histogram=[(2.0, 2), (100.0, 1)], **facts)
    return WatchAnswer(replace(WHO, run_id=id), Status(functions=[one]))


def test_the_most_that_the_last_runs_have_used_is_requested_with_a_margin(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.ended(run("f", "1", peak_memory=2**31), run("g", "2", peak_memory=2**40))
    machine.ended(run("f", "3", peak_memory=2**30))
    assert measured("f") == Memory(2.5) & WTime(200)
    [text] = [one.getMessage() for one in caplog.records]
    assert text.startswith("resources of f as measured in 2 runs: Memory(2.5) (up to 2.0 GB,")


def test_without_a_report_nothing_is_requested(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.ended(run("g"))
    assert measured("f") == ZERO
    assert "no report has calls of f" in caplog.text


def test_another_text_in_the_place_of_resources_is_refused() -> None:
    with pytest.raises(gridengine.ConfigurationError, match="resources='lots' are none"):
        gridengine.map(abs, [1], resources="lots")  # type: ignore[arg-type]
