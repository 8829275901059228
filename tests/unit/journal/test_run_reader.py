"""What is said of the runs that there are on disk."""

from __future__ import annotations

import marshal
import pickle
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gridengine.api.named_runs import run_named
from gridengine.errors import JournalError, VersionMismatch
from gridengine.journal import run_reader
from gridengine.journal.call_keys import FunctionKey
from gridengine.journal.handed_calls import (
    HandedCalls,
    forget_handed,
    handed_calls,
    handed_to,
    origin,
    places_of,
)
from gridengine.journal.run_file import RunFile, StoredBlock
from gridengine.serialize import classes
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
    monkeypatch.setattr(run_reader, "files", lambda path: [path, gone])
    found = run_reader.summary(path)
    assert (found.error, found.size) == ("", path.stat().st_size)


def test_a_run_that_was_forgotten_meanwhile_is_told_so(path: Path) -> None:
    found = run_named("run", journal=path)
    run_reader.forget(path)
    with pytest.raises(JournalError, match="the run 'run' cannot be read"):
        found.results()
    assert not path.exists()


class OfTheScript:
    """Pickled as what a call returned, whose class came with the function."""

    def __reduce__(self) -> Any:
        return classes.find_class, (b"unknown" * 2 + b"..", "Made")


class OldCode:
    """Pickled as a function was before its code said of which Python it is."""

    def __reduce__(self) -> Any:
        return marshal.loads, (marshal.dumps(run_reader.find.__code__),)


def fail_to_load() -> NoReturn:
    pytest.fail("it was loaded")


class NotToBeLoaded:
    def __reduce__(self) -> Any:
        return fail_to_load, ()


@pytest.fixture
def kept_by_python_2(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Keep one call in the run, and what it returned, as another Python does."""

    def keep(result: Any) -> None:
        with monkeypatch.context() as other:
            other.setattr(platform, "python_version", lambda: "2.7.18")
            run = RunFile("run", path)
            run.begin()
            code = [pickle.dumps(NotToBeLoaded())]
            number = run.function(FunctionKey("f", b"1" * 16, {}), code)
            block = run.add_block(StoredBlock(number, SINGLE, 1, b"1" * 16, None), code)
            run.add_order(0, block, 0, 1)
            if result is not None:
                run.add_result((block, 0, 1, 0), [pickle.dumps([result])], None, raised=False)
            run.close()

    return keep


def test_results_of_another_python_that_need_no_code_are_read(
    path: Path, kept_by_python_2: Callable[[Any], None]
) -> None:
    kept_by_python_2(("plain", 1))
    assert run_named("run", journal=path).results() == [("plain", 1)]


@pytest.mark.parametrize("result", [OfTheScript(), OldCode()], ids=["class", "old format"])
def test_results_of_another_python_that_need_its_code_are_refused_in_words(
    path: Path,
    kept_by_python_2: Callable[[Any], None],
    result: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept_by_python_2(result)
    monkeypatch.setattr(marshal, "loads", lambda code: "what it crashes of")
    run = run_named("run", journal=path)
    here = platform.python_version()
    with pytest.raises(VersionMismatch, match=rf"f was stored by Python 2\.7\.18, .* {here}"):
        run.results()
    assert run_named("run", journal=path).done == 1


def test_calls_of_another_python_are_not_made_again_by_this_one(
    path: Path, kept_by_python_2: Callable[[Any], None]
) -> None:
    kept_by_python_2(None)
    with pytest.raises(VersionMismatch, match=r"use Python 2\.7; or run the script again"):
        run_named("run", journal=path).resubmit()


# ---------------------------------------------------------------- handed calls


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RunFile]:
    file = RunFile("a", tmp_path / "a.sqlite")
    yield file
    file.close()


def test_a_run_is_known_by_one_name_that_no_other_has(file: RunFile, tmp_path: Path) -> None:
    name = origin(file)
    assert name.startswith("a/")
    assert origin(file) == name
    other = RunFile("a", tmp_path / "b.sqlite")
    assert origin(other) != name
    other.close()


def test_the_calls_of_one_dispatcher_are_found_and_forgotten_without_the_others(
    file: RunFile,
) -> None:
    origin(file)
    file.add_handed((7, 0, 4, 1, 10), "one")
    file.add_handed((7, 4, 6, 2, 0), "one")
    file.add_handed((8, 0, 1, 3, 0), "other")
    assert file.writer.flush()
    assert handed_calls(file, "one") == {7: [(7, 0, 4, 1, 10), (7, 4, 6, 2, 0)]}
    assert handed_to("a", file.path) == {"one", "other"}
    forget_handed(file, "one")
    assert file.writer.flush()
    assert handed_calls(file, "one") == {}
    assert handed_to("a", file.path) == {"other"}
    forget_handed(file, "other")
    assert file.writer.flush()
    assert not handed_to("a", file.path)


def test_a_run_that_no_dispatcher_had_or_that_cannot_be_read_handed_to_none(
    file: RunFile, tmp_path: Path
) -> None:
    assert not handed_to("a", file.path)  # there is no file yet
    file.begin()
    assert file.writer.flush()
    assert not handed_to("a", file.path)
    (tmp_path / "b.sqlite").write_bytes(b"no database" * 100)
    assert not handed_to("b", tmp_path / "b.sqlite")
    (tmp_path / "c.sqlite").mkdir()
    assert not handed_to("c", tmp_path / "c.sqlite")


HANDED = [HandedCalls(7, 0, 4, 1, 10), HandedCalls(7, 6, 8, 2, 0)]


@pytest.mark.parametrize(
    ("start", "stop", "places"),
    [
        (0, 4, [(1, 10, 14, 0)]),
        (2, 3, [(1, 12, 13, 0)]),
        (3, 8, [(1, 13, 14, 0), (2, 0, 2, 3)]),
        (4, 6, []),
        (5, 7, [(2, 0, 1, 1)]),
        (8, 9, []),
        (2, 2, []),
    ],
)
def test_an_outcome_belongs_where_its_calls_came_from(
    start: int, stop: int, places: list[tuple[int, int, int, int]]
) -> None:
    assert list(places_of(HANDED, start, stop)) == places
