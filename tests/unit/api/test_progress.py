"""Progress: its text, its displays, and who looks at it."""

from __future__ import annotations

import errno
import io
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import gridengine
from gridengine import Executor, InlineScheduler, Pool
from gridengine.api import progress
from gridengine.api.map import imap
from gridengine.api.progress import (
    FIRST_SECONDS,
    LINE_SECONDS,
    REFRESH_SECONDS,
    BarText,
    Estimate,
    FootBar,
    LogLines,
    ProgressBar,
    UsersBar,
    check_progress,
    display_here,
)
from gridengine.status.snapshot import Snapshot
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def snapshot(running: int = 3, slots: int = 4) -> Snapshot:
    return Snapshot(running=running, slots=slots)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def environment(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("GRIDENGINE_PROGRESS", raising=False)
    configure()
    return monkeypatch


@pytest.fixture
def draw(environment: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Return what stands on a terminal after an update so many seconds after the start, and all
    that was ever written.
    """

    def draw(
        seconds: float,
        *,
        shown: bool | None = None,
        stderr: io.StringIO | None = None,
        total: int = 10,
        now: Snapshot | None = None,
    ) -> tuple[str, str]:
        terminal, clock = stderr or Terminal(), Clock()
        with environment.context() as here:
            # Not earlier: the test runner puts its own standard error in place when the test
            # begins.
            here.setattr(sys, "stderr", terminal)
            seen = now or snapshot()
            with closing(ProgressBar(lambda: seen, shown=shown, clock=clock)) as bar:
                clock.now += seconds
                bar.update(total // 2, 1, total)
                stands = terminal.getvalue()
            assert "write" not in vars(terminal), "standard error was not given back"
            return stands, terminal.getvalue()

    return draw


Draw = Callable[..., tuple[str, str]]


def test_the_bar_says_done_failed_running_and_slots(draw: Draw) -> None:
    text, _ = draw(2.1)
    assert text == f"[{'#' * 13}{'.' * 13}] 5 of 10 calls done, 1 failed, 3 running on 4 slots"


def test_at_its_end_the_bar_says_where_the_output_of_calls_is_if_it_is_elsewhere(
    draw: Draw,
) -> None:
    output = "what calls printed is below /runs/x"
    stands, written = draw(2.1, now=replace(snapshot(), output=output))
    end = f"gridengine: 5 of 10 calls done, 1 failed; {output}\n"
    assert written.removeprefix(stands).endswith(end)
    assert "gridengine:" not in draw(2.1)[1]
    assert draw(1.0, now=replace(snapshot(), output=output))[1] == ""
    assert BarText(["end"], output=output).last(", in 00:01:12") == f"end, in 00:01:12; {output}"


def test_a_list_that_grows_while_it_is_mapped_has_no_time_below_zero_left(
    environment: pytest.MonkeyPatch,
) -> None:
    terminal, clock = Terminal(), Clock()
    environment.setattr(sys, "stderr", terminal)
    with closing(ProgressBar(snapshot, clock=clock)) as bar:
        for done, seconds in ((1, 1.0), (15, 2.0)):
            clock.now += seconds
            bar.update(done, 0, 10)
        shown = terminal.getvalue()
    assert "15 of 15 calls done" in shown
    assert "about 00:00:00 left" in shown


def test_one_call_on_one_slot_is_told_in_the_singular(draw: Draw) -> None:
    text, _ = draw(2.1, total=1, now=snapshot(1, 1))
    assert "of 1 call done" in text
    assert "1 running on 1 slot" in text
    assert "slots" not in text


def test_no_more_calls_run_than_there_are_slots(draw: Draw) -> None:
    assert "4 running on 4 slots" in draw(2.1, now=snapshot(running=8))[0]


def test_without_a_worker_the_bar_says_that_it_waits_for_one(draw: Draw) -> None:
    assert "waiting for a worker" in draw(2.1, now=Snapshot())[0]


def test_running_calls_at_a_dispatcher_elsewhere_are_not_guessed(draw: Draw) -> None:
    assert draw(2.1, now=Snapshot(workers=1))[0].endswith("5 of 10 calls done, 1 failed")


def test_the_bar_does_not_show_before_two_seconds(draw: Draw) -> None:
    assert draw(1.9) == ("", "")


def test_progress_false_turns_it_off(draw: Draw) -> None:
    assert draw(10, shown=False) == ("", "")


def test_the_setting_turns_it_off(draw: Draw, configure: Callable[..., None]) -> None:
    configure(progress="no")
    assert draw(10) == ("", "")


@pytest.mark.parametrize("terminal", [False, True])
def test_there_is_no_bar_where_it_cannot_be_taken_away(
    draw: Draw, environment: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    environment.setenv("TERM", "dumb")
    assert draw(9, shown=True, stderr=Terminal() if terminal else io.StringIO()) == ("", "")


def test_the_bar_is_taken_away_at_the_end(draw: Draw) -> None:
    stands, everything = draw(3)
    assert everything[len(stands) :] == "\r\x1b[2K"


def test_the_cursor_is_never_hidden(draw: Draw) -> None:
    assert "\x1b[?25l" not in draw(3)[1]


def test_the_bar_asks_for_calls_only_while_it_may_show(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(sys, "stderr", Terminal())
    assert ProgressBar(snapshot, shown=False, clock=Clock()).wait_seconds() is None
    assert ProgressBar(snapshot, shown=True, clock=Clock()).wait_seconds() == REFRESH_SECONDS


def lines_in_a_log(environment: pytest.MonkeyPatch, total: int | None) -> list[str]:
    """Return what is written where there is no terminal of 1,000 calls, one ending after the
    other.
    """
    log, clock = io.StringIO(), Clock()
    environment.setattr(sys, "stderr", log)
    with closing(ProgressBar(snapshot, shown=True, clock=clock)) as bar:
        for done in range(1, 1001):
            clock.now += 1.0
            bar.update(done, 0, total)
    return log.getvalue().splitlines()


def test_a_log_has_a_first_line_one_for_each_tenth_and_a_last(
    environment: pytest.MonkeyPatch,
) -> None:
    lines = lines_in_a_log(environment, 1000)
    assert len(lines) == 11
    assert lines[0] == (
        "gridengine: 10 of 1,000 calls done, 0 failed, 3 running on 4 slots, 1.0/s, "
        "about 00:16:30 left"
    )
    assert lines[1].startswith("gridengine: 100 of 1,000 calls done, ")
    assert lines[-1] == "gridengine: 1,000 of 1,000 calls done, 0 failed, in 00:16:40"


def test_a_log_has_a_line_a_minute_where_nobody_knows_the_end(
    environment: pytest.MonkeyPatch,
) -> None:
    lines = lines_in_a_log(environment, None)
    assert len(lines) == 18
    assert lines[0] == "gridengine: 10 calls done, 0 failed, 3 running on 4 slots, 1.0/s"
    assert lines[-1] == "gridengine: 1,000 calls done, 0 failed, in 00:16:40"


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_no_call(draw: Draw) -> None:
    assert draw(100, shown=True, stderr=Full()) == ("", "")


def test_the_rate_leaves_the_start_up_out() -> None:
    estimate = Estimate()
    assert estimate.rate(0, Snapshot(), 0.0) is None
    assert estimate.rate(0, snapshot(), 60.0) is None  # the first worker has come
    assert estimate.rate(4, snapshot(), 64.0) == 1
    assert estimate.rate(8, snapshot(), 64.5) == 8  # the first had much to import


def test_the_rate_is_measured_anew_with_many_more_workers() -> None:
    estimate = Estimate()
    for done in range(21):
        estimate.rate(done, snapshot(slots=1), float(done))
    estimate.rate(20, snapshot(slots=10), 20.0)
    assert estimate.rate(40, snapshot(slots=10), 22.0) == 10


@pytest.mark.parametrize(
    ("workers", "words"),
    [(0, "on 4 slots"), (1, "on 4 slots"), (2, "on 4 slots of 2 workers"), (4, "on 4 workers")],
)
def test_the_bar_says_on_how_many_workers_calls_run(draw: Draw, workers: int, words: str) -> None:
    now = msgspec.structs.replace(snapshot(), workers=workers)
    assert draw(2.1, now=now)[0].endswith(f", 3 running {words}")


@pytest.mark.parametrize(
    ("rate", "words"),
    [(1234.4, "1,234/s"), (12.34, "12.3/s"), (0.5, "30.0/min"), (0.01, "36.0/h")],
)
def test_a_rate_is_told_in_the_unit_that_fits(rate: float, words: str) -> None:
    assert progress._rate_words(rate) == words


def test_at_a_terminal_of_80_a_bar_ends_with_the_time_left() -> None:
    clock = Clock()
    with closing(ProgressBar(snapshot, shown=False, label="train", clock=clock)) as bar:
        bar._counts = 600, 2, 1200
        said = bar._said(snapshot(running=20, slots=20), 0.5)
    assert "20 running on 20 slots" in said.within(200)
    assert said.within(67) == "train: 600 of 1,200 calls done, 2 failed, about 00:20:00 left"


class Cell:
    """A notebook's output."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.pages: list[str] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool = False) -> Cell:
        self.shown.append(content["text/plain"])
        self.pages.append(content["text/html"])
        return self

    update = display


@pytest.mark.parametrize("shown", [None, True])
def test_a_notebook_has_a_bar_that_stays_as_words(
    environment: pytest.MonkeyPatch, shown: bool | None
) -> None:
    cell, clock = Cell(), Clock()
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    environment.setitem(sys.modules, "IPython", kernel)
    environment.setitem(sys.modules, "IPython.display", SimpleNamespace(display=cell.display))
    with closing(ProgressBar(snapshot, shown=shown, label="<f>", clock=clock)) as bar:
        for done in (5, 10):
            clock.now += 3
            bar.update(done, 0, 10)
    words = "5 of 10 calls done, 0 failed, 3 running on 4 slots"
    assert cell.shown == [
        f"[{'#' * 19}{'.' * 19}] <f>: {words}",
        f"[{'#' * 38}] <f>: {words.replace('5', '10', 1)}, 1.7/s, about 00:00:00 left",
        "<f>: 10 of 10 calls done, 0 failed",
    ]
    assert f'<progress max="1" value="0.5000"></progress> &lt;f&gt;: {words}</div>' in cell.pages[0]
    assert "<progress" not in cell.pages[-1]
    assert "color" not in "".join(cell.pages), "it is to be read on dark and light pages"


def test_ipython_at_a_terminal_is_a_terminal(draw: Draw, environment: pytest.MonkeyPatch) -> None:
    environment.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=SimpleNamespace))
    assert "5 of 10" in draw(3)[0]


def test_calls_that_are_made_here_have_no_bar(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(sys, "stderr", Terminal())
    environment.setattr(progress, "APPEARS_SECONDS", 0.0)
    environment.setattr(progress, "REFRESH_SECONDS", 0.0)
    results = imap(abs, range(3), scheduler=InlineScheduler(), progress=True)
    assert list(results) == [0, 1, 2]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


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
def test_the_least_important_words_are_left_out_first(width: int, words: str) -> None:
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


def test_a_bar_of_the_users_is_updated_by_the_difference() -> None:
    bar = Counter()
    display = UsersBar(bar)
    for done in (0, 2, 2, 5):
        display.count(done, 1, 10)
    display.close(SAID)
    assert (bar.updates, bar.total, bar.closed) == ([2, 3], None, 0)


def test_a_bar_of_the_users_has_the_growing_total_and_is_closed() -> None:
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


def test_a_quick_map_has_no_line_in_the_log() -> None:
    assert lines([(FIRST_SECONDS - 1, 0.5)]) == []


def test_a_log_has_a_line_a_tenth_and_one_at_its_end() -> None:
    parts = [(FIRST_SECONDS, 0.11), (LINE_SECONDS, 0.19), (1, 0.2), (1, 0.3)]
    assert lines(parts) == ["0.11", "0.2", "end, in 00:01:12"]  # type: ignore[arg-type]


def test_the_end_is_left_to_the_log_of_the_run_if_that_tells_it() -> None:
    assert lines([(FIRST_SECONDS, 0.5)], logging.INFO) == ["0.5"]


@pytest.mark.parametrize(
    ("stream", "term", "kind"),
    [
        (Terminal(), "xterm", FootBar),
        (Terminal(), "dumb", LogLines),
        (io.StringIO(), "xterm", LogLines),
        (None, "xterm", type(None)),
        (SimpleNamespace(write=len), "xterm", LogLines),  # what a program has put in its place
    ],
)
def test_the_bar_is_shown_as_standard_error_allows(
    stream: Any, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(display_here(Clock())) is kind


class FootBar:
    """A bar as `tqdm` has it."""

    made: list[FootBar]

    def __init__(self, total: int | None = None) -> None:
        self.total, self.n, self.closed, self.told = total, 0, 0, {}
        FootBar.made.append(self)

    def update(self, n: int) -> None:
        self.n += n

    def set_postfix(self, refresh: bool, **told: int) -> None:
        self.told = told

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def bars() -> Iterator[list[FootBar]]:
    FootBar.made = []
    yield FootBar.made
    FootBar.made = []


def odd(number: int) -> int:
    if number % 2:
        raise ValueError
    return number


def test_all_calls_of_an_executor_are_counted(bars: list[FootBar]) -> None:
    with InlineScheduler() as scheduler:
        with Executor(scheduler=scheduler, progress=FootBar) as executor:
            for number in range(5):
                executor.submit(odd, number)
            list(executor.map(abs, range(7)))
            graph = {"a": (abs, -1), "b": (abs, "a"), "c": (max, "a", "b")}
            [future] = executor.submit_graph(graph, ["c"], fuse=False)
            assert future.result() == 1
        [bar] = bars
        assert (bar.total, bar.n, bar.told, bar.closed) == (15, 15, {"failed": 2}, 1)


def test_no_second_bar_is_made_after_the_executor_has_closed_its_own(bars: list[FootBar]) -> None:
    with InlineScheduler() as scheduler:
        with Executor(scheduler=scheduler, progress=FootBar) as executor:
            executor.submit(abs, -1)
            shown: Any = executor._submitter.batcher.tally
        late = shown.finish.__self__
        assert not late.look()
        late.close()  # draws what is due
    [bar] = bars
    assert bar.closed == 1


def test_a_call_that_is_cancelled_before_it_began_is_none(bars: list[FootBar]) -> None:
    dispatcher = HeldDispatcher()
    executor = Executor(scheduler=FakeScheduler(dispatcher), progress=FootBar)
    tally: Any = executor._submitter.batcher.tally
    futures = [executor.submit(abs, number) for number in range(100)]
    assert futures[-1].cancel()
    assert (tally.total, tally.is_open) == (99, True)
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    assert not tally.is_open
    executor.shutdown()


def test_bars_of_a_pool_are_shown(bars: list[FootBar]) -> None:
    with InlineScheduler() as scheduler, Pool(scheduler=scheduler, progress=FootBar) as pool:
        pool.map(abs, range(4))
        assert list(pool.imap(abs, range(3))) == [0, 1, 2]
        pool.close()
        pool.join()
    assert sorted((bar.total, bar.n, bar.closed) for bar in bars) == [(3, 3, 1), (4, 4, 1)]


@pytest.mark.parametrize("shown", [False, None, True])
def test_a_hidden_bar_counts_nothing(shown: bool | None) -> None:
    with InlineScheduler() as scheduler, Executor(scheduler=scheduler, progress=shown) as executor:
        assert executor._submitter.batcher.tally is None


def test_at_a_prompt_there_is_a_bar_only_if_somebody_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    scheduler = FakeScheduler()
    scheduler.dispatcher.at_once = False
    for shown, expected in ((None, False), (True, True)):
        with Executor(scheduler=scheduler, progress=shown) as executor:
            assert (executor._submitter.batcher.tally is not None) == expected
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    with Executor(scheduler=scheduler) as executor:
        assert executor._submitter.batcher.tally is not None


def test_a_wrong_progress_is_refused_before_anything_is_made() -> None:
    scheduler = FakeScheduler()
    for kind in (Executor, Pool):
        with pytest.raises(TypeError, match="progress must be True, False, None, or a bar"):
            kind(scheduler=scheduler, progress="no")


def test_the_bars_thread_ends_when_there_is_nothing_to_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.001)
    dispatcher = HeldDispatcher()
    executor = Executor(scheduler=FakeScheduler(dispatcher), progress=FootBar)
    tally: Any = executor._submitter.batcher.tally
    for number in range(2):
        future = executor.submit(abs, number)
        thread = bar_thread(tally)
        dispatcher.run_all(until=future.done)
        thread.join(60)
        assert (thread.is_alive(), tally.watched) == (False, False)
    executor.shutdown()


def test_the_bars_thread_ends_with_its_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = HeldDispatcher()
    executor = Executor(scheduler=FakeScheduler(dispatcher), progress=FootBar)
    future = executor.submit(abs, -1)
    thread = bar_thread(executor._submitter.batcher.tally)
    dispatcher.run_all(until=future.done)
    monkeypatch.setattr(progress, "IDLE_LOOKS", math.inf)
    executor.shutdown()
    thread.join(60)
    assert not thread.is_alive()


def bar_thread(tally: Any) -> threading.Thread:
    """Return the thread that updates the bars of these calls."""
    run = tally.finish.__self__._run
    threads: list[Any] = list(threading.enumerate())
    [found] = [one for one in threads if getattr(one, "_target", None) == run]
    return found


def test_a_map_keeps_a_bar_that_it_has_made_up_to_date_and_closes_it(bars: list[FootBar]) -> None:
    with InlineScheduler() as scheduler:
        gridengine.map(odd, range(5), scheduler=scheduler, reraise=False, progress=FootBar)
        list(gridengine.imap(abs, iter(range(4)), scheduler=scheduler, progress=FootBar))
    told = [(one.total, one.n, one.closed, one.told) for one in bars]
    assert told == [(5, 5, 1, {"failed": 2}), (None, 4, 1, {})]
