"""Which calls of a run a dispatcher was handed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.journal.handed_calls import (
    HandedCalls,
    forget_handed,
    handed_calls,
    handed_to,
    origin,
    places_of,
)
from gridengine.journal.run_file import RunFile


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
