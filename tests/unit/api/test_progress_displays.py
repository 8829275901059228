"""Where progress is shown. How bars, lines and notebooks look: `test_progress.py`."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.api.progress_displays import (
    FIRST_SECONDS,
    LINE_SECONDS,
    Bar,
    BarText,
    LogLines,
    UsersBar,
    check_progress,
    display_here,
)

SAID = BarText(["5 of 10 done", "0 failed", "3 running", "2/s"], [3, 1], "f")


@pytest.mark.parametrize("progress", [True, False, None, SimpleNamespace(update=len), list])
def test_progress_is_a_switch_or_a_bar(progress: Any) -> None:
    check_progress(progress)


@pytest.mark.parametrize("progress", ["no", 0, 1, [], object()])
def test_other_things_are_refused(progress: Any) -> None:
    with pytest.raises(TypeError, match="progress must be True, False, None, or a bar"):
        check_progress(progress)


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (99, "f: 5 of 10 done, 0 failed, 3 running, 2/s"),
        (41, "f: 5 of 10 done, 0 failed, 3 running, 2/s"),
        (40, "f: 5 of 10 done, 0 failed, 3 running"),
        (36, "f: 5 of 10 done, 0 failed, 3 running"),
        (35, "f: 5 of 10 done, 3 running"),
        (0, "f: 5 of 10 done, 3 running"),
    ],
)
def test_what_matters_least_is_left_out_first(width: int, words: str) -> None:
    assert SAID.within(width) == words


class Counter:
    """A bar as `tqdm` has it, or as one that has `update` alone."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        self.updates: list[int] = []
        self.closed = 0

    def update(self, n: int) -> None:
        self.updates.append(n)

    def close(self) -> None:
        self.closed += 1


def test_a_bar_of_the_users_is_told_of_what_is_new_alone() -> None:
    bar = Counter()
    display = UsersBar(bar)
    for done in (0, 2, 2, 5):
        display.count(done, 1, 10)
    display.close(SAID)
    assert (bar.updates, bar.total, bar.closed) == ([2, 3], None, 0)


def test_one_that_was_made_has_the_total_as_it_grows_and_is_closed() -> None:
    made: list[Counter] = []

    def make(total: int | None) -> Counter:
        made.append(Counter(total))
        return made[-1]

    display = UsersBar(make)
    display.close(SAID)
    assert made == []  # nothing was counted
    display.count(1, 0, 10)
    display.count(2, 0, 12)
    display.close(SAID)
    [bar] = made
    assert (bar.total, bar.updates, bar.closed) == (12, [1, 1], 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(parts: list[tuple[float, float | None]], level: int = logging.WARNING) -> list[str]:
    """Return what a log has after these parts, each so many seconds after the one before."""
    stream, clock = io.StringIO(), Clock()
    log = LogLines(stream, clock)
    logger = logging.getLogger("gridengine")
    before = logger.level
    logger.setLevel(level)
    try:
        for seconds, part in parts:
            clock.now += seconds
            log.show(BarText([f"{part}"]), part)
        log.close(BarText(["end"]))
        log.close(BarText(["end"]))
    finally:
        logger.setLevel(before)
    return [line.removeprefix("gridengine: ") for line in stream.getvalue().splitlines()]


def test_a_log_of_what_is_quick_has_no_line() -> None:
    assert lines([(FIRST_SECONDS - 1, 0.5)]) == []


def test_a_log_has_a_line_a_tenth_and_one_at_its_end() -> None:
    parts = [(FIRST_SECONDS, 0.11), (LINE_SECONDS, 0.19), (1, 0.2), (1, 0.3)]
    assert lines(parts) == ["0.11", "0.2", "end, in 00:01:12"]  # type: ignore[arg-type]


def test_the_end_is_left_to_the_log_of_the_run_if_that_tells_it() -> None:
    assert lines([(FIRST_SECONDS, 0.5)], logging.INFO) == ["0.5"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term", "kind"),
    [
        (Terminal(), "xterm", Bar),
        (Terminal(), "dumb", LogLines),
        (io.StringIO(), "xterm", LogLines),
        (None, "xterm", type(None)),
        (SimpleNamespace(write=len), "xterm", LogLines),  # what a program has put in its place
    ],
)
def test_it_is_shown_as_standard_error_allows(
    stream: Any, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(display_here(Clock())) is kind
