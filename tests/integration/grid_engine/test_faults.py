"""What goes wrong on a real Grid Engine every day, and what must come of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.scenario import (
    IMPATIENT,
    Scenario,
    changed_queue,
    play,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Grid Engine")


# ------------------------------------------------------------------ calls


def test_a_call_that_gets_no_more_memory_is_out_of_memory_and_says_the_limit(
    grid_engine: GridEngine,
) -> None:
    told = play(
        grid_engine,
        """
scheduler = GridEngineScheduler(h_vmem="1500M")
tell(**facts_of(
    lambda: gridengine.map(bytearray, [4_000_000_000], scheduler=scheduler, retries=0)
))
""",
    ).result()
    assert told["kind"] == "OutOfMemory"
    assert "its limit was 1.46 GB" in told["text"]
    assert told["job"] in told["text"]


def test_a_job_over_its_memory_is_out_of_memory_and_says_the_limit(grid_engine: GridEngine) -> None:
    told = play(
        grid_engine,
        """
def fill(x, folder=str(FOLDER)):
    kept = []
    # Each process may have that much; Grid Engine ends a job whose processes have it together.
    try:
        while True:
            kept.append(bytearray(20_000_000))
    except MemoryError:
        hold(x, folder)

scheduler = GridEngineScheduler(h_vmem="1500M")
tell(**facts_of(lambda: gridengine.map(fill, [1], scheduler=scheduler, retries=1)))
""",
    ).result()
    assert told["kind"] == "OutOfMemory"
    assert "h_vmem=1500M" in told["text"]
    assert len(told["attempts"]) == 2
    assert told["job"] in told["text"]


def test_a_job_over_its_time_is_a_timeout_that_is_not_tried_again(grid_engine: GridEngine) -> None:
    scenario = play(
        grid_engine,
        """
scheduler = GridEngineScheduler(h_rt=15)
tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler, retries=2)))
""",
    )
    told = scenario.result()
    assert told["kind"] == "TimeoutError"
    assert "took longer than its worker may be there" in told["text"]
    assert told["job"] in told["text"]
    assert len(scenario.begun()) == 1


# ------------------------------------------------------------------ workers that do not come


@as_root
def test_calls_that_wait_for_a_disabled_queue_are_logged_and_run_when_it_is_enabled(
    grid_engine: GridEngine,
) -> None:
    scenario = play(
        grid_engine,
        "tell(results=gridengine.map(abs, [-1], scheduler=lambda: "
        "GridEngineScheduler(queue='closed.q')))",
    )
    wait_until(lambda: 'queue instance "closed.q@' in scenario.errors)
    assert "disabled" in scenario.errors
    with changed_queue(grid_engine, "-e", "-d", "closed.q"):
        assert scenario.result()["results"] == [1]


# ------------------------------------------------------------------ stopped, cut off, restarted


TESTS = Path(__file__).parents[2]
PROXY_FILES = (
    "chaos/call_log.py",
    "chaos/faults.py",
    "chaos/places.py",
    "support/tcp_scheduler.py",
)
PROXY = """
import threading
from msgspec.structs import replace

from faults import Proxy
from gridengine.wire.connection_file import Connection
from places import ProxiedGridEngine

scheduler = ProxiedGridEngine(max_workers=1)
scheduler.proxy, scheduler.connections = Proxy(), []


def when(name, act):
    def wait():
        while not Path(name).exists():
            time.sleep(0.02)
        act()
        Path(name + " done").touch()

    threading.Thread(target=wait, daemon=True).start()
"""


def over_proxy(grid_engine: GridEngine, script: str, lease_seconds: str) -> Scenario:
    """Play a script whose workers connect through a proxy."""
    files = {Path(name).name: (TESTS / name).read_text() for name in PROXY_FILES}
    environment = {**IMPATIENT, "GRIDENGINE_LEASE_SECONDS": lease_seconds}
    return play(grid_engine, PROXY + script, files=files, environment=environment)


def test_a_worker_whose_network_comes_back_goes_on(grid_engine: GridEngine) -> None:
    scenario = over_proxy(
        grid_engine,
        """
when("down", lambda: scheduler.proxy.cut(down=True))
when("up", scheduler.proxy.up)
tell(results=gridengine.map(alone, [0], scheduler=scheduler))
""",
        lease_seconds="30",
    )
    scenario.began(1)
    scenario.tell("down")
    down, silent = time.monotonic(), 5 * float(IMPATIENT["GRIDENGINE_BEAT_SECONDS"])
    wait_until(lambda: time.monotonic() - down > silent)
    scenario.go()
    scenario.tell("up")
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1


def test_the_calls_of_a_worker_whose_network_stays_down_run_elsewhere_when_it_has_ended_them(
    grid_engine: GridEngine,
) -> None:
    scenario = over_proxy(
        grid_engine,
        """
def down():
    [path] = scheduler.connections
    connection = Connection.load(path)
    path.unlink()
    # Who comes next does without the proxy.
    replace(connection, addresses=(f"tcp://127.0.0.1:{scheduler.proxy.port}",)).save(path)
    scheduler.proxy.cut(down=True)

when("down", down)
tell(results=gridengine.map(alone, [0], scheduler=scheduler))
""",
        lease_seconds="5",
    )
    (first,) = scenario.began(1)
    scenario.tell("down")
    scenario.began(2)
    assert not (scenario.folder / "not alone").exists()
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert scenario.ended() == [0]
    wait_until(lambda: not first.lives)
