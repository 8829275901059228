"""What is said of the runs that there are on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.api.named_runs import run_named
from gridengine.errors import JournalError
from gridengine.journal import kept_runs
from gridengine.journal.run_file import RunFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a run that is over."""
    run = RunFile("run", tmp_path / "run.sqlite")
    run.begin()
    run.close()
    run.writer.close()
    return run.path


def test_a_run_is_told_of_whose_log_goes_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = path.with_name(f"{path.name}-wal")
    monkeypatch.setattr(kept_runs, "files", lambda path: [path, gone])
    found = kept_runs.summary(path)
    assert (found.error, found.size) == ("", path.stat().st_size)


def test_a_run_that_was_forgotten_meanwhile_is_told_so(path: Path) -> None:
    found = run_named("run", journal=path)
    kept_runs.forget(path)
    with pytest.raises(JournalError, match="the run 'run' cannot be read"):
        found.results()
    assert not path.exists()
