"""How far the calls of an executor are, by what is counted of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import gridengine
from gridengine import Executor, InlineScheduler, Pool
from gridengine.api import progress_watch
from gridengine.client.settlement import Tally
from tests.support.fake_dispatcher import FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher


class Bar:
    """A bar as `tqdm` has it."""

    made: list[Bar]

    def __init__(self, total: int | None = None) -> None:
        self.total, self.n, self.closed, self.told = total, 0, 0, {}
        Bar.made.append(self)

    def update(self, n: int) -> None:
        self.n += n

    def set_postfix(self, refresh: bool, **told: int) -> None:
        self.told = told

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def bars() -> Iterator[list[Bar]]:
    Bar.made = []
    yield Bar.made
    Bar.made = []


def odd(number: int) -> int:
    if number % 2:
        raise ValueError
    return number


def test_all_calls_of_an_executor_are_counted(bars: list[Bar]) -> None:
    with InlineScheduler() as scheduler:
        with Executor(scheduler=scheduler, progress=Bar) as executor:
            for number in range(5):
                executor.submit(odd, number)
            list(executor.map(abs, range(7)))
            graph = {"a": (abs, -1), "b": (abs, "a"), "c": (max, "a", "b")}
            [future] = executor.submit_graph(graph, ["c"], fuse=False)
            assert future.result() == 1
        [bar] = bars
        assert (bar.total, bar.n, bar.told, bar.closed) == (15, 15, {"failed": 2}, 1)


def test_a_call_that_is_cancelled_before_it_began_is_none(bars: list[Bar]) -> None:
    dispatcher = HeldDispatcher()
    executor = Executor(scheduler=FakeScheduler(dispatcher), progress=Bar)
    tally: Any = executor._submitter.batcher.tally
    futures = [executor.submit(abs, number) for number in range(100)]
    assert futures[-1].cancel()
    assert (tally.total, tally.is_open) == (99, True)
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    assert not tally.is_open
    executor.shutdown()


def test_so_are_those_of_a_pool(bars: list[Bar]) -> None:
    with InlineScheduler() as scheduler, Pool(scheduler=scheduler, progress=Bar) as pool:
        pool.map(abs, range(4))
        assert list(pool.imap(abs, range(3))) == [0, 1, 2]
        pool.close()
        pool.join()
    assert sorted((bar.total, bar.n, bar.closed) for bar in bars) == [(3, 3, 1), (4, 4, 1)]


@pytest.mark.parametrize("shown", [False, None, True])
def test_what_is_not_shown_is_not_counted(shown: bool | None) -> None:
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


def test_what_is_no_bar_is_refused_before_anything_is_made() -> None:
    scheduler = FakeScheduler()
    for kind in (Executor, Pool):
        with pytest.raises(TypeError, match="progress must be True, False, None, or a bar"):
            kind(scheduler=scheduler, progress="no")


def test_its_thread_ends_when_there_is_nothing_to_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress_watch, "REFRESH_SECONDS", 0.001)
    watcher = progress_watch.ProgressWatcher()

    class Ended:
        is_open = False
        tally = Tally(lambda: None, lambda: None, restarts=True)

        def look(self) -> bool:
            return False

    ended: Any = Ended()
    watcher.watch(ended)
    thread = watcher._thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    assert watcher._thread is None
    assert not ended.tally.watched


def test_a_map_keeps_a_bar_that_it_has_made_up_to_date_and_closes_it(bars: list[Bar]) -> None:
    with InlineScheduler() as scheduler:
        gridengine.map(odd, range(5), scheduler=scheduler, reraise=False, progress=Bar)
        list(gridengine.imap(abs, iter(range(4)), scheduler=scheduler, progress=Bar))
    told = [(one.total, one.n, one.closed, one.told) for one in bars]
    assert told == [(5, 5, 1, {"failed": 2}), (None, 4, 1, {})]
