"""The code of the pages runs as it stands, with what they leave to the reader, and processes of
this machine in the place of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.dispatchers import Shell
from tests.support.script_driver import ROOT, MakeScript

CODE = {
    page: code
    for page in ("README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")))
    if (code := re.findall(r"^```python\n(?!>>>)(.*?)^```", (ROOT / page).read_text(), re.M | re.S))
}
HELPERS = """
import functools, os

import gridengine

class Here(gridengine.ProcessScheduler):
    '''Takes and checks what a cluster's scheduler does.'''

    def __init__(self, kind=gridengine.GridEngineScheduler, **options):
        super().__init__(8, worker_resources=gridengine.Memory(120))
        self.meant = kind(**options)

    def dry_run(self, *resources):
        return self.meant.dry_run(*resources)

def stand_in():
    os.environ["GRIDENGINE_SCHEDULER"] = "processes"
    os.environ["GRIDENGINE_RUN_DIRECTORY"] = os.path.abspath("runs")
    # Said, it need not be asked for: a Grid Engine of this machine may be down for another test.
    os.environ["GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT"] = "smp"
    for kind in (gridengine.GridEngineScheduler, gridengine.SlurmScheduler):
        setattr(gridengine, kind.__name__, functools.partial(Here, kind))

def train(rate):
    return -rate

K, compute = 1, abs
simulate = abs

def look_up(table, number):
    return table[number % len(table)]

def summarise(tables, depth):
    return [table["tables"] for table in tables]

def cost(point):
    return (point ** 2).sum()
"""
LEFT_TO_THE_READER = """
import functools, itertools, math, os

import numpy, gridengine
from gridengine import Capacity, Cores, Memory, Token
from helpers import Here, cost, look_up, simulate, train

gridengine.map = functools.partial(gridengine.map, scheduler=Here())

rates, xs, bounds, other, depth = [0.1, 0.01], [1, -1], [(-1, 1)], [1, 2], 3
risky = math.sqrt
table, tables, parameters = numpy.arange(9.0), [other], rates

def fit(table, number):
    return number
numpy.save("table.npy", numpy.arange(1000.0))
executor = gridengine.Executor(max_workers=1)

def endless_parameters():
    return range(100)

def summarise(one, depth):
    return len(one["tables"]), depth

class Search:
    def fit(self, X, y):
        import joblib
        return joblib.Parallel()(joblib.delayed(abs)(x) for x in range(-9, 0))

search, X, y = Search(), None, None
"""
COMPLETE = [f"docs/{name}.md" for name in ("async", "delayed", "dispatcher", "graphs", "nested")]
"""Pages that leave nothing to the reader."""
WANTED = {
    "docs/async.md": "trio",
    "docs/graphs.md": "dask.array",
    "docs/joblib.md": "joblib",
    "docs/pool.md": "scipy.optimize",
}


RunPage: TypeAlias = Callable[[str], None]
DISPATCHER = "docs/dispatcher.md"


@pytest.fixture
def run_page(script: MakeScript, tmp_path: Path) -> RunPage:
    """Return what runs the code of a page."""

    def run(page: str) -> None:
        if page in WANTED:
            pytest.importorskip(
                WANTED[page], reason="one of the optional libraries of setup.cfg's third-parties"
            )
        (tmp_path / "helpers.py").write_text(HELPERS)
        left = "" if page in COMPLETE else LEFT_TO_THE_READER
        done = script("\n".join(["__import__('helpers').stand_in()", left, *CODE[page]])).run()
        assert (done.returncode, done.stderr) == (0, "")

    return run


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell, and scripts with the same run directory."""
    made = Shell(tmp_path)
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", made.environment["GRIDENGINE_RUN_DIRECTORY"])
    yield made
    made.kill_all()


def test_the_dispatcher_of_the_page_on_dispatchers_is_there(
    shell: Shell, run_page: RunPage
) -> None:
    shell.done("dispatcher", "start", "sweeps", "--scheduler", "processes", "--max-workers", "2")
    run_page(DISPATCHER)
    assert shell.status("sweeps")["done"] >= 4


@pytest.mark.parametrize("page", [page for page in CODE if page != DISPATCHER])
def test_the_code_of_a_page_runs(page: str, run_page: RunPage) -> None:
    run_page(page)
