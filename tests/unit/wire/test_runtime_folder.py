"""Where the sockets are by which a user's dispatchers are watched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.wire import connection_file
from gridengine.wire.connection_file import is_private, make_runtime_folder, runtime_folders

NOT_GIVEN = Path()


@pytest.fixture
def run_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of /; it has a folder for this user's sockets."""
    monkeypatch.setattr(connection_file, "Path", lambda path="": root(tmp_path, path))
    made = tmp_path / f"run/user/{os.getuid()}"
    made.mkdir(parents=True, mode=0o700)
    (tmp_path / "tmp").mkdir()
    return made


def root(folder: Path, path: str) -> Path:
    inside = not path or path.startswith(str(folder))
    return Path(path) if inside else folder / path.lstrip("/")


def test_the_folder_of_the_session_comes_first_and_that_below_tmp_last(
    run_user: Path, tmp_path: Path
) -> None:
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    last = tmp_path / f"tmp/gridengine-{os.getuid()}"
    said = {"XDG_RUNTIME_DIR": str(session)}
    assert list(runtime_folders(said, NOT_GIVEN)) == [
        session / "gridengine",
        run_user / "gridengine",
        last,
    ]
    said = {"XDG_RUNTIME_DIR": str(run_user)}
    assert list(runtime_folders(said, NOT_GIVEN)) == [run_user / "gridengine", last]


@pytest.mark.parametrize("said", ["", "relative", "/no/such/folder"])
def test_what_the_session_says_may_be_nothing(run_user: Path, said: str) -> None:
    first, _ = runtime_folders({"XDG_RUNTIME_DIR": said}, NOT_GIVEN)
    assert first == run_user / "gridengine"


def test_a_given_folder_is_the_only_one(run_user: Path, tmp_path: Path) -> None:
    assert list(runtime_folders({}, tmp_path / "mine")) == [tmp_path / "mine"]


def test_a_folder_is_private_when_nobody_else_may_enter_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    assert not is_private(folder)
    folder.mkdir(mode=0o700)
    assert is_private(folder)
    (tmp_path / "link").symlink_to(folder)
    assert not is_private(tmp_path / "link")
    (tmp_path / "file").touch(0o600)
    assert not is_private(tmp_path / "file")
    folder.chmod(0o710)
    assert not is_private(folder)
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not is_private(folder)


def test_the_folder_is_made_once(run_user: Path) -> None:
    for _ in range(2):
        assert make_runtime_folder({}, NOT_GIVEN) == run_user / "gridengine"
    assert (run_user / "gridengine").stat().st_mode & 0o777 == 0o700


def test_where_others_may_enter_the_first_the_next_is_taken(run_user: Path, tmp_path: Path) -> None:
    (run_user / "gridengine").mkdir(mode=0o755)
    last = tmp_path / f"tmp/gridengine-{os.getuid()}"
    assert make_runtime_folder({}, NOT_GIVEN) == last
    last.chmod(0o777)
    with pytest.raises(OSError, match="of this user's alone"):
        make_runtime_folder({}, NOT_GIVEN)


def test_a_given_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none/mine cannot be a folder of this user's alone"):
        make_runtime_folder({}, tmp_path / "none/mine")
