"""What each file of a stand-alone dispatcher opens, and what not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from msgspec.structs import replace

import gridengine
from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.run_directory import CLIENT, SERVER, WATCHER, WORKER, StoredIdentity
from gridengine.errors import ConfigurationError
from gridengine.wire.connection_file import ClientConnection, Connection, load_private
from tests.integration.security.test_unauthorised_peers import Attacker
from tests.support.standalone import Standalone


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a dispatcher whose workers call over TCP."""
    made = Standalone(tmp_path_factory.mktemp("runs"), module="tests.support.tcp_dispatcher")
    yield made.folder
    made.end()


def is_let_in(connection: Connection | ClientConnection, address: str, server_key: str) -> bool:
    """Return whether the keys of this connection open this address."""
    public, secret = map(str.encode, connection.pair)
    let_in = zmq.Event.HANDSHAKE_SUCCEEDED
    attacker = Attacker(address, server_key=server_key, keys=(public, secret))
    with contextlib.closing(attacker):
        return let_in in attacker.events_until_refused(let_in)


@pytest.mark.promise
def test_each_role_is_let_in_at_its_own_socket_alone(home: Path) -> None:
    worker = load_private(home / WORKER, Connection)
    client = load_private(home / CLIENT, ClientConnection)
    watcher = load_private(home / WATCHER, ClientConnection)
    assert is_let_in(worker, worker.addresses[0], worker.server_key)
    assert not is_let_in(worker, client.addresses[0], client.server_key)
    for one in (client, watcher):
        assert is_let_in(one, client.addresses[0], client.server_key)
        assert not is_let_in(one, worker.addresses[0], worker.server_key)


def test_no_two_roles_have_a_key_in_common(home: Path) -> None:
    worker = load_private(home / WORKER, Connection)
    client = load_private(home / CLIENT, ClientConnection)
    watcher = load_private(home / WATCHER, ClientConnection)
    kept = load_private(home / SERVER, StoredIdentity)
    secrets = {worker.pair[1], client.pair[1], watcher.pair[1]}
    assert len(secrets) == 3
    assert worker.server_key != client.server_key
    for name in (WORKER, CLIENT, WATCHER):
        text = (home / name).read_text()
        assert sum(secret in text for secret in secrets) == 1
        assert kept.workers.secret not in text
        assert kept.clients.secret not in text


def test_a_watcher_only_looks(home: Path) -> None:
    with contextlib.closing(RemoteDispatcher(home / WATCHER)) as watcher:
        assert watcher.control("describe")["workers"] >= 0
        with pytest.raises(ConfigurationError, match="a watcher may not stop"):
            watcher.control("stop")


def test_a_watcher_s_keys_make_no_client(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="has the keys of a watcher"):
        gridengine.Client(home / WATCHER)


def test_keys_and_ports_are_kept_over_restarts(tmp_path: Path) -> None:
    def run_once() -> tuple[StoredIdentity, ClientConnection, Connection]:
        made = Standalone(tmp_path, module="tests.support.tcp_dispatcher")
        kept = load_private(made.folder / SERVER, StoredIdentity)
        client = load_private(made.folder / CLIENT, ClientConnection)
        worker = load_private(made.folder / WORKER, Connection)
        made.end()
        assert not made.path.exists()
        return kept, replace(client, pid=0, started=0), worker

    first, again = run_once(), run_once()
    assert first == again
    assert first[0].workers.port != first[0].clients.port != 0
