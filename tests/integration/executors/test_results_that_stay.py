"""Large results that other calls need stay at the workers that made them: workers of this machine
that are treated as a cluster's are, one process each.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import gridengine
from gridengine.dispatcher.core import worker_messages
from gridengine.serialize.shared_memory import Block
from gridengine.settings.values import settings
from gridengine.wire.messages import Fetched
from tests.integration.conftest import MakeScript
from tests.support.tcp_scheduler import TcpScheduler

ITEMS = 200_000
"""Of an array, 1.6 MB."""


class TcpWorkers(TcpScheduler):
    """Several such workers, with a runner each."""

    def __init__(self, workers: int, *, idle_seconds: float = 60.0) -> None:
        super().__init__(1)
        self.max_workers = workers
        self.idle_seconds = idle_seconds


@pytest.fixture
def scheduler() -> Iterator[TcpWorkers]:
    with TcpWorkers(2) as made:
        yield made


@pytest.fixture
def executor(scheduler: TcpWorkers) -> Iterator[gridengine.Executor]:
    with gridengine.Executor(scheduler=scheduler) as made:
        yield made


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where such files go: there is room for two results in memory."""
    monkeypatch.setenv("GRIDENGINE_KEPT_BYTES", "4000000")
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    settings.cache_clear()
    yield tmp_path / "runs"
    settings.cache_clear()


def made(number: int, log: Path | None = None) -> numpy.ndarray:
    if log is not None:
        with log.open("a") as file:
            file.write(f"{number}\n")
    return numpy.full(ITEMS, float(number))


def grown(array: numpy.ndarray, log: Path | None = None) -> numpy.ndarray:
    if log is not None:
        with log.open("a") as file:
            file.write("grown\n")
    array += 1
    return array


def worker() -> int:
    """Return the number of the worker's process, which this one's fork server is a child of."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def first_and_worker(array: numpy.ndarray) -> tuple[float, int]:
    return float(array[0]), worker()


def met(array: numpy.ndarray, gate: Path, number: int) -> tuple[float, int]:
    """Return when another call does this too, thus on another worker."""
    (gate.parent / f"{gate.name}{number}").touch()
    while not (gate.parent / f"{gate.name}{1 - number}").exists():
        time.sleep(0.01)
    return first_and_worker(array)


def total(arrays: list[numpy.ndarray]) -> float:
    return float(sum(one[-1] for one in arrays))


def test_the_results_that_a_lost_worker_held_are_made_again(
    executor: gridengine.Executor, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    array = executor.submit(made, 3, log)
    more = executor.submit(grown, array, log)
    value, pid = executor.submit(first_and_worker, more).result()
    assert value == 4
    del array
    os.kill(pid, signal.SIGKILL)
    assert executor.submit(first_and_worker, more).result()[0] == 4
    assert log.read_text().split() == ["3", "grown"] * 2
    assert more.result()[0] == 4


def test_a_result_goes_straight_to_another_worker_and_outlives_its_maker(
    executor: gridengine.Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = []
    handle = worker_messages.HANDLERS[Fetched]
    monkeypatch.setitem(
        worker_messages.HANDLERS, Fetched, lambda *given: came.append(given) or handle(*given)
    )
    log, gate = tmp_path / "log", tmp_path / "gate"
    array = executor.submit(made, 3, log)
    maker = executor.submit(first_and_worker, array).result()[1]
    both = [executor.submit(met, array, gate, number) for number in range(2)]
    (first, one), (second, other) = [future.result() for future in both]
    assert (first, second) == (3, 3)
    assert {one, other} > {maker}
    os.kill(maker, signal.SIGKILL)
    assert executor.submit(first_and_worker, array).result()[0] == 3
    assert log.read_text().split() == ["3"]
    assert came == []


@pytest.mark.parametrize("full", [False, True])
def test_received_results_beyond_the_memory_limit_lie_in_files(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    def fail(block: Block, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if full:
        monkeypatch.setattr(Block, "move_to_file", fail)
    with TcpWorkers(1) as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
        arrays = [executor.submit(made, number) for number in range(6)]
        executor.submit(total, arrays).result()
    assert Path("/proc/self/maps").read_text().count(str(runs)) == (0 if full else 4)
    assert [float(one.result()[-1]) for one in arrays] == list(range(6))
    assert caplog.text.count("No space left on device") == full


SPILLING = """
    import errno, os, time
    import numpy
    from gridengine.errors import CallError

    def made(number):
        return numpy.full(200_000, float(number))

    def total(*arrays):
        return float(sum(one[-1] for one in arrays))

    with gridengine.Executor(max_workers=2) as executor:
        arrays = [executor.submit(made, number) for number in range(20)]
        print(executor.submit(total, *arrays).result())
        print(sum(float(one.result()[0]) for one in arrays))
"""


def test_results_beyond_the_memory_limit_lie_in_files(script: MakeScript, runs: Path) -> None:
    done = script(SPILLING).run()
    assert (done.stdout, done.stderr) == ("190.0\n190.0\n", "")
    assert list(runs.iterdir()) == []


def test_a_full_disk_fails_its_call_and_others_go_on(script: MakeScript, runs: Path) -> None:
    runs.touch()  # no folder, and so no file can be there
    done = script(
        SPILLING.split("    with ")[0]
        + """
    def wait_for_go():
        while not os.path.exists("go"):
            time.sleep(0.01)

    with gridengine.Executor(max_workers=1) as executor:
        first = executor.submit(made, 1)
        print(executor.submit(total, first).result())
        executor.submit(wait_for_go)  # what they make is needed when they make it
        others = [executor.submit(made, number) for number in (2, 3)]
        needs = executor.submit(total, *others)
        open("go", "w").close()
        error = needs.exception()
        print(type(error).__name__, "cannot be kept" in str(error), "KEPT_BYTES" in error.hint)
        print(error.__notes__)
        print(executor.submit(total, first).result(), first.result()[0])
"""
    ).run()
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "1.0",
        "CallError True True",
        "['the call of made failed, and with it total']",
        "1.0 1.0",
    ]
