"""A first Ctrl-C ends a script, wherever its main thread is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import completed

SCRIPT = Path(__file__).parents[2] / "support" / "interrupted_at.py"


@pytest.mark.parametrize("way", ["map", "imap", "executor"])
def test_a_ctrl_c_at_any_point_of_a_call_ends_it_and_leaves_nothing(way: str) -> None:
    environment = {**os.environ, "GRIDENGINE_PROGRESS": "no"}
    done = completed([sys.executable, SCRIPT, way], env=environment, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["points"] > 30
    assert told["faults"] == []
