"""A dispatcher and a worker whose messages travel as files, both in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.serialize.payload import Buffer
from gridengine.wire.connection_file import Connection, ServerKeys, folder_at
from gridengine.wire.exchange_folder import ALIVE, DISPATCHER, is_attended
from gridengine.wire.file_connection import FileConnection
from gridengine.wire.file_server import FileServer
from gridengine.wire.messages import (
    Beat,
    Goodbye,
    Hello,
    Message,
    Pushed,
    Refuse,
    Rejoin,
    Stop,
    Welcome,
)
from tests.support.manual_clock import ManualClock

HELLO = Hello(
    protocol=1, version="1", python="3.11", run_id="run", host="here", pid=1, slots=1, log=""
)
LARGE = bytes(range(256)) * 40_000
KEYS = ServerKeys("", "", "", "key of the run")


class Ends:
    """Both ends, and what has arrived at each."""

    def __init__(self, exchange: Path, epoch: int = 0) -> None:
        self.exchange = exchange
        self.clock = ManualClock()
        self.server = self.new_server(epoch)
        self.server.open()
        self.worker = FileConnection(self.connection(), exchange, clock=self.clock)
        self.of_worker: list[tuple[Message, list[Buffer]]] = []
        self.of_server: list[tuple[Message, list[Buffer]]] = []
        self.peer = b""

    def new_server(self, epoch: int) -> FileServer:
        return FileServer(self.exchange, keys=KEYS, epoch=epoch, clock=self.clock)

    def connection(self, key: str = KEYS.peer_secret) -> Connection:
        times = 5.0, 60.0, 30.0, 5.0
        return Connection("run", self.server.addresses, 1, "1", "3.11", *times, 1000, "", "", key)

    def until(self, done: Callable[[], object]) -> None:
        """Let time pass, and move what can be moved, until something holds."""

        def is_done() -> object:
            self.worker.tick(self.clock.monotonic())
            for peer, message, buffers in self.server.receive():
                self.peer = peer
                if isinstance(message, Beat):
                    self.server.beat(peer)
                else:
                    self.of_worker.append((message, buffers))
            self.of_server += self.worker.receive()
            return done()

        self.clock.advance_until(is_done)

    def greet(self) -> None:
        self.worker.send(HELLO)
        self.until(lambda: self.of_worker)
        assert isinstance(self.of_worker.pop()[0], Hello)

    def end_of(self, name: str) -> Path:
        return self.exchange / name


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path / "exchange")
    yield made
    made.worker._close()
    made.server.close(0.0)


def test_messages_travel_both_ways_in_order(ends: Ends) -> None:
    ends.greet()
    for run in range(20):
        ends.worker.send(Pushed(run), [b"%d" % run])
        ends.server.send(ends.peer, Welcome(run))
    ends.until(lambda: len(ends.of_worker) == 20 and len(ends.of_server) == 20)
    assert [message for message, _ in ends.of_server] == [Welcome(run) for run in range(20)]
    assert [bytes(*buffers) for _, buffers in ends.of_worker] == [b"%d" % run for run in range(20)]


def test_a_large_message_arrives_whole(ends: Ends) -> None:
    ends.greet()
    ends.worker.send(Pushed(1), [LARGE])
    ends.until(lambda: ends.of_worker)
    [(_, [buffer])] = ends.of_worker
    assert bytes(buffer) == LARGE


def test_a_message_whose_file_was_lost_is_sent_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.greet()
    ends.until(lambda: not ends.worker._session.unacknowledged)
    rename, lost = Path.rename, list[str]()

    def lose(path: Path, target: Path) -> Path:
        if not lost and target.parent.name == DISPATCHER:
            lost.append(target.name)
            path.unlink()
            return target
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", lose)
    ends.worker.send(Pushed(1), [b"first"])
    ends.until(lambda: lost)
    ends.worker.send(Pushed(2), [b"second"])
    ends.until(lambda: len(ends.of_worker) == 2)
    assert [message for message, _ in ends.of_worker] == [Pushed(1), Pushed(2)]


def test_a_worker_without_the_key_is_not_heard(ends: Ends) -> None:
    other = FileConnection(ends.connection("another key"), ends.exchange, clock=ends.clock)
    other.send(HELLO)
    other._close()
    ends.greet()
    assert ends.of_worker == []


def test_a_worker_that_was_forgotten_is_refused(ends: Ends) -> None:
    ends.greet()
    ends.server.forget(ends.peer)
    ends.until(lambda: ends.of_server)
    assert isinstance(ends.of_server[0][0], Refuse)


def test_messages_sent_before_the_end_arrive_after_it(ends: Ends) -> None:
    ends.greet()
    ends.worker.send(Goodbye("told to stop"))
    ends.until(lambda: ends.of_worker and not ends.worker._session.unacknowledged)
    assert ends.worker.close(0.0)
    assert [one.name for one in ends.exchange.iterdir() if one.is_dir()] == [DISPATCHER]


def test_a_worker_is_told_to_leave_when_its_dispatcher_has_ended(ends: Ends) -> None:
    ends.greet()
    ends.server.send(ends.peer, Stop())
    ends.server.close(60.0)
    assert not ends.exchange.exists()
    ends.clock.advance_until(lambda: ends.worker._is_away())
    [(message, _)] = ends.worker.receive()
    assert isinstance(message, Refuse)
    assert not ends.worker.close(0.0)


def test_a_dispatcher_says_so_when_somebody_removes_its_folder(ends: Ends) -> None:
    ends.greet()
    ends.exchange.rename(ends.exchange.with_name("removed"))  # at once, whoever writes to it
    with pytest.raises(GridEngineError, match="somebody has removed"):
        ends.until(lambda: False)


def test_a_dispatcher_that_is_started_again_is_found_by_its_workers(tmp_path: Path) -> None:
    ends = Ends(tmp_path / "exchange", epoch=1)
    ends.worker.introduce = lambda: (ends.worker.begin_again(), ends.worker.send(HELLO))
    ends.greet()
    ends.server.send(ends.peer, Welcome(1))
    ends.until(lambda: ends.of_server)
    ends.server.close(0.0)
    assert ends.exchange.exists()
    assert not (ends.exchange / ALIVE).exists()
    ends.worker.epoch = 1
    ends.server = ends.new_server(2)
    ends.server.open()
    ends.until(lambda: isinstance(ends.of_server[-1][0], Rejoin))
    assert ends.worker.rejoin(Rejoin(2))
    ends.until(lambda: ends.of_worker)
    ends.server.send(ends.peer, Welcome(2))
    ends.until(lambda: ends.of_server[-1][0] == Welcome(2))
    ends.worker._close()
    ends.server.close(0.0)


def test_the_address_names_the_folder_and_whether_anybody_looks_there(tmp_path: Path) -> None:
    ends = Ends(tmp_path / "ex change\u00e9")
    [address] = ends.server.addresses
    assert folder_at(address) == ends.exchange
    assert is_attended(ends.exchange)
    ends.worker._close()
    ends.server.close(0.0)
    assert not is_attended(ends.exchange)
    assert folder_at("tcp://10.0.0.7:4711") is None


def test_a_worker_that_cannot_write_says_so(ends: Ends, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"No such file(.|\n)*GRIDENGINE_RUN_DIRECTORY"):
        FileConnection(ends.connection(), tmp_path / "elsewhere")


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    exchange.chmod(0o755)
    with pytest.raises(ConfigurationError, match="of this user alone"):
        FileServer(exchange, keys=KEYS).open()
