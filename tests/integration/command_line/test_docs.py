"""The code of the pages runs as it stands: each block of README as a file in an empty folder, and
those of another page one after the other. Nothing is added. Processes of this machine take the
place of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.dispatchers import Shell
from tests.support.script_driver import ROOT, MakeScript

BLOCK = re.compile(r"^```python\n(?!>>>)(.*?)^```", re.MULTILINE | re.DOTALL)
README = BLOCK.findall((ROOT / "README.md").read_text())
CODE = {
    f"docs/{path.name}": "\n".join(blocks)
    for path in sorted(ROOT.glob("docs/*.md"))
    if (blocks := BLOCK.findall(path.read_text()))
}
STAND_IN = """
import sys

if sys.orig_argv[1:] == [{script!r}]:  # no worker
    import functools

    import gridengine

    class Here(gridengine.ProcessScheduler):
        '''Takes and checks what a cluster's scheduler does.'''

        def __init__(self, kind, **options):
            super().__init__(8, worker_resources=gridengine.Memory(120))
            self.meant = kind(**options)

        def dry_run(self, *resources):
            return self.meant.dry_run(*resources)

    from gridengine.schedulers.registry import BATCH_SYSTEMS

    for kind in [entry.scheduler_class() for entry in BATCH_SYSTEMS]:
        setattr(gridengine, kind.__name__, functools.partial(Here, kind))
    large = gridengine.ProcessScheduler(8, worker_resources=gridengine.Memory(120))
    gridengine.map = functools.partial(gridengine.map, scheduler=large)
"""
"""What Python runs before a script."""
WANTED = {
    "docs/async.md": "trio",
    "docs/graphs.md": "dask.array",
    "docs/joblib.md": "joblib",
    "docs/neighbours.md": "emcee",
    "docs/pool.md": "scipy.optimize",
    "docs/random.md": "numpy",
    "docs/scientific-libraries.md": "sklearn",
    "docs/sharing.md": "numpy",
}


Run: TypeAlias = Callable[..., None]
DISPATCHER = "docs/dispatcher.md"


@pytest.fixture
def run(
    script: MakeScript, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Return what runs code as the only file of a folder; with `on_cluster` this machine stands in
    for one.
    """
    monkeypatch.setenv("GRIDENGINE_SCHEDULER", "processes")
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path_factory.mktemp("runs")))
    # Said, it need not be asked for: a Grid Engine of this machine may be down for another test.
    monkeypatch.setenv("GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT", "smp")

    def run(code: str, *, on_cluster: bool = True) -> None:
        made = script("")
        path = Path(made.command[-1])
        path.write_text(code)
        if on_cluster:
            before = tmp_path_factory.mktemp("before")
            (before / "sitecustomize.py").write_text(STAND_IN.format(script=str(path)))
            monkeypatch.setenv("PYTHONPATH", str(before))
        done = made.run()
        assert (done.returncode, done.stderr) == (0, "")

    return run


@pytest.fixture
def run_page(run: Run) -> Run:
    """Return what runs the code of a page."""

    def run_page(page: str) -> None:
        if page in WANTED:
            pytest.importorskip(
                WANTED[page], reason="one of the optional libraries of setup.cfg's third-parties"
            )
        run(CODE[page])

    return run_page


@pytest.fixture
def shell(
    tmp_path_factory: pytest.TempPathFactory, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """A shell, and scripts with the same run directory."""
    made = Shell(tmp_path_factory.mktemp("shell"))
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", made.environment["GRIDENGINE_RUN_DIRECTORY"])
    yield made
    made.kill_all()


def test_the_dispatcher_of_the_page_on_dispatchers_is_there(shell: Shell, run_page: Run) -> None:
    shell.done("dispatcher", "start", "sweeps", "--scheduler", "processes", "--max-workers", "2")
    run_page(DISPATCHER)
    assert shell.status("sweeps")["done"] >= 4


@pytest.mark.parametrize("page", [page for page in CODE if page != DISPATCHER])
def test_the_code_of_a_page_runs(page: str, run_page: Run) -> None:
    run_page(page)


@pytest.mark.parametrize("number", range(len(README)))
def test_each_block_of_readme_runs_as_it_is_in_an_empty_folder(number: int, run: Run) -> None:
    run(README[number], on_cluster="GridEngineScheduler" in README[number])
