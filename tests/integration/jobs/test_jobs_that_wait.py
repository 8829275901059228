"""Jobs whose functions leave something running."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

import gridengine
from gridengine.worker import background_work
from tests.support.waiting import wait_until


def until_there(path: str) -> None:
    wait_until(Path(path).exists)


def leave_a_child(path: str, said: str) -> str:
    tell = background_work._tell

    def tell_and_note(what: str) -> None:
        tell(what)
        Path(said).touch()

    background_work.SAY_SECONDS, background_work._tell = 0, tell_and_note
    child = multiprocessing.get_context("fork").Process(
        target=until_there, args=(path,), name="Left"
    )
    child.start()
    return f"the process Left ({child.pid})"


@pytest.mark.promise
def test_a_job_says_for_which_children_it_waits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    go, said = tmp_path / "go", tmp_path / "said"
    job = gridengine.Job(target=leave_a_child, args=(str(go), str(said)), name="train")
    job.start()
    wait_until(said.exists)
    assert job.is_alive()
    go.touch()
    left = job.result(60)
    printed = capfd.readouterr().err
    told = f"job train waits for processes or threads that its function left running: {left}"
    assert told in printed
    assert "before the function returns" in printed
