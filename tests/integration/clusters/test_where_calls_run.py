"""Where calls run on a machine with a batch system, by the setting and by itself; and that it is
said.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.clusters import said
from tests.support.processes import completed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clusters import Cluster

WHERE = """
import os, sys
import gridengine

def place(number):
    return "JOB_ID" in os.environ or "SLURM_JOB_ID" in os.environ, os.getpid()

if "terminal" in sys.argv:
    import pty
    reader, writer = pty.openpty()
    sys.stderr = os.fdopen(writer, "w", buffering=1)
places = gridengine.map(place, range(3))
places += gridengine.map(place, range(3))
assert len(set(places)) <= 3  # the second map found the workers of the first
print(*sorted({elsewhere for elsewhere, pid in places}))
if "terminal" in sys.argv:
    print(os.read(reader, 10_000).decode())
"""


def test_a_cluster_that_nobody_named_is_said_once_on_the_terminal(cluster: Cluster) -> None:
    done = cluster.run(f"import sys; sys.argv.append('terminal')\n{WHERE}")
    where, *lines = said(done.stdout)
    assert where == "True"
    assert [line for line in lines if line] == [
        f"gridengine: map of 3 calls on {cluster.title}, 4 tasks at first, up to 1,000 if calls "
        "take long; "
        "GRIDENGINE_SCHEDULER=processes keeps them here"
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused by the batch systems")
def test_root_whose_jobs_are_refused_has_calls_run_on_this_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    # The folder of watches is of the plain user, or would be root's.
    own = {"GRIDENGINE_WATCH_DIRECTORY": str(tmp_path / "watch")}
    done = completed(
        [sys.executable, "-c", WHERE], env={**os.environ, **cluster.environment, **own}, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
