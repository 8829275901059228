"""Hosts of namespaces with a Slurm on them: brought up for the tests of this folder, and mended
after each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support import hosts
from tests.support.clusters import account_on
from tests.support.hosts import SlurmOfHosts


@pytest.fixture(scope="session")
def _slurm_of_hosts() -> Iterator[SlurmOfHosts]:
    reason = hosts.why_none()
    if reason and os.environ.get("GRIDENGINE_REQUIRE_HOSTS") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    was_up = hosts.STATE.exists()
    hosts.bring_up()
    with account_on(SlurmOfHosts) as found:
        yield found
    if not was_up:
        hosts.hosts("down")


@pytest.fixture
def slurm(_slurm_of_hosts: SlurmOfHosts) -> Iterator[SlurmOfHosts]:
    """The Slurm of the hosts, all of which run."""
    hosts.bring_up()
    yield _slurm_of_hosts
    _slurm_of_hosts.kill_children()
