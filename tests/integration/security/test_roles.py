"""What each file of a stand-alone dispatcher opens, and what not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

import gridengine
from gridengine.dispatcher.remote import RemoteDispatcher
from gridengine.dispatcher.standalone import serve
from gridengine.dispatcher.standalone_files import CLIENT, SERVER, WATCHER, WORKER, KeptKeys
from gridengine.errors import ConfigurationError
from gridengine.settings.schema import Settings
from gridengine.wire.connection_file import ClientConnection, Connection, load_private
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a dispatcher whose workers call over TCP, and its one client."""
    folder = tmp_path_factory.mktemp("runs") / "night"
    stopped, ready = threading.Event(), threading.Event()
    with TcpScheduler(1) as scheduler:
        settings = Settings(host="127.0.0.1")
        thread = threading.Thread(
            target=serve,
            args=(folder, scheduler, settings),
            kwargs={"stopped": stopped, "ready": ready.set},
        )
        thread.start()
        wait_until(ready.is_set)
        yield folder
        stopped.set()
        thread.join(60)


def is_let_in(connection: Connection | ClientConnection, address: str, server_key: str) -> bool:
    """Return whether the keys of this connection open this address."""
    context = zmq.Context()
    end = context.socket(zmq.DEALER)
    try:
        end.setsockopt(zmq.LINGER, 0)
        end.curve_publickey, end.curve_secretkey = map(str.encode, connection.pair)
        end.curve_serverkey = server_key.encode()
        monitor = end.get_monitor_socket()
        end.connect(address)
        while True:
            assert monitor.poll(PATIENCE_SECONDS * 1000), "nobody answers"
            event = recv_monitor_message(monitor)["event"]
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                return True
            if event in (zmq.Event.HANDSHAKE_FAILED_AUTH, zmq.Event.DISCONNECTED):
                return False
    finally:
        end.disable_monitor()
        monitor.close(0)
        end.close(0)
        context.term()


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
    kept = load_private(home / SERVER, KeptKeys)
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
        with pytest.raises(ConfigurationError, match="may only look may not stop"):
            watcher.control("stop")


def test_workers_that_call_over_tcp_run_a_client_s_calls(home: Path) -> None:
    with gridengine.Client(home / CLIENT) as client:
        assert client.map(lambda x: x + 1, range(100)) == list(range(1, 101))


def test_keys_and_ports_are_kept_over_restarts(tmp_path: Path) -> None:
    def run_once() -> tuple[KeptKeys, ClientConnection, Connection]:
        stopped, found = threading.Event(), []

        def look() -> None:
            found.append(load_private(folder / SERVER, KeptKeys))
            found.append(load_private(folder / CLIENT, ClientConnection))
            found.append(load_private(folder / WORKER, Connection))
            stopped.set()

        with TcpScheduler(1) as scheduler:
            settings = Settings(host="127.0.0.1")
            serve(folder, scheduler, settings, stopped=stopped, ready=look)
        return found[0], found[1], found[2]

    folder = tmp_path / "night"
    first, again = run_once(), run_once()
    assert first[0].workers.port != first[0].clients.port != 0
    assert first[:2] == again[:2]
    assert msgspec.structs.replace(again[2]) == first[2]
    assert {one.name for one in folder.iterdir()} >= {SERVER}
    assert not (folder / CLIENT).exists()
