"""The examples run as they stand, with no change but the scheduler."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gridengine
from tests.support.processes import completed

ROOT = Path(gridengine.__file__).parents[1]
EXAMPLES = Path(__file__).parents[3] / "examples"


def start_example(
    name: str, scheduler: str, folder: Path, *arguments: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run an example from another folder."""
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(EXAMPLES / name), "--scheduler", scheduler, *arguments]
    return completed(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": search, "GRIDENGINE_PROGRESS": "no"},
        timeout=300,
        **options,
    )


def run_example(name: str, scheduler: str, folder: Path, *arguments: str) -> str:
    """Run an example and return what it prints. It may be warned of limits that cannot be kept."""
    run = start_example(name, scheduler, folder, *arguments)
    warned = scheduler == "inline"
    lines = run.stderr.splitlines()
    others = [one for one in lines if not (warned and one.startswith("InlineScheduler does not"))]
    assert (run.returncode, others) == (0, [])
    return run.stdout


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if path.name not in tested] == []


def test_the_sweep_through_a_dispatcher_takes_its_results_the_second_time(tmp_path: Path) -> None:
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, EXAMPLES / "sweep_through_dispatcher.py", "--journal", tmp_path]
    first, second = (
        completed(
            command,
            env={**os.environ, "PYTHONPATH": search, "GRIDENGINE_PROGRESS": "no"},
            timeout=300,
            check=True,
        )
        for _ in range(2)
    )
    assert first.stdout.startswith("rate 0.01: mean square ")
    assert (second.stdout, second.stderr) == (first.stdout, "")
    run = gridengine.run_named("walks", journal=tmp_path)
    assert (run.done, run.failed, run.left) == (60, 0, 0)


PRINTED = {
    "square.py": ["the sum of all 1000: 332833500"],
    "process_like.py": [
        "finds pi to be 3.1",
        "quitter ended with exit code 3, having printed: nothing",
    ],
    "sweep.py": [
        "rate 0.1: y = 3.000 x + -1.000",
        "rate 3.0: at rate 3.0 the loss had grown without bound",
        "fit_0.1_0.9: loss",
    ],
    "executor.py": ["94^3 + 64^3 = 1092728, and 103^3 = 1092727", "done, cancelled or killed"],
    "event_loop.py": ["farther than 150: [3, 8, 21, 22, 26]", "the farthest is 8: 666"],
    "workflow.py --form futures": ["the best degree, by futures: 1\n"],
    "workflow.py --form delayed": ["the best degree, by delayed: 1\n"],
    "workflow.py --form program": ["the best degree, by program: 1\n"],
    "mixed_resources.py": ["on Cores(2, [", "1003: 235"],
}


@pytest.mark.parametrize("scheduler", ["processes", "inline"])
@pytest.mark.parametrize("example", PRINTED)
def test_an_example_prints_its_expected_output(
    example: str, scheduler: str, tmp_path: Path
) -> None:
    name, *arguments = example.split()
    printed = run_example(name, scheduler, tmp_path, *arguments)
    assert [words for words in PRINTED[example] if words not in printed] == []


def test_the_census_of_the_standard_library_equals_the_serial_one(tmp_path: Path) -> None:
    printed = run_example("stdlib_census.py", "processes", tmp_path)
    assert "the mapped census equals the serial one" in printed


def test_mixed_resources_names_the_core_that_a_small_machine_lacks(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    restrict = functools.partial(os.sched_setaffinity, 0, [core])
    run = start_example("mixed_resources.py", "processes", tmp_path, preexec_fn=restrict)
    assert run.returncode == 1
    assert run.stderr.startswith("the sums of this example cannot run here: no worker can ever ")
    assert "Cores(2)" in run.stderr
    assert "Traceback" not in run.stderr


def test_sklearn_joblib(tmp_path: Path) -> None:
    pytest.importorskip(
        "sklearn", reason="one of the optional libraries of setup.cfg's third-parties"
    )
    assert "20 trees of depth 8: 9" in run_example("sklearn_joblib.py", "processes", tmp_path)
