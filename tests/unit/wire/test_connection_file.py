"""The connection file and private folders: nobody else may read them, and nothing else is taken for
one.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gridengine._version import __version__
from gridengine.errors import ConfigurationError, VersionMismatch
from gridengine.wire import connection_file
from gridengine.wire.connection_file import (
    ClientConnection,
    Connection,
    blocked_runtime_folder,
    is_private,
    make_private_folder,
    make_runtime_folder,
    runtime_folders,
    why_unreachable,
    write_private,
)

CONNECTION = Connection(
    run_id="run",
    addresses=("tcp://10.0.0.7:4242", "tcp://192.168.0.7:4242"),
    slots=4,
    version="0.1.0",
    python="3.11",
    beat_seconds=2.0,
    lease_seconds=60.0,
    start_seconds=30.0,
    grace_seconds=5.0,
    output_bytes=1000,
    server_key="k" * 40,
    worker_public="p" * 40,
    worker_secret="s" * 40,
)


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=["umask-000", "umask-022", "umask-777"])
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """A umask, once there is a folder to write to: with 777 nobody but root could write into one
    made after.
    """
    assert tmp_path.is_dir()
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_connection_is_read_as_it_was_saved(tmp_path: Path) -> None:
    CONNECTION.save(tmp_path / "connection")
    assert Connection.load(tmp_path / "connection") == CONNECTION


@pytest.mark.usefixtures("umask")
def test_private_files_and_folders_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    write_private(tmp_path / "file", b"secret")
    assert mode(tmp_path / "file") == 0o600
    assert mode(make_private_folder(tmp_path / "folder")) == 0o700


def test_folders_above_a_private_one_are_made(tmp_path: Path) -> None:
    assert make_private_folder(tmp_path / "a" / "b" / "c").is_dir()


def test_a_private_file_replaces_nothing_and_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("older")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            write_private(tmp_path / name, b"newer")
    assert (tmp_path / "file").read_text() == "older"
    assert not (tmp_path / "elsewhere").exists()


def test_a_private_file_that_cannot_be_written_whole_is_removed(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_private(tmp_path / "file", "not bytes")  # type: ignore[arg-type]
    assert not (tmp_path / "file").exists()


def test_a_private_folder_that_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        make_private_folder(tmp_path)


def test_a_folder_that_cannot_be_made_is_named_with_the_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError) as caught:
        make_private_folder(tmp_path / "file" / "folder")
    assert str(tmp_path / "file" / "folder") in str(caught.value)
    assert "GRIDENGINE_RUN_DIRECTORY" in str(caught.value)


@pytest.mark.parametrize("open_mode", [0o640, 0o604, 0o620, 0o601])
def test_a_connection_file_that_is_open_to_others_is_refused(
    tmp_path: Path, open_mode: int
) -> None:
    CONNECTION.save(tmp_path / "connection")
    (tmp_path / "connection").chmod(open_mode)
    with pytest.raises(ConfigurationError, match="mode 0600"):
        Connection.load(tmp_path / "connection")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file to another user")
def test_a_connection_file_of_another_user_is_refused(tmp_path: Path) -> None:
    CONNECTION.save(tmp_path / "connection")
    os.chown(tmp_path / "connection", 65534, 65534)
    with pytest.raises(ConfigurationError, match="must belong to this user"):
        Connection.load(tmp_path / "connection")


CONTENT = {
    "no file": None,
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b"\xff\xfe\xfd",
    "a list": b"[]",
    "no addresses": b"{}",
    "addresses that are none": b'{"addresses": 3}',
    "a field too few": b'{"addresses": []}',
    "a field too many": json.dumps(
        {**dict.fromkeys(Connection.__slots__, 1), "addresses": [], "more": 1}
    ).encode(),
}


@pytest.mark.parametrize("content", CONTENT.values(), ids=CONTENT.keys())
def test_a_file_that_is_no_connection_file_is_named_in_the_error(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        write_private(tmp_path / "connection", content)
    with pytest.raises(ConfigurationError, match=str(tmp_path / "connection")):
        Connection.load(tmp_path / "connection")


# ---------------------------------------------------------------- runtime folder


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
def test_an_unusable_session_folder_is_passed_over(run_user: Path, said: str) -> None:
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


def test_an_open_folder_is_passed_over(run_user: Path, tmp_path: Path) -> None:
    (run_user / "gridengine").mkdir(mode=0o755)
    last = tmp_path / f"tmp/gridengine-{os.getuid()}"
    assert make_runtime_folder({}, NOT_GIVEN) == last
    last.chmod(0o777)
    with pytest.raises(OSError, match="of this user's alone"):
        make_runtime_folder({}, NOT_GIVEN)


@pytest.mark.parametrize("kind", ["file", "link", "open"])
def test_an_obstacle_to_the_last_folder_is_named_with_a_remedy(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "mine"
    assert blocked_runtime_folder({}, folder) == ""
    if kind == "link":
        folder.symlink_to("nowhere")
    elif kind == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o755)
    words = blocked_runtime_folder({}, folder)
    assert words.startswith(f"{folder} is there, and is not a folder of this user's alone")
    assert "remove it, or name another folder by the setting watch_directory" in words
    with pytest.raises(FileExistsError, match="remove it"):
        make_runtime_folder({}, folder)


def test_a_blocked_folder_is_no_matter_where_there_is_another(
    run_user: Path, tmp_path: Path
) -> None:
    (tmp_path / f"tmp/gridengine-{os.getuid()}").touch()
    assert f"gridengine-{os.getuid()} is there" in blocked_runtime_folder({}, NOT_GIVEN)
    make_runtime_folder({}, NOT_GIVEN)
    assert blocked_runtime_folder({}, NOT_GIVEN) == ""


def test_a_given_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none/mine cannot be a folder of this user's alone"):
        make_runtime_folder({}, tmp_path / "none/mine")


def test_a_unix_socket_is_reached_while_a_process_listens_at_it(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/sweeps.tunnel"
    assert why_unreachable(address, 1.0) == "No such file or directory"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/sweeps.tunnel")
        listener.listen()
        assert why_unreachable(address, 1.0) == ""
    assert why_unreachable(address, 1.0) == "Connection refused"


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("ipc:///run/sweeps.tunnel", "gridengine dispatcher connect sweeps"),
        ("tcp://10.0.0.7:4242", "gridengine dispatcher list"),
    ],
)
def test_a_client_without_an_answer_is_told_a_remedy(address: str, hint: str) -> None:
    file = ClientConnection("sweeps", (address,), "0.1.0", "login1", 1, 2.0, "k", "p", "s")
    assert hint in file.hint


def written(path: Path, **changed: object) -> Path:
    facts = msgspec.to_builtins(CONNECTION) | {"version": __version__} | changed
    content = {name: value for name, value in facts.items() if value is not None}
    write_private(path, msgspec.json.encode(content))
    return path


def test_a_field_of_a_newer_version_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "newer", version="9.9", invented=[1])
    assert Connection.load(path).version == "9.9"


def test_a_file_of_another_version_without_a_field_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(VersionMismatch, match=f"is of gridengine 0.0.1, and this is {__version__}"):
        Connection.load(written(tmp_path / "older", version="0.0.1", slots=None))
    with pytest.raises(ConfigurationError, match="is not a connection file") as caught:
        Connection.load(written(tmp_path / "damaged", slots=None))
    assert not isinstance(caught.value, VersionMismatch)
