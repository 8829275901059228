"""The package in one file, as a plain user of a batch system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

MAP = """
import sys, gridengine

def origin(x):
    return sys.executable, gridengine.__file__

with gridengine.SCHEDULER as scheduler:
    [[python, file]] = set(gridengine.map(origin, range(2), scheduler=scheduler, progress=False))
    print(python == sys.executable, file == gridengine.__file__, file)
"""


@pytest.fixture
def shared(cluster: Cluster, onefile: Path) -> str:
    """The path of the file where the user and the nodes see it."""
    path = cluster.folder / "gridengine.pyz"
    shutil.copy(onefile, path)
    os.chown(path, cluster.user.pw_uid, cluster.user.pw_gid)
    return str(path)


def test_a_script_that_it_runs_has_calls_on_the_cluster(cluster: Cluster, shared: str) -> None:
    cache = str(cluster.folder / "cache")
    calls = MAP.replace("SCHEDULER", f"{cluster.scheduler}()")
    run_it = f"import os; os.execv({shared!r}, [{shared!r}, 'calls.py'])"
    done = cluster.run(run_it, files={"calls.py": calls}, environment={"PEX_ROOT": cache})
    output = done.stdout.split()
    assert output[:2] == ["True", "True"]
    assert output[2].startswith(cache)


def test_workers_can_be_told_to_use_it_and_unpack_it_themselves(
    cluster: Cluster, shared: str
) -> None:
    cache = str(cluster.folder / "cache of workers")
    arguments = f"python=['/usr/bin/env', {shared!r}], environment={{'PEX_ROOT': {cache!r}}}"
    script = MAP.replace("SCHEDULER", f"{cluster.scheduler}({arguments})")
    output = cluster.run(script).stdout.split(maxsplit=2)
    assert output[:2] == ["False", "False"]
    assert output[2].startswith(cache)
    assert Path(cache).stat().st_mode & 0o777 == 0o700
