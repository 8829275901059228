"""What calls inside calls are given: a call that waits has nothing, and has it again when it goes
on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import GVAR, Cores, GPUs
from gridengine.errors import ConfigurationError
from gridengine.system import processors

CPUS = processors()


@pytest.fixture(scope="module")
def scheduler() -> Iterator[gridengine.ProcessScheduler]:
    with gridengine.ProcessScheduler(2, worker_resources=GPUs(2)) as scheduler:
        yield scheduler


def takes_turns(depth: int, folder: Path) -> int:
    """Hold a GPU, and note who does; never two at a time."""
    [gpu] = GVAR.res.get(GPUs).g
    note = folder / f"gpu-{gpu}"
    taken = os.open(note, os.O_CREAT | os.O_EXCL)
    time.sleep(0.01)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == str(gpu)
    os.close(taken)
    note.unlink()
    if not depth:
        return 1
    below = gridengine.starmap(takes_turns, [(depth - 1, folder)] * 2, resources=GPUs(1))
    [gpu] = GVAR.res.get(GPUs).g
    note = folder / f"gpu-{gpu}"
    os.close(os.open(note, os.O_CREAT | os.O_EXCL))
    time.sleep(0.01)
    note.unlink()
    return 1 + sum(below)


@pytest.mark.timeout(200)
def test_no_two_calls_have_a_gpu_at_a_time_however_deep_they_are(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    calls = [(3, tmp_path)] * 3
    found = gridengine.starmap(takes_turns, calls, scheduler=scheduler, resources=GPUs(1))
    assert found == [15, 15, 15]


def all_cores(depth: int) -> list[tuple[int, list[int]]]:
    mine = [(GVAR.res.get(Cores).N, sorted(os.sched_getaffinity(0)))]
    below: list[Any] = []
    if depth:
        [below] = gridengine.map(all_cores, [depth - 1], resources=Cores(2))
    return [*mine, *below, (GVAR.res.get(Cores).N, sorted(os.sched_getaffinity(0)))]


def test_each_of_several_calls_inside_each_other_has_all_cores(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    [found] = gridengine.map(all_cores, [3], scheduler=scheduler, resources=Cores(2))
    assert found == [(2, found[0][1])] * 8
    assert set(found[0][1]) <= set(CPUS)


def asks_for_less(_: object) -> tuple[Any, list[Any]]:
    inner = gridengine.map(
        lambda _: (os.environ.get("CUDA_VISIBLE_DEVICES"), GVAR.res.get(GPUs)), range(2)
    )
    return os.environ.get("CUDA_VISIBLE_DEVICES"), inner


def test_resources_of_a_call_do_not_go_on_to_its_nested_calls(
    scheduler: gridengine.ProcessScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    [(mine, inner)] = gridengine.map(asks_for_less, [0], scheduler=scheduler, resources=GPUs(1))
    assert mine in ("0", "1")
    assert inner == [(None, None)] * 2


def asks(resources: Any) -> Any:
    return gridengine.map(abs, [-1], resources=resources)


def test_a_nested_request_that_no_worker_holds_is_refused(
    scheduler: gridengine.ProcessScheduler,
) -> None:
    with pytest.raises(ConfigurationError, match="3"):
        gridengine.map(asks, [Cores(3)], scheduler=scheduler)
    assert gridengine.map(asks, [Cores(2)], scheduler=scheduler) == [[1]]
