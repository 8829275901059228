"""Hosts of namespaces with a batch system on them: brought up when a test of this folder first
wants them, and mended before each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.support import hosts
from tests.support.clusters import account_on
from tests.support.hosts import GridEngineOfHosts, HTCondorOfHosts, OfHosts, SlurmOfHosts

T = TypeVar("T", bound=OfHosts)


def on_hosts(kind: type[T]) -> Iterator[T]:
    """Bring up a batch system of hosts, and leave it as it was found: up, or not there."""
    reason = hosts.why_none()
    if reason and os.environ.get("GRIDENGINE_REQUIRE_HOSTS") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    was_up = (hosts.STATE / kind.up).exists()
    hosts.bring_up(kind.up)
    with account_on(kind) as found:
        yield found
    if not was_up:
        hosts.hosts("down", system=kind.up)


@pytest.fixture(scope="session")
def _slurm_of_hosts() -> Iterator[SlurmOfHosts]:
    yield from on_hosts(SlurmOfHosts)


@pytest.fixture(scope="session")
def _grid_engine_of_hosts() -> Iterator[GridEngineOfHosts]:
    yield from on_hosts(GridEngineOfHosts)


@pytest.fixture
def slurm(_slurm_of_hosts: SlurmOfHosts) -> Iterator[SlurmOfHosts]:
    """The Slurm of the hosts, all of which run."""
    hosts.bring_up()
    yield _slurm_of_hosts
    _slurm_of_hosts.kill_children()


@pytest.fixture
def grid_engine(_grid_engine_of_hosts: GridEngineOfHosts) -> Iterator[GridEngineOfHosts]:
    """The Grid Engine of the hosts, all of which run."""
    hosts.bring_up("gridengine")
    yield _grid_engine_of_hosts
    _grid_engine_of_hosts.kill_children()


@pytest.fixture(scope="session")
def _htcondor_of_hosts() -> Iterator[HTCondorOfHosts]:
    yield from on_hosts(HTCondorOfHosts)


@pytest.fixture
def htcondor(_htcondor_of_hosts: HTCondorOfHosts) -> Iterator[HTCondorOfHosts]:
    """The HTCondor of the hosts, all of which run."""
    hosts.bring_up("htcondor")
    yield _htcondor_of_hosts
    _htcondor_of_hosts.kill_children()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> OfHosts:
    """The batch system of hosts that a test is parametrized with, by its name."""
    place: OfHosts = request.getfixturevalue(request.param)
    return place
