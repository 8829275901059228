"""The OAR that `schedulers/oar/up` brings up, as a plain user uses it."""

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
