"""Jobs whose functions leave something running."""

from __future__ import annotations

import io
import multiprocessing
from pathlib import Path

import pytest

import gridengine
from gridengine.worker import background_work
from tests.support.waiting import wait_until


def until_there(path: str) -> None:
    wait_until(Path(path).exists)


def leave_a_child(path: str) -> str:
    background_work.SAY_SECONDS = 0
    child = multiprocessing.get_context("fork").Process(
        target=until_there, args=(path,), name="Left"
    )
    child.start()
    return f"the process Left ({child.pid})"


@pytest.mark.promise
def test_a_job_says_for_which_children_it_waits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    go, printed = tmp_path / "go", io.StringIO()
    job = gridengine.Job(target=leave_a_child, args=(str(go),), name="train")
    job.start()

    def has_said() -> bool:
        printed.write(capfd.readouterr().err)
        return "before the function returns" in printed.getvalue()

    wait_until(has_said)
    assert job.is_alive()
    go.touch()
    left = job.result(60)
    assert f"job train waits for what its function left running: {left}" in printed.getvalue()
