"""The HTCondor pool that `schedulers/htcondor/up` brings up, as a plain user uses it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_driver import alive
from tests.support.pools import Pool, check_foreign_configuration_is_left_alone, pool_of, processes
from tests.support.waiting import wait_until

CONFIGURATION = Path("/etc/condor/condor_config")
MASTER = Path("/run/condor/master.pid")
RUNNING = 2


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    yield from pool_of("htcondor", CONFIGURATION)


def submit(pool: Pool, executable: str | Path, **settings: object) -> str:
    """Submit one job, and return its number."""
    own = {"executable": executable, "should_transfer_files": "NO", **settings}
    words = [f"{name}={value}" for name, value in own.items()]
    output = pool.run("condor_submit", *words, "/dev/null", "-queue", "1")
    found = re.search(r"submitted to cluster (\d+)", output)
    assert found is not None, output
    return found[1]


def seen(pool: Pool, job: str) -> dict[str, Any]:
    """Return what the queue says of a job; nothing when it has left the queue."""
    listed = pool.run("condor_q", job, "-json") or "[]"  # of no jobs nothing is printed
    found: list[dict[str, Any]] = json.loads(listed)
    return found[0] if found else {}


def wait_for(pool: Pool, job: str, status: int | None) -> dict[str, Any]:
    """Wait until a job is in this status, or, for None, has left; return what the queue says."""
    wait_until(lambda: seen(pool, job).get("JobStatus") == status)
    return seen(pool, job)


def test_the_kernel_s_settings_stay_as_they_are(pool: Pool) -> None:
    """By default the master changes them when it starts, and writes them there."""
    assert pool.run("condor_config_val", "ENABLE_KERNEL_TUNING").strip() == "False"
    assert not Path("/etc/sysctl.d/99-htcondor.conf").exists()


def test_a_pool_that_is_up_is_left_as_it_is(pool: Pool) -> None:
    before = MASTER.read_text()
    pool.bring("up")
    assert MASTER.read_text() == before


def test_a_pool_whose_master_was_killed_comes_up_again(pool: Pool) -> None:
    before = processes("htcondor")
    os.kill(int(MASTER.read_text()), signal.SIGKILL)
    pool.bring("up")
    assert not processes("htcondor") & before
    wait_for(pool, submit(pool, "/bin/true"), None)


def test_down_ends_jobs_and_daemons_and_up_refuses_a_pool_of_others(pool: Pool) -> None:
    job = submit(pool, pool.script("stay", "echo $$ > pid; exec sleep 1000"))
    wait_for(pool, job, RUNNING)
    pid = wait_until(lambda: (path := pool.folder / "pid").exists() and path.read_text())
    pool.bring("down")
    assert not processes("htcondor")
    assert not alive(int(pid))
    assert not CONFIGURATION.exists()
    assert "nothing done" in pool.bring("down")
    check_foreign_configuration_is_left_alone(pool, CONFIGURATION)
