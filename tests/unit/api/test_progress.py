"""The progress bar: when it shows, what it says, and that it leaves the terminal alone."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from gridengine.api.progress import ProgressBar
from gridengine.dispatcher.core.snapshot import Snapshot
from gridengine.settings.values import settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def snapshot() -> Snapshot:
    return Snapshot(running=3, workers=2)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GRIDENGINE_PROGRESS", raising=False)
    settings.cache_clear()
    yield monkeypatch
    settings.cache_clear()


@pytest.fixture
def draw(environment: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Return what stands on a terminal after an update so many seconds after the start, and all
    that was ever written.
    """

    def draw(
        seconds: float, *, shown: bool | None = None, stderr: io.StringIO | None = None
    ) -> tuple[str, str]:
        terminal, clock = stderr or Terminal(), Clock()
        with environment.context() as here:
            # Not earlier: the test runner puts its own standard error in place when the test
            # begins.
            here.setattr(sys, "stderr", terminal)
            with closing(ProgressBar(snapshot, shown=shown, clock=clock)) as bar:
                clock.now += seconds
                bar.update(5, 1, 10)
                stands = terminal.getvalue()
            assert sys.stderr is terminal, "standard error was not given back"
            return stands, terminal.getvalue()

    return draw


Draw = Callable[..., tuple[str, str]]


def test_it_says_done_failed_running_workers_and_time_left(draw: Draw) -> None:
    text, _ = draw(2.1)
    assert "5/10" in text
    assert "1 failed, 3 running on 2 workers" in text
    assert "left" in text


def test_it_does_not_show_before_two_seconds(draw: Draw) -> None:
    assert draw(1.9) == ("", "")


def test_progress_false_turns_it_off(draw: Draw) -> None:
    assert draw(10, shown=False) == ("", "")


def test_the_setting_turns_it_off(draw: Draw, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("GRIDENGINE_PROGRESS", "no")
    settings.cache_clear()
    assert draw(10) == ("", "")


def test_it_never_shows_where_standard_error_is_no_terminal(draw: Draw) -> None:
    assert draw(10, shown=True, stderr=io.StringIO()) == ("", "")


def test_it_is_taken_away_at_the_end(draw: Draw) -> None:
    stands, everything = draw(3)
    assert "\x1b[2K" in everything[len(stands) :]


def test_the_cursor_is_never_hidden(draw: Draw) -> None:
    assert "\x1b[?25l" not in draw(3)[1]


def test_it_wants_to_be_called_in_time_only_while_it_may_show(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setattr(sys, "stderr", Terminal())
    assert ProgressBar(snapshot, shown=False, clock=Clock()).patience() is None
    assert ProgressBar(snapshot, shown=True, clock=Clock()).patience() == 2.0
