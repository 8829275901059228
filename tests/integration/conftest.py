"""What several of these tests use."""

from __future__ import annotations

import sys
import tempfile
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from tests.support.script_driver import MakeScript, Script
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import kill_all
from tests.support.worker_driver import WorkerDriver

LOCAL_AND_TCP = pytest.mark.parametrize(
    "scheduler", [gridengine.ProcessScheduler, TcpScheduler], indirect=True, ids=["local", "tcp"]
)
"""Runs a test on workers of this machine, and on workers that connect."""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[MakeScript]:
    made: list[Script] = []
    temporary = tempfile.TemporaryDirectory()

    def make(source: str, *, folder: Path = tmp_path) -> Script:
        path = tmp_path / "script.py"
        path.write_text("import gridengine\n" + textwrap.dedent(source))
        made.append(
            Script([sys.executable, str(path)], folder, uuid.uuid4().hex, Path(temporary.name))
        )
        return made[-1]

    yield make
    for one in made:
        kill_all(one.processes)
    temporary.cleanup()


@pytest.fixture(scope="module")
def scheduler(request: pytest.FixtureRequest) -> Iterator[gridengine.Scheduler]:
    """Two workers that the tests of one file share: processes of this machine, unless the tests
    have the mark `LOCAL_AND_TCP`.
    """
    with getattr(request, "param", gridengine.ProcessScheduler)(2) as made:
        yield made


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[WorkerDriver]:
    """One worker process, and the socket that it connects to."""
    made = WorkerDriver(tmp_path)
    yield made
    made.close()
