"""`gridengine up` for several runs at once, as the shell's `runs/*/` names them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gridengine
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, LaunchContext, Launcher, TryAgain
from gridengine.settings.values import settings
from tests.support.tcp_scheduler import TcpLauncher, TcpScheduler


class HelplessLauncher(TcpLauncher):
    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        raise TryAgain("the queue is full")


class HelplessScheduler(TcpScheduler):
    """Gets no workers by itself."""

    def launcher(self, run: LaunchContext) -> Launcher:
        return HelplessLauncher(run)


def test_all_that_are_under_way_get_workers_and_those_that_ended_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(runs))
    settings.cache_clear()
    ended = runs / "20261121-100000-node7-7-abcdef"
    (ended / "logs").mkdir(parents=True)
    runs.chmod(0o700)
    with (
        HelplessScheduler(1) as first,
        HelplessScheduler(1) as second,
        gridengine.Executor(scheduler=first) as one,
        gridengine.Executor(scheduler=second) as other,
    ):
        futures = [executor.submit(os.getppid) for executor in (one, other)]
        words = ["up", *map(str, sorted(runs.iterdir())), "-n", "1", "--scheduler", "processes"]
        adding = subprocess.Popen(
            [sys.executable, "-m", "gridengine", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        parents = {future.result(120) for future in futures}
    output, errors = adding.communicate(timeout=120)
    settings.cache_clear()
    assert len(parents) == 2
    assert adding.returncode == 0, errors
    assert errors == f"left out: {ended} has no connection.json: that run has ended\n"
    assert output.count("asked for") == 2
    assert output.count("ended: ") == 2
