"""Nothing is lost and nothing is given twice, whatever is killed, stopped, cut off or deleted
meanwhile: workers of a script, and stand-alone dispatchers with their clients and workers.

`make test-long` makes GRIDENGINE_CHAOS_CALLS calls at each place and prints its figures. Without
that variable each run is short.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import completed

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
SCRIPTS = {"maps": "chaos.py", "graphs": "chaos.py", "dispatchers": "dispatchers.py"}
MODULES = sorted(path.name for path in HERE.glob("*.py") if not path.name.startswith("test_"))
IMPORTED = [*(HERE / name for name in MODULES), SUPPORT / "tcp_scheduler.py"]
KINDS = pytest.mark.parametrize("kind", [*SCRIPTS])
CALLS = int(os.environ.get("GRIDENGINE_CHAOS_CALLS", "0"))
SEED = os.environ.get("GRIDENGINE_CHAOS_SEED", "1")
SHORT_CALLS = {"here": 1500, "agents": 1500, "grid_engine": 1000, "slurm": 1000}
SHORT_CALLS_OF_CLIENTS = 800
SHORT = ["--pace", "0.15", "--without", "frozen for longer than the lease"]
SETTINGS = {
    "GRIDENGINE_BEAT_SECONDS": "0.5",
    "GRIDENGINE_POLL_SECONDS": "0.5",
    "GRIDENGINE_CLIENT_GRACE": "10",  # longer than a client is stopped or cut off
}
SECONDS = 3000


def options(kind: str, place: str) -> list[str]:
    short = SHORT_CALLS_OF_CLIENTS if kind == "dispatchers" else SHORT_CALLS[place]
    chosen = [place] if kind == "dispatchers" else [kind, place]
    return [*chosen, "--calls", str(CALLS or short), "--seed", SEED, *([] if CALLS else SHORT)]


def environment(kind: str) -> dict[str, str]:
    # In the short form all that is cut off comes back in time, on a slow machine too; and so do
    # dispatchers that were killed.
    lease = "10" if CALLS and kind != "dispatchers" else "25"
    return {**SETTINGS, "GRIDENGINE_LEASE_SECONDS": lease}


def check(kind: str, place: str, output: str) -> None:
    figures = json.loads(output.splitlines()[-1])
    print(
        f"\n{kind}, {place}, seed {SEED}",
        *(f"  {name}: {figure}" for name, figure in figures.items()),
        sep="\n",
    )
    assert figures["injected"] > 10
    wanted = {"lost": 0, "duplicated": 0, "wrong": 0, "processes left": 0}
    assert {name: figures[name] for name in wanted} == wanted, figures


@KINDS
@pytest.mark.parametrize("place", ["here", "agents"])
def test_on_this_machine_each_result_is_there_and_right_and_once(
    place: str, kind: str, tmp_path: Path
) -> None:
    path = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
    variables = {
        **os.environ,
        **environment(kind),
        "PYTHONPATH": path,
        "GRIDENGINE_RUN_DIRECTORY": str(tmp_path / "runs"),
    }
    command = [sys.executable, str(HERE / SCRIPTS[kind]), *options(kind, place)]
    done = completed(command, env=variables, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    check(kind, place, done.stdout)
    assert not [path.name for path in tmp_path.iterdir() if path.name != "runs"]


@KINDS
def test_on_a_cluster_each_result_is_there_and_right_and_once(kind: str, cluster: Cluster) -> None:
    files = {path.name: path.read_text() for path in IMPORTED}
    script = (
        f"import sys\nsys.argv[1:] = {options(kind, cluster.name)!r}\nimport "
        f"runpy\nrunpy.run_path({SCRIPTS[kind]!r}, run_name='__main__')\n"
    )
    done = cluster.run(script, files=files, environment=environment(kind), seconds=SECONDS)
    check(kind, cluster.name, done.stdout)
