"""What a script's log and the batch system's own commands tell of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

LIST_JOBS = {"grid_engine": ["qstat", "-r"], "slurm": ["squeue", "--noheader", "--format=%j"]}
NAMED = """
import logging, subprocess, time
from pathlib import Path
import gridengine

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(message)s")

def risky(number):
    if number == 7 and not Path("crashed").exists():
        Path("crashed").touch()
        import os
        os._exit(3)
    while number and not Path("listed").exists():
        time.sleep(0.05)

if __name__ == "__main__":
    with gridengine.{scheduler}(max_workers=2{arguments}) as scheduler:
        ends = gridengine.imap(risky, range(10), scheduler=scheduler)
        next(ends)
        print(subprocess.run({listing!r}, capture_output=True, text=True).stdout)
        Path("listed").touch()
        list(ends)
"""
NAMES = [
    ({"grid_engine": "", "slurm": ""}, "risky"),
    (dict.fromkeys(["grid_engine", "slurm"], ", name='my sweep'"), "my-sweep"),
    ({"grid_engine": ", native='-N sweep'", "slurm": ", name='sweep'"}, "sweep"),
]


@pytest.mark.parametrize(("arguments", "name"), NAMES, ids=["function", "name", "native"])
def test_jobs_are_called_as_the_function_or_as_the_user_says(
    cluster: Cluster, arguments: dict[str, str], name: str
) -> None:
    done = cluster.run(
        NAMED.format(
            scheduler=cluster.scheduler,
            arguments=arguments[cluster.name],
            listing=LIST_JOBS[cluster.name],
        )
    )
    assert re.search(rf"(^|Full jobname: +){name}($|-20)", done.stdout, flags=re.MULTILINE)


def test_the_log_tells_of_a_run_and_shows_no_keys(cluster: Cluster) -> None:
    script = NAMED.format(scheduler=cluster.scheduler, arguments="", listing=["true"])
    lines = cluster.run(script).stderr.splitlines()
    for words in (
        r"launched [12] workers? for risky, cluster jobs? \d+",
        r"worker \d+ on \S+ \(cluster job \d+\S*, log /.*\.log\) connected after [\d.]+ s",
        r"call 7 of risky is run again \(attempt 2 of 3\): on \S+ \(cluster job .*status 3",
        r"10 calls done, 0 failed or cancelled, 1 run again, in [\d.]+ s; [12] workers? connected",
    ):
        assert [line for line in lines if re.match(f"INFO {words}", line)], (words, lines)
    assert not [line for line in lines if "ALLOWED" in line or "CURVE" in line]
