"""Clients that are killed, stopped or cut off, and dispatchers that end under them."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import gridengine
from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.serving.client_listener import LOOK_SECONDS
from gridengine.dispatcher.standalone.serve import serve
from gridengine.errors import Cancelled, DispatcherGone
from gridengine.schedulers.workerless import RemoteScheduler
from gridengine.settings.schema import Settings
from tests.support.cable import Cable
from tests.support.clocked import clocked
from tests.support.manual_clock import PATIENCE, ManualClock
from tests.support.processes import completed
from tests.support.standalone import Standalone
from tests.support.waiting import kill_all, wait_until

SCRIPT = """
import sys, time, gridengine
def hold(folder):
    open(folder + "/began", "w").close()
    while not __import__("os").path.exists(folder + "/go"):
        time.sleep(0.02)
    return "held"
client = gridengine.Client(sys.argv[1])
future = client.submit(hold, sys.argv[2])
try:
    print(future.result())
except gridengine.GridEngineError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    made = Standalone(tmp_path / "runs")
    yield made
    if made.process.poll() is None:
        made.end()


@contextlib.contextmanager
def holding(path: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Have a script run whose call runs until the file `go` is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until((folder / "began").exists)
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def served(folder: Path, clock: ManualClock) -> Iterator[Path]:
    """Have a dispatcher in a thread of this process; its clients find it by this path."""
    stopped, ready = threading.Event(), threading.Event()
    with gridengine.ProcessScheduler(2) as scheduler:
        thread = threading.Thread(
            target=serve,
            args=(folder, scheduler, Settings(host="127.0.0.1")),
            kwargs={"stopped": stopped, "ready": ready.set, "clock": clock},
        )
        thread.start()
        try:
            assert ready.wait(PATIENCE)
            yield folder / "client.json"
        finally:
            stopped.set()
            thread.join()


def no_thread_of_a_client() -> bool:
    return not any(one.name == "gridengine-client" for one in threading.enumerate())


@pytest.mark.promise
def test_the_calls_of_a_killed_client_end_after_the_grace_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with (
        served(tmp_path / "night", clock) as path,
        gridengine.Client(path) as other,
        holding(path, tmp_path) as process,
    ):
        assert other.status().running == 1
        process.kill()
        process.wait()
        clock.advance_until(lambda: len(other.describe()["clients"]) == 1, LOOK_SECONDS)
        wait_until(lambda: other.status().running == 0)
        assert other.submit(abs, -1).result() == 1
    assert clock.monotonic() - ManualClock().monotonic() >= Settings().client_grace


@contextlib.contextmanager
def by_cable(standalone: Standalone, folder: Path) -> Iterator[tuple[Cable, Path]]:
    """Have clients find the dispatcher by this path, over a cable that can be cut."""
    told = json.loads(standalone.path.read_bytes())
    with contextlib.closing(Cable(int(told["addresses"][-1].rpartition(":")[2]))) as cable:
        path = folder / "client.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({**told, "addresses": [cable.address]}))
        yield cable, path


def test_a_client_that_was_stopped_finds_its_way_back(
    standalone: Standalone, tmp_path: Path
) -> None:
    with (
        by_cable(standalone, tmp_path) as (cable, path),
        holding(path, tmp_path) as process,
    ):
        process.send_signal(signal.SIGSTOP)
        cable.cut()
        (tmp_path / "go").touch()
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=120)[0] == "held\n"


@pytest.mark.promise
def test_no_future_notices_that_connections_break(standalone: Standalone, tmp_path: Path) -> None:
    with (
        by_cable(standalone, tmp_path) as (cable, path),
        gridengine.Client(path) as client,
        gridengine.Executor(scheduler=client) as executor,
    ):
        futures = []
        for number in range(50):
            futures += [executor.submit(abs, -number * 100 - x) for x in range(100)]
            if number % 10 == 5:
                futures[-100].result()
                cable.cut()
        assert [future.result() for future in futures] == list(range(5000))
        assert cable.cuts == 5


@pytest.mark.promise
def test_futures_are_told_when_the_dispatcher_ends(standalone: Standalone, tmp_path: Path) -> None:
    with holding(standalone.path, tmp_path) as process:
        with contextlib.closing(RemoteDispatcher(standalone.path)) as remote:
            remote.control("stop", {"now": True})
        assert "DispatcherGone the dispatcher has ended" in process.communicate(timeout=120)[0]


@pytest.mark.promise
def test_futures_are_told_when_the_dispatcher_was_killed_and_stays_away(
    standalone: Standalone,
) -> None:
    clock = ManualClock()
    client = clocked(RemoteScheduler(standalone.path), clock)
    future = gridengine.Executor(scheduler=client).submit(signal.pause)
    wait_until(future.running)
    workers = psutil.Process(standalone.process.pid).children(recursive=True)
    standalone.process.kill()
    kill_all(lambda: filter(psutil.Process.is_running, workers))
    assert not future.done()
    clock.advance_until(future.done, Settings().beat_seconds)
    with pytest.raises(DispatcherGone, match="nothing was heard"):
        future.result()
    clock.advance_until(no_thread_of_a_client, 1.0)  # the last words were for nobody
    client.close()


@pytest.mark.promise
def test_a_program_that_ends_takes_its_calls_with_it(
    standalone: Standalone, tmp_path: Path
) -> None:
    script = "import sys, time, gridengine; c = gridengine.Client(sys.argv[1]); "
    script += "print(c.submit(abs, -2).result())"
    done = completed([sys.executable, "-c", script, str(standalone.path)])
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)
    with gridengine.Client(standalone.path) as client:
        assert len(client.describe()["clients"]) == 1


@pytest.mark.promise
def test_fifty_clients_at_once(standalone: Standalone) -> None:
    def one(number: int) -> list[int]:
        with gridengine.Client(standalone.path) as client:
            return client.map(lambda x: x + number, range(20))

    with ThreadPoolExecutor(50) as threads:
        assert list(threads.map(one, range(50))) == [
            list(range(number, number + 20)) for number in range(50)
        ]


def test_nothing_is_left_of_calls_whose_results_were_fetched(standalone: Standalone) -> None:
    with gridengine.Client(standalone.path) as client:
        process = psutil.Process(standalone.process.pid)
        sizes = []
        for _ in range(4):
            client.map(abs, range(100_000), chunksize=20)
            with gridengine.Executor(scheduler=client) as executor:
                for future in [executor.submit(abs, x) for x in range(10_000)]:
                    future.result()
            sizes.append(process.memory_info().rss)
    assert sizes[-1] - sizes[0] < 20_000_000


@pytest.mark.promise
def test_a_client_that_disconnects_cancels_its_open_calls(standalone: Standalone) -> None:
    client = gridengine.Client(standalone.path)
    future = client.submit(time.sleep, 3600)
    client.disconnect()
    with pytest.raises(Cancelled):
        future.result()
    assert not isinstance(future.exception(), DispatcherGone)
