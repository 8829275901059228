"""Which processors and GPUs of a machine a worker's numbers stand for."""

from __future__ import annotations

import contextlib
import itertools
import os

import pytest

from gridengine.wire.messages import Allocate
from gridengine.worker import affinity
from gridengine.worker.affinity import Processors, processors_for


@pytest.fixture(autouse=True)
def claims_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process on this machine claims processors by these names."""
    monkeypatch.setattr(affinity, "CLAIM", f"gridengine-test-{os.getpid()}")


@pytest.mark.parametrize(
    ("cores", "exact", "meant"), [([1, 3], False, [5, 7]), ([1, 3], True, [1, 3])]
)
def test_cores_are_the_processors_that_the_worker_is_bound_to_or_those_that_the_user_named(
    monkeypatch: pytest.MonkeyPatch, cores: list[int], exact: bool, meant: list[int]
) -> None:
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda pid: {4, 5, 6, 7})
    assert Processors(4).resolve(Allocate(1, 2, cores=cores, exact=exact)).cores == meant


def test_a_call_has_as_many_cores_as_it_asked_for_where_there_are_fewer_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda pid: {4, 5})
    worker = Processors(1)
    assert worker.resolve(Allocate(1, 2, cores=[0, 1])).cores == [4, 5]
    assert worker.resolve(Allocate(1, 4, cores=[0, 1, 2, 3])).cores == [4, 5, 0, 1]


@pytest.mark.parametrize(
    ("workers", "cores", "meant"),
    [
        (6, 1, [4, 5, 5, 4, 4, 5]),  # more workers than processors
        (3, 2, [4, 5, 4]),  # each has all of them, and begins with another
    ],
)
def test_workers_that_nobody_bound_share_the_processors_evenly(
    monkeypatch: pytest.MonkeyPatch, workers: int, cores: int, meant: list[int]
) -> None:
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda pid: {4, 5})
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(contextlib.closing(Processors(cores))) for _ in range(workers)]
        first = [one.resolve(Allocate(1, 1, cores=[0])).cores for one in made]
    assert list(itertools.chain(*first)) == meant


def test_where_others_claim_without_end_processors_are_taken_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda pid: {4, 5})
    monkeypatch.setattr(affinity, "MOST_CLAIMS", 0)
    assert Processors(1).resolve(Allocate(1, 1, cores=[0])).cores == [4]


@pytest.mark.parametrize(
    ("cores", "meant"),
    [([4, 5], {4, 5}), ([4, 5, 0, 1], {4, 5}), ([0, 1], {4, 5}), ([1], {5}), ([4, 0], {4, 5})],
)
def test_cores_that_are_no_processors_share_those_of_others(
    cores: list[int], meant: set[int]
) -> None:
    assert processors_for(cores, [4, 5]) == meant


def test_what_was_not_asked_for_is_left_alone() -> None:
    assert Processors(1).resolve(Allocate(1, 1)) == Allocate(1, 1)


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("", [0, 1]), ("3,5", [3, 5]), ("GPU-a, GPU-b", ["GPU-a", "GPU-b"]), ("7", [7, 1])],
)
def test_gpus_are_those_that_the_worker_may_see(
    monkeypatch: pytest.MonkeyPatch, visible: str, gpus: list[int | str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert Processors(1).resolve(Allocate(1, 1, gpus=[0, 1])).gpus == gpus
