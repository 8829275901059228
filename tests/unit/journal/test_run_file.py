"""The file of a run: names, payloads, and files that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.errors import JournalError
from gridengine.journal import run_file
from gridengine.journal.run_file import RunFile, open_run, path_of, payload_of, release


@pytest.mark.parametrize("name", ["", "a/b", "x" * 201, "a\0", "a\nb"])
def test_what_can_be_no_file_is_no_name(name: str) -> None:
    with pytest.raises(JournalError, match="is no name of a run"):
        path_of(name)


def test_a_folder_is_one_for_the_file(tmp_path: Path) -> None:
    assert path_of("a", tmp_path) == tmp_path / "a.sqlite"
    assert path_of("a", tmp_path / "b.db") == tmp_path / "b.db"


@pytest.mark.parametrize(
    "payload", [[b"\x80abc"], [b"\x80abc", b"", bytearray(100), memoryview(b"x" * 70_000)]]
)
def test_a_payload_is_read_as_it_was_written(payload: list[bytes]) -> None:
    blob = bytes(run_file._Blob(payload).__conform__(None))
    assert [bytes(one) for one in payload_of(blob)] == [bytes(one) for one in payload]


def test_where_there_is_no_folder_for_the_file_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"a.sqlite: No such file or directory") as caught:
        RunFile("a", tmp_path / "nosuch" / "a.sqlite")
    assert f"a folder {tmp_path}/nosuch in which" in str(caught.value.hint)


def test_those_of_one_process_share_a_run(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    first, second = (open_run("a", path, wait=False) for _ in range(2))
    assert first is second
    release(first)
    assert second.begin() == run_file.MOST_CALLS
    release(second)
    third = open_run("a", path, wait=False)
    assert third is not first
    release(third)


def test_a_file_that_is_refused_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sqlite"
    run_file.connect(path).close()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(JournalError, match="belongs to somebody else"):
        RunFile("a", path)
    monkeypatch.undo()
    RunFile("a", path).close()


def test_what_was_begun_and_never_written_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.touch()
    run = RunFile("a", path)
    run.begin()
    run.close()
    again = RunFile("a", path)
    assert again.session == 1
    again.close()
