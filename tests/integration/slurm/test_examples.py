"""Every example runs on a real Slurm as it stands, as a plain user: named, and as the best that is
available.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

pytestmark = pytest.mark.slurm

EXAMPLES = Path(__file__).parents[3] / "examples"
PRINTED = {
    "square.py": "the sum of all 1000: 332833500",
    "stdlib_census.py": "the mapped census equals the serial one",
    "process_like.py": "quitter ended with exit code 3, having printed: nothing",
    "sweep.py": "rate 3.0: at rate 3.0 the loss had grown without bound",
    "executor.py": "94^3 + 64^3 = 1092728, and 103^3 = 1092727",
    "event_loop.py": "the farthest is 8: 666",
    "workflow.py": "the best degree, by futures: 1",
    "mixed_resources.py": "1003: 235",
    "sklearn_joblib.py": "20 trees of depth 8: 9",
}
RUN = """
import subprocess, sys
command = [sys.executable, "example.py", *{options!r}]
done = subprocess.run(command, capture_output=True, text=True)
print(done.stdout + done.stderr)
print("status", done.returncode)
import gridengine
print("best", type(gridengine.best_available()).__name__)
"""


DISPATCHER = "sweep_through_dispatcher.py"
THROUGH = """
import os, subprocess, sys
os.environ["GRIDENGINE_RUN_DIRECTORY"] = os.path.abspath("runs")
command = [sys.executable, "-m", "gridengine", "dispatcher"]
options = ["--scheduler", "slurm", "--max-workers", "2"]
subprocess.run([*command, "start", "walks", *options], check=True)
try:
    for _ in range(2):
        subprocess.run([sys.executable, "example.py", "walks"], check=True)
finally:
    subprocess.run([*command, "stop", "walks"], check=True)
"""


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PRINTED, DISPATCHER}


def test_the_example_of_a_dispatcher_runs_twice_with_the_same_results(slurm: Slurm) -> None:
    done = slurm.run(THROUGH, files={"example.py": (EXAMPLES / DISPATCHER).read_text()})
    lines = [line for line in done.stdout.splitlines() if line.startswith("rate ")]
    assert lines[:3] == lines[3:]
    assert lines[0].startswith("rate 0.01: mean square ")


@pytest.mark.parametrize("options", [["--scheduler", "slurm"], []], ids=["named", "best"])
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(slurm: Slurm, name: str, options: list[str]) -> None:
    done = slurm.run(
        RUN.format(options=options),
        files={"example.py": (EXAMPLES / name).read_text()},
        seconds=300,
    )
    assert PRINTED[name] in done.stdout
    assert "status 0\n" in done.stdout, done.stdout
    assert "best SlurmScheduler" in done.stdout
