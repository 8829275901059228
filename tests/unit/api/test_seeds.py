"""`seed=` of maps, executors and pools: one stream for each call, whatever else is said."""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import ConfigurationError, PicklingError
from tests.support.fake_dispatcher import FakeScheduler

XS = range(20)


def draw(x: int, y: int = 0) -> tuple[int, float]:
    return x, random.random()


def drawn(seed: Any = 1, **how: Any) -> list[Any]:
    return gridengine.map(draw, XS, seed=seed, scheduler="inline", **how)


WANTED = drawn()


def test_each_call_has_another_stream_and_each_seed_others() -> None:
    assert len({number for _, number in [*WANTED, *drawn(2)]}) == 40


@pytest.mark.parametrize("chunksize", [None, 1, 7])
def test_all_kin_of_map_draw_the_same(chunksize: int | None, scheduler: FakeScheduler) -> None:
    how: Any = {"seed": 1, "scheduler": scheduler, "chunksize": chunksize or 1}
    assert gridengine.map(draw, XS, **{**how, "chunksize": chunksize}) == WANTED
    assert gridengine.starmap(draw, [(x,) for x in XS], **how) == WANTED
    assert gridengine.starmap(draw, [(x, 1) for x in XS], **how) == WANTED
    assert gridengine.map(draw, XS, XS, **how) == WANTED
    assert list(gridengine.imap(draw, iter(XS), **how)) == WANTED
    assert sorted(gridengine.imap_unordered(draw, XS, **how)) == WANTED


def test_without_a_seed_calls_draw_by_chance(scheduler: FakeScheduler) -> None:
    assert gridengine.map(draw, XS, scheduler=scheduler) != WANTED
    assert gridengine.map(draw, XS, scheduler=scheduler, seed=None) != WANTED


Submit = Callable[[gridengine.Executor], Any]


def of_submissions(submit: Submit, seed: Any = 1) -> Any:
    with gridengine.Executor(scheduler="inline", seed=seed) as executor:
        return submit(executor)


def everything(executor: gridengine.Executor) -> list[Any]:
    return [
        executor.submit(draw, 1).result(),
        *executor.map(draw, XS),
        executor.submit(draw, x=1).result(),
        *executor.map(draw, XS, buffersize=2),
        *executor.with_options(retries=1).map(draw, XS),
        executor.submit(draw, 1, 2).result(),
    ]


def test_no_two_calls_of_an_executor_have_the_same_stream_and_all_draw_the_same_again() -> None:
    found = of_submissions(everything)
    assert len({number for _, number in found}) == 63
    assert of_submissions(everything) == found


def test_a_map_of_an_executor_draws_the_same_in_each_way() -> None:
    ways: list[Submit] = [
        lambda executor: list(executor.map(draw, XS)),
        lambda executor: list(executor.map(draw, XS, chunksize=7)),
        lambda executor: list(executor.map(draw, XS, buffersize=3)),
        lambda executor: list(executor.with_options(seed=1).map(draw, XS)),
    ]
    first, *others = map(of_submissions, ways)
    assert [first] * 3 == others
    with gridengine.Pool(scheduler="inline", seed=1) as pool:
        assert pool.map(draw, XS) == first
    with gridengine.Pool(scheduler="inline", seed=1) as pool:
        assert list(pool.imap(draw, XS)) == first


def test_another_seed_begins_to_count_anew() -> None:
    first = of_submissions(lambda executor: executor.submit(draw, 1).result(), seed=2)

    def later(executor: gridengine.Executor) -> Any:
        executor.submit(draw, 1).result()
        return executor.with_options(seed=2).submit(draw, 1).result()

    assert of_submissions(later) == first


def test_an_initializer_draws_nothing_from_the_stream_of_a_call() -> None:
    with gridengine.Pool(scheduler="inline", seed=1, initializer=random.random) as pool:
        found = [pool.map(draw, XS), list(pool.imap(draw, XS))]
    with gridengine.Pool(scheduler="inline", seed=1) as pool:
        assert found == [pool.map(draw, XS), list(pool.imap(draw, XS))]


def test_calls_that_a_call_makes_have_streams_of_their_own() -> None:
    def outer(x: int) -> list[Any]:
        before = random.random()
        first, second = (gridengine.map(draw, XS, scheduler="inline") for _ in range(2))
        with gridengine.Executor(scheduler="inline") as executor:
            third = executor.submit(draw, x).result()
        return [(x, before), *first, *second, third, (x, random.random())]

    found = [gridengine.map(outer, [1, 2], seed=1, scheduler="inline") for _ in range(2)]
    assert found[0] == found[1]
    assert len({number for one in found[0] for _, number in one}) == 2 * 43
    alone = gridengine.map(lambda x: [draw(x), draw(x)], [1], seed=1, scheduler="inline")
    assert [found[0][0][0], found[0][0][-1]] == alone[0]


def test_an_error_of_pickling_names_the_variable_as_without_a_seed() -> None:
    lock = threading.Lock()
    with pytest.raises(PicklingError, match=r"<lambda>, its captured variable 'lock' \(a"):
        gridengine.map(lambda x: lock, XS, seed=1, scheduler="inline")


def test_joblib_takes_no_seed() -> None:
    joblib = pytest.importorskip("joblib")
    importlib.import_module("gridengine.joblib_backend")
    with pytest.raises(ConfigurationError, match="joblib takes no seed="):
        joblib.parallel_config("gridengine", seed=1)


@pytest.mark.parametrize("make", [gridengine.Job, gridengine.JobDispatcher, gridengine.delayed])
def test_a_call_without_numbers_takes_no_seed(make: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'seed'"):
        make(seed=1)


def test_a_graph_takes_no_seed() -> None:
    with (
        gridengine.Executor(scheduler="inline", seed=1) as executor,
        pytest.raises(ConfigurationError, match="the calls of a graph have no numbers"),
    ):
        executor.submit_graph({"a": (draw, 1)}, ["a"])


def test_a_graph_of_a_call_with_a_seed_has_none() -> None:
    def outer(x: int) -> Any:
        with gridengine.Executor(scheduler="inline") as executor:
            [future] = executor.submit_graph({"a": (draw, x)}, ["a"])
            return future.result()

    assert gridengine.map(outer, [1], seed=1, scheduler="inline")[0][0] == 1


def test_an_error_shows_the_arguments_without_the_number() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        gridengine.map(lambda x: 1 / x, [0], seed=1, scheduler="inline")
    assert "argument 0, on" in caught.value.__notes__[0]


def test_a_named_run_knows_calls_by_their_seed_and_number(tmp_path: Path) -> None:
    made = []

    def note(x: int) -> tuple[int, float]:
        with Path(tmp_path, "made").open("a") as file:
            file.write(f"{x} ")
        return draw(x)

    def run(seed: int | None) -> Any:
        Path(tmp_path, "made").write_text("")
        how: Any = {"name": "draws", "journal": tmp_path / "draws.run", "scheduler": "inline"}
        found = gridengine.map(note, [3, 3], seed=seed, **how)
        made.append(len(Path(tmp_path, "made").read_text().split()))
        return found

    first = run(1)
    assert [number for _, number in first] == [number for _, number in WANTED[:2]]
    assert run(1) == first
    assert run(2) != first
    assert run(1) == first
    run(None)
    assert made == [2, 0, 2, 0, 2]


def test_failed_calls_of_a_named_run_are_made_again_with_their_streams(tmp_path: Path) -> None:
    mark = tmp_path / "failed"

    def fails_first(x: int) -> tuple[int, float]:
        if x == 3 and not mark.exists():
            mark.touch()
            raise OSError
        return draw(x)

    path = tmp_path / "fails.run"
    how: Any = {"name": "fails", "journal": path, "scheduler": "inline", "reraise": False}
    assert gridengine.map(fails_first, XS, seed=1, **how) != WANTED
    run = gridengine.run_named("fails", journal=path)
    assert run.resubmit(scheduler="inline") == [WANTED[3]]
