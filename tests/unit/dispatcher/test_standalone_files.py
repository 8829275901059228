"""Where a stand-alone dispatcher's files are, by its name or by their path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.dispatcher import standalone_files
from gridengine.dispatcher.standalone_files import CLIENT, client_file, folder_of
from gridengine.errors import ConfigurationError
from gridengine.settings.values import Settings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the dispatcher `sweeps`, with its file for clients."""
    settings = Settings(run_directory=tmp_path)
    monkeypatch.setattr(standalone_files, "settings", lambda: settings)
    folder = folder_of("sweeps", settings)
    folder.mkdir(parents=True)
    (folder / CLIENT).touch()
    return folder


def test_it_is_found_by_name_by_its_folder_and_by_its_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = folder / CLIENT
    assert client_file("sweeps") == expected
    assert client_file(str(folder)) == expected
    assert client_file(str(expected)) == expected
    monkeypatch.chdir(folder)
    assert client_file(f".{os.sep}{CLIENT}") == Path(CLIENT)


def test_another_file_is_taken_as_it_is(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "copied.json"
    other.touch()
    assert client_file(str(other)) == other


@pytest.mark.parametrize("form", ["nights", "{}/nights", "{}/nights/client.json"])
def test_one_that_does_not_run_is_told_with_its_name(folder: Path, form: str) -> None:
    given = form.format(folder.parent)
    (folder.parent / "nights").mkdir()
    with pytest.raises(ConfigurationError, match="there is no ") as raised:
        client_file(given)
    assert given in str(raised.value)
    assert raised.value.hint == "start one: gridengine dispatcher start nights"
