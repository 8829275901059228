"""The messages of a map."""

from __future__ import annotations

from typing import Any

import pytest

import gridengine
from gridengine.settings.values import settings
from gridengine.watching.notices import ENDED, FAILED, Notice
from tests.support.fake_dispatcher import FakeScheduler


def invert(number: int) -> float:
    return 1 / number


def test_a_map_tells_its_first_failure_and_its_end() -> None:
    told: list[Notice] = []
    how: Any = {"scheduler": FakeScheduler(), "reraise": False, "notify": told.append}
    gridengine.map(invert, [1, 0, 2], **how)
    assert [one.event for one in told][-1] == ENDED
    assert {one.event for one in told} <= {FAILED, ENDED}
    end = told[-1]
    assert (end.name, end.done, end.failed, end.left) == ("invert", 2, 1, 0)
    assert end.error == "ZeroDivisionError('division by zero')"


def test_a_map_that_raises_tells_its_end_before() -> None:
    told: list[Notice] = []
    with pytest.raises(ZeroDivisionError):
        gridengine.map(invert, [0], scheduler=FakeScheduler(), notify=told.append)
    assert (told[-1].event, told[-1].failed) == (ENDED, 1)


def test_the_setting_tells_no_quick_map_that_went_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "told"
    monkeypatch.setenv("GRIDENGINE_NOTIFY", f"echo >> {file}")
    settings.cache_clear()
    gridengine.map(invert, [1], scheduler=FakeScheduler())
    assert not file.exists()
    gridengine.map(invert, [0], scheduler=FakeScheduler(), reraise=False)
    assert file.exists()


def test_a_notify_that_can_send_no_message_is_refused_before_any_call() -> None:
    scheduler = FakeScheduler()
    with pytest.raises(TypeError, match="notify must be a command line or a callable, not 3"):
        gridengine.map(invert, [1], scheduler=scheduler, notify=3)  # type: ignore[arg-type]
    assert scheduler.dispatcher.entries == []
