"""A real Grid Engine and a real Slurm for the tests that want one: brought up by `schedulers/*/up
--yes`, used as a plain user.

They take no jobs of root. So, as root, the scripts of these tests run as the user `gridtest` (made
when missing; another name in GRIDENGINE_TEST_USER), by the interpreter that GRIDENGINE_TEST_PYTHON
names and that user can read. Where nothing answers these tests are skipped, or fail when
GRIDENGINE_REQUIRE_GRID_ENGINE=1, or GRIDENGINE_REQUIRE_SLURM=1.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gridengine.settings.values import settings
from tests.support import hypothesis_profiles
from tests.support.clusters import Cluster, account_on, why_none
from tests.support.contract import BATCH_SYSTEMS, CLUSTERS, PLACES, params
from tests.support.interrupts import take_interrupts
from tests.support.lanes import (  # hooks of pytest's
    keep_lane,
    pytest_addoption,  # noqa: F401
    pytest_terminal_summary,  # noqa: F401
    pytest_testnodedown,  # noqa: F401
)
from tests.support.places import ROOT, Place, here

hypothesis_profiles.register()
take_interrupts()


def pytest_collection_finish() -> None:
    """Have garbage be looked for in what tests make, not in the thousands of collected tests: a
    quarter of a second each time, and some of CPython's tests call for it often.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Reports of the tests' runs take no place of those of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Set settings by their variables, as users do, until the test ends."""

    def configure(**given: object) -> None:
        for name, value in given.items():
            monkeypatch.setenv(f"GRIDENGINE_{name.upper()}", str(value))
        settings.cache_clear()

    configure()
    yield configure
    settings.cache_clear()


@pytest.fixture(scope="session")
def onefile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in one file for this Python: what `make onefile` has built, or else built now."""
    if (built := os.environ.get("GRIDENGINE_TEST_ONEFILE")) is not None:
        return Path(built)
    path = tmp_path_factory.mktemp("onefile") / "gridengine.pyz"
    subprocess.run([ROOT / "tools" / "onefile", sys.executable, path], check=True)
    return path


GetPlace = Callable[[str], Place]
CONTRACT = Path(__file__).with_name("contract")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one lane's tests, and have each group of them run in one xdist worker.

    Tests of batch systems are a group, since they stop daemons and fill queues: in `make test` one
    for all, whose processes are few, else one for each system. The contract's tests of a local
    place are one, since they share what was played there. From pytest 9.2 on, xdist 3.8 does not
    see groups.
    """
    keep_lane(config, items)
    names = [*(kind.name for kind in BATCH_SYSTEMS), "hosts"]
    together = config.getoption("--lane") == "test"
    for item in items:
        if not hasattr(os, "memfd_create") and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="Linux alone has what this needs"))
        marks = [name for name in names if item.get_closest_marker(name) is not None]
        if marks:
            item.add_marker(pytest.mark.xdist_group("clusters" if together else marks[0]))
        elif item.path.is_relative_to(CONTRACT):
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["place"]))


@pytest.fixture(scope="session")
def _get_place() -> Iterator[GetPlace]:
    """Gives what a place's scripts need when it is first asked for, by the place's name."""
    kinds = {kind.name: kind for kind in PLACES}
    found: dict[str, Place] = {}
    with contextlib.ExitStack() as stack:

        def get(name: str) -> Place:
            if name not in found:
                found[name] = stack.enter_context(scripts_at(kinds[name]))
            return found[name]

        yield get


def scripts_at(kind: type[Place]) -> contextlib.AbstractContextManager[Place]:
    if issubclass(kind, Cluster):
        skip_without(kind)
        return account_on(kind)
    return here(kind)


def skip_without(kind: type[Cluster]) -> None:
    """Skip the test where there is no such cluster, or fail when the environment says that it must
    run.
    """
    reason = why_none(kind)
    if reason and os.environ.get(f"GRIDENGINE_REQUIRE_{kind.name.upper()}") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def until_its_end(place: Place) -> Iterator[Place]:
    """Give a place that takes work, and kill what the test's scripts have left."""
    place.wait_until_ready()
    yield place
    place.kill_children()


@pytest.fixture
def grid_engine(_get_place: GetPlace) -> Iterator[Place]:
    """The Grid Engine of this machine."""
    yield from until_its_end(_get_place("grid_engine"))


@pytest.fixture
def slurm(_get_place: GetPlace) -> Iterator[Place]:
    """The Slurm of this machine."""
    yield from until_its_end(_get_place("slurm"))


@pytest.fixture(params=params(*CLUSTERS))
def cluster(request: pytest.FixtureRequest, _get_place: GetPlace) -> Iterator[Place]:
    """Each cluster in turn, for what both promise."""
    yield from until_its_end(_get_place(request.param))
