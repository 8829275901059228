"""A real Grid Engine and a real Slurm for the tests that want one: brought up by `schedulers/*/up
--yes`, used as a plain user.

They take no jobs of root. So, as root, the scripts of these tests run as the user `gridtest` (made
when missing; another name in GRIDENGINE_TEST_USER), by the interpreter that GRIDENGINE_TEST_PYTHON
names and that user can read. Where nothing answers these tests are skipped, or fail when
GRIDENGINE_REQUIRE_GRID_ENGINE=1, or GRIDENGINE_REQUIRE_SLURM=1.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.support import hypothesis_profiles
from tests.support.clusters import (
    Cluster,
    GridEngine,
    Slurm,
    account_on,
    why_none,
)
from tests.support.lanes import (  # hooks of pytest's
    keep_lane,
    pytest_addoption,  # noqa: F401
    pytest_terminal_summary,  # noqa: F401
    pytest_testnodedown,  # noqa: F401
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    keep_lane(config, items)

hypothesis_profiles.register()


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


@pytest.fixture(scope="session")
def _grid_engine() -> Iterator[GridEngine]:
    skip_without(GridEngine)
    with account_on(GridEngine) as found:
        yield found


@pytest.fixture(scope="session")
def _slurm() -> Iterator[Slurm]:
    skip_without(Slurm)
    with account_on(Slurm) as found:
        yield found


def skip_without(kind: type[Cluster]) -> None:
    """Skip the test where there is no such cluster, or fail when the environment says that it must
    run.
    """
    reason = why_none(kind)
    if reason and os.environ.get(f"GRIDENGINE_REQUIRE_{kind.name.upper()}") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture
def grid_engine(_grid_engine: GridEngine) -> Iterator[GridEngine]:
    """The Grid Engine of this machine. What scripts a test left are killed at its
    end.
    """
    _grid_engine.command("qconf", "-sh")  # which waits until its master answers
    yield _grid_engine
    _grid_engine.kill_children()


@pytest.fixture
def slurm(_slurm: Slurm) -> Iterator[Slurm]:
    """The Slurm of this machine, likewise."""
    yield _slurm
    _slurm.kill_children()


@pytest.fixture(
    params=[
        pytest.param("grid_engine", marks=pytest.mark.grid_engine),
        pytest.param("slurm", marks=pytest.mark.slurm),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each cluster in turn, for what both promise."""
    found: Cluster = request.getfixturevalue(request.param)
    return found
