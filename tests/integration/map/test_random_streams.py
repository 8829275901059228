"""Random numbers of calls in several processes: by chance, and from a seed."""

from __future__ import annotations

import os
import random
from pathlib import Path
from random import gauss
from random import random as draw_random
from typing import Any

import pytest

import gridengine
from tests.support.waiting import wait_until

numpy = pytest.importorskip("numpy")
numpy_random = pytest.importorskip("numpy.random")
normal = numpy_random.normal
XS = range(12)


def meet(folder: str, number: int) -> None:
    """Wait until two calls are here, so that they run in two processes."""
    Path(folder, str(number)).touch()
    wait_until(lambda: len(list(Path(folder).iterdir())) == 2)


def draw_hidden(number: int, folder: str) -> Any:
    meet(folder, number)
    return os.getpid(), draw_random(), gauss(0, 1), float(normal()), float(numpy_random.rand())


def draws(x: int) -> tuple[float, ...]:
    import numpy as lazily

    numbers = random.random(), lazily.random.normal(), lazily.random.rand()
    return (*map(float, numbers), float(gridengine.rng().random()))


def draws_after_failures(x: int, folder: str) -> tuple[float, ...]:
    found = draws(x)
    try:
        Path(folder, str(x)).touch(exist_ok=False)
    except FileExistsError:
        return found
    raise OSError


def dies_first(x: int, folder: str) -> tuple[float, ...]:
    if x == 5 and not Path(folder, "dead").exists():
        Path(folder, "dead").touch()
        draws(x)
        os._exit(1)
    return draws(x)


@pytest.mark.promise
def test_processes_draw_different_numbers_from_generators_that_modules_hide(
    scheduler: gridengine.ProcessScheduler, tmp_path: Path
) -> None:
    found = gridengine.map(draw_hidden, [1, 2], [str(tmp_path)] * 2, scheduler=scheduler)
    for first, second in zip(*found, strict=True):
        assert first != second


def test_calls_with_a_seed_draw_the_same_whatever_the_workers_chunks_retries_and_order(
    tmp_path: Path,
) -> None:
    wanted = gridengine.map(draws, XS, seed=1, scheduler="inline")
    children = numpy_random.SeedSequence(1).spawn(len(XS))
    generated = [numpy_random.default_rng(child).random() for child in children]
    assert [one[-1] for one in wanted] == generated
    for workers in (1, 2, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        again: Any = [str(folder)] * len(XS)
        with gridengine.ProcessScheduler(workers) as scheduler:
            how: Any = {"seed": 1, "scheduler": scheduler}
            found = [
                gridengine.map(draws, XS, chunksize=1, **how),
                gridengine.map(draws, XS, chunksize=7, **how),
                list(gridengine.imap(draws, XS, **how)),
                gridengine.map(draws_after_failures, XS, again, retry_on=OSError, **how),
                gridengine.map(dies_first, XS, again, **how),
                gridengine.map(draws, XS, name="draws", journal=folder / "draws.run", **how),
                gridengine.map(draws, XS, name="draws", journal=folder / "draws.run", **how),
            ]
            unseeded = gridengine.map(random.gauss, [0] * 4, [1] * 4, scheduler=scheduler)
        assert found == [wanted] * 7
        assert len({*unseeded}) == 4
