"""Runs with a name on a batch system: a script is killed, and goes on when it is run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

SCRIPT = """
import os, signal, subprocess, sys, time
import gridengine

def work(x):
    while x > 3 and not os.path.exists("go"):
        time.sleep(0.1)
    return [x, os.environ.get("JOB_ID") or os.environ.get("SLURM_JOB_ID")]

if __name__ == "__main__":
    with gridengine.{kind}(max_workers=2) as scheduler:
        results = gridengine.map(
            work, range(8), name="killed", chunksize=1, scheduler=scheduler,
            journal=os.path.join(os.getcwd(), "killed.sqlite"),
        )
    print(results)
"""


def test_a_script_that_was_killed_goes_on(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
import subprocess, sys, time
with open("again.py", "w") as file:
    file.write(AGAIN.replace("{kind}", CLUSTER.__name__))
first = subprocess.Popen([sys.executable, "again.py"])

def kept():
    words = ["-m", "gridengine", "results", "killed", "--journal", "killed.sqlite"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    return done.stdout.count('{"result"')

while kept() < 4:
    assert first.poll() is None
    time.sleep(0.2)
first.kill()
first.wait()
open("go", "w").close()
log = "import logging; logging.basicConfig(level=20)\\n"
with open("again.py", "w") as file:
    file.write(log + AGAIN.replace("{kind}", CLUSTER.__name__))
second = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True)
tell(results=eval(second.stdout), log=second.stderr)
""".replace("AGAIN", repr(SCRIPT)),
    ).result(300)
    values, jobs = zip(*told["results"], strict=True)
    assert values == tuple(range(8))
    assert None not in jobs
    assert not {*jobs[:4]} & {*jobs[4:]}, told["log"]
    assert "4 results taken from the journal, 4 new" in told["log"]
