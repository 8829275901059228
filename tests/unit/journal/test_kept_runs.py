"""What is said of the runs that there are on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.api.named_runs import run_named
from gridengine.errors import JournalError
from gridengine.journal import kept_runs
from gridengine.journal.run_file import RunFile


def test_a_run_is_told_of_whose_log_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.sqlite"
    run = RunFile("run", path)
    run.begin()
    run.close()
    run.writer.close()
    gone = path.with_name(f"{path.name}-wal")
    monkeypatch.setattr(kept_runs, "files", lambda path: [path, gone])
    found = kept_runs.summary(path)
    assert (found.error, found.size) == ("", path.stat().st_size)


def test_a_run_that_was_forgotten_meanwhile_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    run = RunFile("run", path)
    run.begin()
    run.close()
    found = run_named("run", journal=path)
    kept_runs.forget(path)
    with pytest.raises(JournalError, match="the run 'run' cannot be read"):
        found.results()
    assert not path.exists()
