"""The OAR that `schedulers/oar/up` brings up, as a plain user uses it."""

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

CONFIGURATION = Path("/etc/oar/oar.conf")
SERVER = Path("/run/oar/almighty.pid")
LINKS = [Path("/usr/lib/oar"), Path("/usr/share/perl5/OAR")]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    yield from pool_of("oar", CONFIGURATION)


def submit(pool: Pool, *words: str | Path) -> str:
    """Submit one job, and return its number."""
    output = pool.run("oarsub", *map(str, words))
    found = re.search(r"OAR_JOB_ID=(\d+)", output)
    assert found is not None, output
    return found[1]


def seen(pool: Pool, job: str) -> dict[str, Any]:
    """Return what OAR says of a job, also after its end."""
    found: dict[str, Any] = json.loads(pool.run("oarstat", "-f", "-J", "-j", job))[job]
    return found


def wait_for(pool: Pool, job: str, state: str) -> dict[str, Any]:
    """Wait until a job is in this state, and return what OAR says of it."""
    wait_until(lambda: seen(pool, job)["state"] == state)
    return seen(pool, job)


def test_a_job_runs_as_the_user_who_submits_it_on_this_machine(pool: Pool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(100)
        port = listener.getsockname()[1]
        greet = f'exec 3<>/dev/tcp/127.0.0.1/{port}; echo "$(id -un) $(hostname) $PWD" >&3'
        job = submit(pool, pool.script("greet", f"exec /bin/bash -c '{greet}'"))
        connection, _ = listener.accept()
        with connection, connection.makefile() as file:
            told = file.readline().split()
    assert told == [pool.user.pw_name, socket.gethostname(), str(pool.folder)]
    assert wait_for(pool, job, "Terminated")["exit_code"] == 0


def test_a_job_that_is_submitted_on_hold_runs_when_it_is_resumed(pool: Pool) -> None:
    job = submit(pool, "--hold", "true")
    wait_for(pool, job, "Hold")
    pool.run("oarresume", job)
    wait_for(pool, job, "Terminated")


def test_a_deleted_job_ends_in_error(pool: Pool) -> None:
    job = submit(pool, pool.script("stay", "echo $$ > pid; exec sleep 1000"))
    wait_for(pool, job, "Running")
    pid = wait_until(lambda: (path := pool.folder / "pid").exists() and path.read_text())
    pool.run("oardel", job)
    assert "FRAG_JOB_REQUEST" in str(wait_for(pool, job, "Error")["events"])
    wait_until(lambda: not alive(int(pid)))


def test_a_job_over_its_walltime_is_ended(pool: Pool) -> None:
    job = submit(pool, "-l", "core=1,walltime=0:0:2", "sleep 1000")
    assert "WALLTIME" in str(wait_for(pool, job, "Error")["events"])


def test_an_array_spreads_over_both_nodes(pool: Pool) -> None:
    output = pool.run("oarsub", "--array", "2", "-l", "host=1/core=4", "sleep 1000")
    jobs = re.findall(r"OAR_JOB_ID=(\d+)", output)
    nodes = [wait_for(pool, job, "Running")["assigned_network_address"] for job in jobs]
    assert sorted(nodes) == [["n1"], ["n2"]]
    pool.run("oardel", *jobs)
    for job in jobs:
        wait_for(pool, job, "Error")


def test_an_impossible_request_is_refused_and_a_closed_queue_keeps_its_jobs(pool: Pool) -> None:
    output = pool.run("oarsub", "-l", "host=1/core=5", "true", check=False)
    assert "There are not enough resources" in output
    job = submit(pool, "-q", "closed", "true")
    wait_for(pool, submit(pool, "true"), "Terminated")
    assert seen(pool, job)["state"] == "Waiting"
    pool.run("oardel", job)


def test_an_oar_that_is_up_is_left_as_it_is(pool: Pool) -> None:
    before = SERVER.read_text()
    pool.bring("up")
    assert SERVER.read_text() == before


def test_an_oar_whose_server_was_killed_comes_up_again(pool: Pool) -> None:
    before = SERVER.read_text()
    os.kill(int(before), signal.SIGKILL)
    pool.bring("up")
    assert SERVER.read_text() != before
    wait_for(pool, submit(pool, "true"), "Terminated")


def test_down_ends_jobs_and_daemons_and_up_refuses_an_oar_of_others(pool: Pool) -> None:
    job = submit(pool, "sleep 1000")
    wait_for(pool, job, "Running")
    server = int(SERVER.read_text())
    pool.bring("down")
    assert not processes("oar")
    assert not alive(server)
    assert not CONFIGURATION.exists()
    assert not any(map(os.path.lexists, LINKS))
    assert "nothing done" in pool.bring("down")
    check_foreign_configuration_is_left_alone(pool, CONFIGURATION)
