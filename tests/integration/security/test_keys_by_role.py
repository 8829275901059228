"""What the keys of a stand-alone dispatcher open: each role's its own door, and no other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import gridengine
from gridengine.client.connect import dispatcher_of
from gridengine.dispatcher.remote import RemoteDispatcher
from gridengine.errors import ConfigurationError
from gridengine.wire.client import Client as Peer
from gridengine.wire.connection_file import (
    ClientConnection,
    Connection,
    load_private,
    replace_private,
    to_json,
)
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The folder of a dispatcher."""
    with gridengine.LocalDispatcher(2) as dispatcher:
        yield Path(dispatcher.address).parent


@pytest.fixture
def soon_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientConnection, "lease_seconds", 1.0)


def client_of(folder: Path) -> ClientConnection:
    return load_private(folder / "client.json", ClientConnection)


def worker_of(folder: Path) -> Connection:
    return msgspec.structs.replace(Connection.load(folder / "worker.json"), lease_seconds=1.0)


def test_the_files_of_all_roles_are_closed_to_others(folder: Path) -> None:
    names = {"client.json", "server.json", "watcher.json", "worker.json"}
    modes = {name: (folder / name).stat().st_mode & 0o777 for name in names}
    assert set(modes.values()) == {0o600}, modes
    assert folder.stat().st_mode & 0o777 == 0o700


def test_each_role_has_keys_of_its_own_and_none_has_a_server_s(folder: Path) -> None:
    secrets = {
        name: (folder / f"{name}.json").read_text() for name in ("client", "watcher", "worker")
    }
    client, worker = client_of(folder), worker_of(folder)
    watcher = load_private(folder / "watcher.json", ClientConnection)
    own = {client.client_secret, watcher.client_secret, worker.worker_secret}
    assert len(own) == 3
    for text in secrets.values():
        assert sum(secret in text for secret in own) == 1
    kept = msgspec.json.decode((folder / "server.json").read_bytes())
    for of in ("workers", "clients"):
        assert not any(kept[of]["secret"] in text for text in secrets.values())


@pytest.mark.usefixtures("soon_given_up")
def test_a_workers_key_does_not_open_the_clients_door(folder: Path, tmp_path: Path) -> None:
    public, secret = worker_of(folder).pair
    forged = msgspec.structs.replace(client_of(folder), client_public=public, client_secret=secret)
    replace_private(tmp_path / "client.json", to_json(forged))
    with pytest.raises(ConfigurationError, match="gets no answer"):
        RemoteDispatcher(tmp_path / "client.json")


@pytest.mark.parametrize("role", ["client", "watcher"])
def test_a_clients_or_watchers_key_does_not_open_the_workers_door(folder: Path, role: str) -> None:
    public, secret = load_private(folder / f"{role}.json", ClientConnection).pair
    forged = msgspec.structs.replace(worker_of(folder), worker_public=public, worker_secret=secret)
    with pytest.raises(ConfigurationError, match="gets no answer"):
        Peer(forged)


def test_a_watcher_is_told_how_it_is_and_may_do_nothing(folder: Path) -> None:
    with contextlib.closing(RemoteDispatcher(folder / "watcher.json")) as watcher:
        assert watcher.control("describe")["pid"]
        with pytest.raises(ConfigurationError):
            watcher.control("stop", {"now": True})
    with gridengine.Client(str(folder / "client.json")) as client:
        assert client.map(abs, [-1]) == [1]


def test_a_client_ends_no_call_of_another_by_guessing_its_number(
    folder: Path, tmp_path: Path
) -> None:
    def wait_for(begun: str, go_on: str) -> str:
        Path(begun).touch()
        while not Path(go_on).exists():
            time.sleep(0.01)
        return "ended"

    path = str(folder / "client.json")
    with gridengine.Client(path) as mine, gridengine.Client(path) as other:
        future = mine.submit(wait_for, str(tmp_path / "begun"), str(tmp_path / "go_on"))
        wait_until((tmp_path / "begun").exists)
        dispatcher = dispatcher_of(other)
        dispatcher.cancel(range(1, 1000))
        dispatcher.catch_up()
        (tmp_path / "go_on").touch()
        assert future.result(60) == "ended"


def test_a_client_s_own_kind_of_resource_is_refused_with_why(folder: Path) -> None:
    class Licence(gridengine.resources.Token):
        pass

    with (
        gridengine.Client(str(folder / "client.json")) as client,
        pytest.raises(ConfigurationError, match="is a kind of your own"),
    ):
        client.map(abs, [-1], resources=Licence("matlab"))


def test_a_connection_file_that_others_can_read_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "client.json"
    copy.write_bytes((folder / "client.json").read_bytes())
    copy.chmod(0o644)
    with pytest.raises(ConfigurationError, match="closed to others"):
        gridengine.Client(str(copy))
