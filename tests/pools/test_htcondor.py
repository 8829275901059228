"""The HTCondor pool that `schedulers/htcondor/up` brings up, as a plain user uses it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_driver import alive
from tests.support.pools import Pool, check_foreign_configuration_is_left_alone, pool_of, processes
from tests.support.waiting import wait_until

CONFIGURATION = Path("/etc/condor/condor_config")
MASTER = Path("/run/condor/master.pid")
IDLE, RUNNING, HELD = 1, 2, 5


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


def remove(pool: Pool, job: str) -> None:
    pool.run("condor_rm", job)
    wait_for(pool, job, None)


def test_a_job_runs_as_the_user_who_submits_it_on_this_machine(pool: Pool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(100)
        port = listener.getsockname()[1]
        greet = f'exec 3<>/dev/tcp/127.0.0.1/{port}; echo "$(id -un) $(hostname) $PWD" >&3'
        script = pool.script("greet", f"exec /bin/bash -c '{greet}'")
        job = submit(pool, script)
        connection, _ = listener.accept()
        with connection, connection.makefile() as file:
            told = file.readline().split()
    assert told == [pool.user.pw_name, socket.gethostname(), str(pool.folder)]
    wait_for(pool, job, None)


def test_a_held_job_runs_again_when_it_is_released(pool: Pool) -> None:
    job = submit(pool, "/bin/sleep", arguments=1000)
    wait_for(pool, job, RUNNING)
    pool.run("condor_hold", job)
    assert "via condor_hold" in wait_for(pool, job, HELD)["HoldReason"]
    pool.run("condor_release", job)
    wait_for(pool, job, RUNNING)
    remove(pool, job)


def test_a_removed_job_is_sent_sigterm(pool: Pool) -> None:
    script = pool.script(
        "last", 'trap "echo terminated > told; exit" TERM\ntouch on\nsleep 1000&wait'
    )
    job = submit(pool, script)
    wait_until((pool.folder / "on").exists)
    remove(pool, job)
    assert (pool.folder / "told").read_text() == "terminated\n"


def test_a_job_over_its_memory_is_held(pool: Pool) -> None:
    hog = "import time; x = b'x' * 500_000_000; time.sleep(1000)"
    script = pool.script("hog", f'exec /usr/bin/python3 -c "{hog}"')
    job = submit(pool, script, request_memory=100)
    held = wait_for(pool, job, HELD)
    assert (held["HoldReasonCode"], held["HoldReasonSubCode"]) == (21, 102)
    assert "memory usage exceeded request_memory" in held["HoldReason"]
    remove(pool, job)


def test_jobs_share_a_slot_and_wait_for_resources_that_no_slot_has(pool: Pool) -> None:
    fits = submit(pool, "/bin/sleep", arguments=1000, request_cpus=2, request_gpus=1)
    same = submit(pool, "/bin/sleep", arguments=1000, request_cpus=2, request_gpus=1)
    large = submit(pool, "/bin/sleep", arguments=1000, request_cpus=5)
    hosts = {wait_for(pool, job, RUNNING)["RemoteHost"] for job in (fits, same)}
    assert {host.split("_")[0] for host in hosts} == {"slot2"}
    assert len(hosts) == 2
    assert seen(pool, large)["JobStatus"] == IDLE
    for job in (fits, same, large):
        remove(pool, job)


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
