"""What is said of the runs that there are on disk."""

from __future__ import annotations

import pickle
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridengine.api.named_runs import run_named
from gridengine.errors import JournalError, VersionMismatch
from gridengine.journal import stored_runs
from gridengine.journal.call_keys import FunctionKey
from gridengine.journal.run_file import Block, RunFile
from gridengine.serialize import classes, pickling
from gridengine.serialize.payload import SINGLE


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
    monkeypatch.setattr(stored_runs, "files", lambda path: [path, gone])
    found = stored_runs.summary(path)
    assert (found.error, found.size) == ("", path.stat().st_size)


def test_a_run_that_was_forgotten_meanwhile_is_told_so(path: Path) -> None:
    found = run_named("run", journal=path)
    stored_runs.forget(path)
    with pytest.raises(JournalError, match="the run 'run' cannot be read"):
        found.results()
    assert not path.exists()


class OfTheScript:
    """Pickled as what a call returned, whose class came with the function."""

    def __reduce__(self) -> Any:
        return classes.find_class, (b"unknown" * 2 + b"..", "Made")


@pytest.fixture
def kept_by_python_2(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Keep one call in the run, and what it returned, as another Python does."""

    def keep(result: Any) -> None:
        with monkeypatch.context() as other:
            other.setattr(platform, "python_version", lambda: "2.7.18")
            run = RunFile("run", path)
            run.begin()
            number = run.function(FunctionKey("f", b"1" * 16, {}), [pickle.dumps(len)])
            block = run.add_block(Block(number, SINGLE, 1, b"1" * 16, None), [pickle.dumps([1])])
            run.add_order(0, block, 0, 1)
            if result is not None:
                run.add_result((block, 0, 1, 0), [pickle.dumps([result])], None, raised=False)
            run.close()
        monkeypatch.setattr(pickling, "load_function", pytest.fail)

    return keep


def test_results_of_another_python_that_need_no_code_are_read(
    path: Path, kept_by_python_2: Callable[[Any], None]
) -> None:
    kept_by_python_2(("plain", 1))
    assert run_named("run", journal=path).results() == [("plain", 1)]


def test_results_of_another_python_that_need_its_code_are_refused_in_words(
    path: Path, kept_by_python_2: Callable[[Any], None]
) -> None:
    kept_by_python_2(OfTheScript())
    run = run_named("run", journal=path)
    here = platform.python_version()
    with pytest.raises(VersionMismatch, match=rf"f was kept by Python 2\.7\.18, .* {here}"):
        run.results()
    assert run_named("run", journal=path).done == 1


def test_calls_of_another_python_are_not_made_again_by_this_one(
    path: Path, kept_by_python_2: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_by_python_2(None)
    monkeypatch.setattr(pickling, "load", pytest.fail)
    with pytest.raises(VersionMismatch, match=r"use Python 2\.7; or run the script again"):
        run_named("run", journal=path).resubmit()
