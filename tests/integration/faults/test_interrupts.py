"""A first Ctrl-C ends a script, wherever its main thread is."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.support.processes import completed


@pytest.mark.parametrize(
    ("way", "workers"),
    [
        *(("map", workers) for workers in ("processes", "tcp", "commands", "client")),
        *(("imap", workers) for workers in ("processes", "client")),
        *(("executor", workers) for workers in ("processes", "client")),
    ],
)
def test_a_ctrl_c_at_any_point_of_a_call_ends_it_and_leaves_nothing(way: str, workers: str) -> None:
    environment = {**os.environ, "GRIDENGINE_PROGRESS": "no"}
    command = [sys.executable, "-m", "tests.support.interrupted_at", way, workers]
    done = completed(command, env=environment, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["points"] > 30
    assert told["faults"] == []
