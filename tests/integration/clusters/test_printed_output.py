"""What jobs print on a batch system arrives at their caller, and where calls print is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.clusters import said

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

DROP_IN = """
import sys
from gridengine import Job

def speak(lines):
    for number in range(lines):
        print(f"line {number:05d} ".ljust(999, "x"))
    print("that was all", file=sys.stderr)

def fail():
    raise ValueError("no such dog")

if __name__ == "__main__":
    for job in (Job(target=speak, args=(3000,)), Job(target=fail, name="the dog")):
        job.start()
        job.join()
    print("all done")
"""
LOGGED = """
import logging, os
from pathlib import Path
os.environ["GRIDENGINE_RUN_DIRECTORY"] = str(Path.cwd() / "runs")
import gridengine

def speak(number):
    print(f"call {number}")

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
gridengine.map(speak, range(20))
[folder] = (Path.cwd() / "runs").iterdir()
printed = ""
while printed.count("call ") < 20:  # a worker that takes long to leave is ended
    printed = "".join(path.read_text() for path in folder.glob("logs/*.log"))
gridengine.schedulers.default_scheduler().close()
print(folder)
print(printed)
"""


def test_a_script_for_multiprocessing_prints_the_same(cluster: Cluster) -> None:
    done = cluster.run(DROP_IN)
    lines = [f"line {number:05d} ".ljust(999, "x") for number in range(3000)]
    assert done.stdout.splitlines() == [*lines, "all done"]
    first, second, *_, last = said(done.stderr)
    assert (first, second, last) == ("that was all", "Process the dog:", "ValueError: no such dog")


def test_the_log_says_where_calls_print(cluster: Cluster) -> None:
    done = cluster.run(LOGGED)
    run, *printed = done.stdout.splitlines()
    assert (
        f"INFO what calls print goes to the workers' logs below {run}" in done.stderr.splitlines()
    )
    # The batch system may have put in words of its own.
    calls = [line for line in printed if line.startswith("call ")]
    assert sorted(calls) == sorted(f"call {number}" for number in range(20))
