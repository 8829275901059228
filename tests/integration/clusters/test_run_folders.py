"""What a run leaves behind on a batch system: logs that are bounded."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

RUNS = """
import os, time
from pathlib import Path
runs = Path.cwd() / "runs"
os.environ["GRIDENGINE_RUN_DIRECTORY"] = str(runs)
import gridengine
from gridengine.schedulers.default import make_scheduler

def run(f, words=""):
    "Run a function that prints this in a run of its own; return what of its folder is left."
    before = set(runs.glob("*"))
    with make_scheduler(os.environ["NAME"], 1) as scheduler:
        gridengine.map(f, [0], scheduler=scheduler, reraise=False)
        [folder] = set(runs.glob("*")) - before
        while not any(words in path.read_text() for path in folder.glob("logs/*.log")):
            time.sleep(0.02)
    return sorted(set(runs.glob("*")) - before)
"""
BOUNDED = f"""{RUNS}
def speak(number):
    print("the first line", flush=True)
    [log] = runs.glob("*/logs/*.log")
    until = time.monotonic() + 60
    largest = 0
    for line in range(10**9):
        print(f"line {{line}} ".ljust(100, "x"), flush=True)
        size = log.stat().st_size
        if size < largest / 2 or time.monotonic() > until:
            break
        largest = max(largest, size)
        time.sleep(0.001)
    print("the last line", flush=True)

[folder] = run(speak, "the last line")
[log] = folder.glob("logs/*.log")
print((log.stat().st_size, log.read_text()))
"""


def test_a_log_that_grows_is_cut_in_its_middle(cluster: Cluster) -> None:
    done = cluster.run(
        BOUNDED,
        environment={
            "NAME": cluster.name,
            "GRIDENGINE_LOG_BYTES": "100000",
            "GRIDENGINE_BEAT_SECONDS": "0.2",
        },
        seconds=100,
    )
    _, text = ast.literal_eval(done.stdout)
    assert "the first line" in text
    assert "bytes left out, by the setting log_bytes" in text
    assert "the last line" in text
    assert "\0" not in text
