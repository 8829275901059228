"""Attackers at our sockets and files: nothing of theirs runs or is unpickled, and honest work goes
on.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import zmq
from msgspec.structs import replace
from zmq.utils.monitor import recv_monitor_message

import gridengine
from gridengine._version import __version__
from gridengine.errors import ConfigurationError
from gridengine.serialize.byte_code import PYTHON
from gridengine.settings.values import settings
from gridengine.wire import local_connection
from gridengine.wire.connection_file import Connection, make_private_folder
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.framing import MAGIC, decode, encode
from gridengine.wire.local_connection import LocalClients, connect
from gridengine.wire.messages import (
    VERSION,
    Assign,
    Assignment,
    Beat,
    Cancel,
    Crashed,
    Define,
    Goodbye,
    Hello,
    Message,
    Pushed,
    Refuse,
    Result,
    Results,
    Returned,
    Started,
    Stop,
    Welcome,
)
from gridengine.wire.server import Server
from gridengine.wire.session import Session
from tests.support.tcp_scheduler import TcpScheduler

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

PATIENCE_SECONDS = 120
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
PIECE = 256 * 1024


class Bomb:
    """Whoever unpickles it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def square(x: int) -> int:
    return x * x


@dataclass(frozen=True, slots=True)
class Site:
    """A run that is under way, and what an attacker may try at it."""

    scheduler: gridengine.ProcessScheduler
    folder: Path
    connection: Connection
    mark: Path
    agent: psutil.Process

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.connection.addresses[-1].rpartition(":")[2])

    @property
    def bomb(self) -> bytes:
        return pickle.dumps(Bomb(self.mark))

    def check(self) -> None:
        """Honest work goes on, and nothing of an attacker's has run."""
        assert gridengine.map(square, range(50), scheduler=self.scheduler) == [
            x * x for x in range(50)
        ]
        assert not self.mark.exists()


def agents() -> set[psutil.Process]:
    found = set()
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended
            if "gridengine.worker" in one.cmdline():
                found.add(one)
    return found


@contextlib.contextmanager
def site(scheduler: gridengine.ProcessScheduler, runs: Path, mark: Path) -> Iterator[Site]:
    with scheduler, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRIDENGINE_RUN_DIRECTORY", str(runs))
        settings.cache_clear()
        others = agents()
        gridengine.map(square, range(3), scheduler=scheduler)
        [agent] = agents() - others
        path = Path(agent.cmdline()[-1])
        yield Site(scheduler, path.parent, Connection.load(path), mark, agent)
    settings.cache_clear()


@pytest.fixture(scope="module")
def over_tcp() -> Iterator[Site]:
    # Everybody may read what is above the run directory, which therefore has to be closed itself.
    with tempfile.TemporaryDirectory(prefix="gridengine-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with site(TcpScheduler(2), folder, folder / "mark") as one:
            yield one


@pytest.fixture
def target(over_tcp: Site) -> Iterator[Site]:
    """The run over TCP. After each test honest work must still go on."""
    yield over_tcp
    over_tcp.check()


# ---------------------------------------------------------------- attackers who speak ZeroMQ

Keys = tuple[bytes, bytes]


def envelope(kind: int, number: int, acknowledged: int = 0, asked: int = 0) -> bytes:
    return struct.pack("<BQQI", kind, number, acknowledged, asked)


def hello(run_id: str, **other: Any) -> Hello:
    facts = {
        "protocol": VERSION,
        "version": __version__,
        "python": PYTHON,
        "host": "attacker",
        "pid": 1,
        "slots": 1,
        "log": "",
    }
    return Hello(**{"run_id": run_id, **facts, **other})


class Attacker:
    """A ZeroMQ socket with any keys, or none, at the dispatcher's address."""

    def __init__(
        self, address: str, *, server_key: str = "", keys: Keys | None = None, identity: bytes = b""
    ) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        if identity:
            self.socket.setsockopt(zmq.IDENTITY, identity)
        if keys is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = keys
            self.socket.curve_serverkey = server_key.encode()
        self.monitor = self.socket.get_monitor_socket()
        self.socket.connect(address)

    def events_until_refused(self, *others: zmq.Event) -> set[zmq.Event]:
        """Wait until the other side has ended the connection, or one of these other events; return
        all that happened up to then.
        """
        seen: set[zmq.Event] = set()
        ends = {
            *others,
            zmq.Event.HANDSHAKE_FAILED_AUTH,
            zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
            zmq.Event.DISCONNECTED,
        }
        while not seen & ends:
            assert self.monitor.poll(PATIENCE_SECONDS * 1000), (
                f"nobody ended the connection: {seen}"
            )
            seen.add(zmq.Event(recv_monitor_message(self.monitor)["event"]))
        return seen

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(list(frames))

    def receive(self) -> Message:
        assert self.socket.poll(PATIENCE_SECONDS * 1000), "no answer"
        return decode(self.socket.recv_multipart()[1:])[0]

    def receive_a(self, kind: type[Any]) -> Any:
        while not isinstance(message := self.receive(), kind):
            pass
        return message

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)
        self.context.term()


def intrude(target: Site, *, server_key: str, keys: Keys | None) -> set[zmq.Event]:
    """Try to be a worker and to bring a bomb; return what became of the connection."""
    address = target.connection.addresses[-1]
    with contextlib.closing(
        Attacker(address, server_key=server_key, keys=keys, identity=b"\xff\xfe intruder")
    ) as attacker:
        attacker.send(envelope(0, 1), *map(bytes, encode(hello(target.connection.run_id))))
        attacker.send(
            envelope(0, 2), *map(bytes, encode(Results([Result(1, 0, 1, 0, 0.1)]), [target.bomb]))
        )
        events = attacker.events_until_refused()
        assert not attacker.socket.poll(0)
        return events


def keys_of_another_run() -> Keys:
    with contextlib.closing(Server(host="127.0.0.1")) as earlier:
        return earlier.keys.peer_public.encode(), earlier.keys.peer_secret.encode()


KNOWN: dict[str, Callable[[Connection], tuple[str, Keys | None]]] = {
    "nothing": lambda connection: ("", None),
    "other keys": lambda connection: (zmq.curve_keypair()[0].decode(), zmq.curve_keypair()),
    "both public keys": lambda connection: (
        *(connection.server_key, (connection.worker_public.encode(), zmq.curve_keypair()[1])),
    ),
    "the workers' keys of an earlier run": lambda connection: (
        *(connection.server_key, keys_of_another_run()),
    ),
}


@pytest.mark.parametrize("known", KNOWN)
def test_an_attacker_who_does_not_know_the_workers_keys_is_rejected(
    target: Site, known: str
) -> None:
    server_key, keys = KNOWN[known](target.connection)
    events = intrude(target, server_key=server_key, keys=keys)
    assert zmq.Event.HANDSHAKE_SUCCEEDED not in events


def test_an_attacker_who_knows_the_dispatchers_public_key_is_rejected(target: Site) -> None:
    events = intrude(target, server_key=target.connection.server_key, keys=zmq.curve_keypair())
    assert zmq.Event.HANDSHAKE_SUCCEEDED not in events
    assert (
        zmq.Event.HANDSHAKE_FAILED_AUTH in events
    )  # by the check of the client's key, and nothing before it


def test_a_worker_connects_to_no_dispatcher_but_its_own(tmp_path: Path, over_tcp: Site) -> None:
    """An attacker who has taken over the dispatcher's address has not its secret key, even if he
    lets everybody in.
    """
    context = zmq.Context()
    with contextlib.ExitStack() as stack:
        stack.callback(context.term)
        trap = stack.enter_context(context.socket(zmq.ROUTER))
        trap.curve_server = True
        trap.curve_publickey, trap.curve_secretkey = zmq.curve_keypair()
        trap.setsockopt(zmq.LINGER, 0)
        port = trap.bind_to_random_port("tcp://127.0.0.1")
        monitor = stack.enter_context(trap.get_monitor_socket())
        place = {"addresses": (f"tcp://127.0.0.1:{port}",), "lease_seconds": 1.0}
        with pytest.raises(
            ConfigurationError, match="the program that listens there is not the dispatcher"
        ):
            DispatcherConnection(replace(over_tcp.connection, **place))
        events: set[zmq.Event] = set()
        while not events & {
            zmq.Event.DISCONNECTED,
            zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
            zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
        }:
            assert monitor.poll(PATIENCE_SECONDS * 1000)
            events.add(zmq.Event(recv_monitor_message(monitor)["event"]))
        assert zmq.Event.HANDSHAKE_SUCCEEDED not in events
        assert not trap.poll(0)
        trap.disable_monitor()


# ---------------------------------------------------------------- attackers who do not

RANDOM = b"".join(((n * 2654435761) % 2**32).to_bytes(4, "little") for n in range(1, 5000))
BYTES = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + RANDOM[:512],
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "random bytes": RANDOM,
    "zeros": bytes(10_000),
    "a greeting and random bytes": GREETING + RANDOM,
    "a greeting of another mechanism": GREETING.replace(b"CURVE", b"PLAIN") + RANDOM,
    "a greeting of no mechanism": GREETING.replace(b"CURVE", b"NULL\0")
    + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\6DEALER",
    "a handshake's first command, wrong": GREETING + b"\x04\xc8" + b"\x05HELLO" + bytes(194),
    "a handshake's last command, too early": GREETING + b"\x04\x21" + b"\x08INITIATE" + bytes(24),
    "a message before any handshake": GREETING + b"\x00\x05hello",
}


def read_to_the_end(end: socket.socket) -> None:
    """Read until the other side has closed."""
    with contextlib.suppress(ConnectionError):
        while end.recv(4096):
            pass


@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES.keys())
def test_an_attacker_who_sends_anything_else_is_disconnected(target: Site, content: bytes) -> None:
    with socket.create_connection(target.address, timeout=PATIENCE_SECONDS) as end:
        with contextlib.suppress(ConnectionError):
            end.sendall(content)
        read_to_the_end(end)


def test_a_silent_attacker_is_disconnected(target: Site) -> None:
    with socket.create_connection(target.address, timeout=PATIENCE_SECONDS) as end:
        read_to_the_end(end)


@pytest.mark.parametrize("length", [PIECE + 10_000, 2**31, 2**62, 2**64 - 1])
def test_an_attacker_who_announces_a_long_frame_is_disconnected_before_he_has_sent_it(
    target: Site, length: int
) -> None:
    with socket.create_connection(target.address, timeout=PATIENCE_SECONDS) as end:
        end.sendall(GREETING)
        with contextlib.suppress(ConnectionError):
            end.sendall(b"\x06" + struct.pack(">Q", length))
        read_to_the_end(end)


# ---------------------------------------------------------------- the right key and the wrong words


@pytest.fixture
def rogue(target: Site) -> Iterator[Attacker]:
    """Somebody with the workers' key."""
    connection = target.connection
    keys = connection.worker_public.encode(), connection.worker_secret.encode()
    with contextlib.closing(
        Attacker(connection.addresses[-1], server_key=connection.server_key, keys=keys)
    ) as one:
        yield one


GOOD = [bytes(frame) for frame in encode(Goodbye("bye"))]
MALFORMED: dict[str, Sequence[bytes]] = {
    "no frame but an empty one": [b""],
    "no envelope": GOOD,
    "an envelope alone": [envelope(0, 1)],
    "an unknown kind of envelope": [envelope(77, 1), *GOOD],
    "an acknowledgement of what was never sent": [envelope(0, 1, 2**63), *GOOD],
    "an endless piece": [envelope(4, 1), b"x" * 1000],
    "no header": [envelope(0, 1), MAGIC],
    "a very deep header": [envelope(0, 1), MAGIC + b"\x91" * 100_000],
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frames_from_a_rogue_worker_are_dropped(
    target: Site, rogue: Attacker, frames: Sequence[bytes]
) -> None:
    rogue.send(*frames)
    # What was sent before is looked at before: when this is refused, that has been survived.
    rogue.send(envelope(1, 0), *map(bytes, encode(hello("another run"))))
    while "another run" not in rogue.receive_a(Refuse).reason:
        pass


def test_a_hello_of_an_earlier_run_is_refused(target: Site, rogue: Attacker) -> None:
    rogue.send(envelope(0, 1), *map(bytes, encode(hello("20200101-000000-1-abcdef"))))
    assert target.connection.run_id in rogue.receive_a(Refuse).reason


def words(target: Site) -> list[tuple[Message, list[bytes]]]:
    """Return well-formed messages that make no sense, all with a bomb where bytes go."""
    bomb = target.bomb
    many = 2**63
    return [
        (Results([Result(run, 0, 1, 0, 0.1) for run in (0, -1, 1, 2, 3, many)]), [bomb] * 6),
        (Results([Result(1, 5, 2, 0, 1e12, 2, True)]), [bomb, bomb]),
        (Crashed(1, 0, -9, "crash", 1), [bomb, bomb]),
        (Crashed(many, -many, -many, "memory", -many, many), [bomb, bomb]),
        (Returned([0, -1, 1, 2, many]), []),
        (Started(many, -many), []),
        (Pushed(1), [bomb]),
        (Define(b"digest", [b"/tmp"], b"/tmp"), [bomb]),
        (Assign([Assignment(1, 1, b"digest", 0, 1, 1, 0)]), [bomb]),
        (Cancel([1, 2, 3], 9), []),
        (Welcome(), []),
        (Stop(), []),
        (hello("another run"), []),
    ]


def test_a_rogue_worker_that_sends_nonsense_is_ignored(target: Site, rogue: Attacker) -> None:
    theirs = Session(PIECE)

    def send(message: Message, buffers: Sequence[bytes] = ()) -> None:
        for frames in theirs.number(encode(message, buffers)):
            rogue.send(*map(bytes, frames))

    send(hello(target.connection.run_id))
    rogue.receive_a(Welcome)
    for message, buffers in words(target):
        send(message, buffers)
    send(Goodbye("done"))
    # To be told that nobody here is known by this name, all of it must have been looked at.
    rogue.send(envelope(1, 0), *map(bytes, encode(Beat())))
    assert "does not know you" in rogue.receive_a(Refuse).reason


# ---------------------------------------------------------------- floods


FLOOD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, count, drop = [], int(sys.argv[2]), sys.argv[3] == "drop"
for _ in range(count):
    end = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
    end.close() if drop else held.append(end)
print("done", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def flood(target: Site, count: int, what: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", FLOOD, str(target.address[1]), str(count), what]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as flooder:
        try:
            yield flooder
        finally:
            flooder.kill()


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096,
    reason="the hard limit of open files is below 4096",
)
def test_a_thousand_connections_held_open_do_not_stop_the_run(target: Site) -> None:
    with flood(target, 1000, "hold") as flooder:
        assert flooder.stdout is not None
        assert flooder.stdout.readline() == "done\n"
        target.check()
        # Workers that come now are let in too.
        with contextlib.closing(DispatcherConnection(target.connection)) as late:
            late.send(hello("another run"))
            assert late.socket.poll(PATIENCE_SECONDS * 1000)


def test_ten_thousand_connections_opened_and_dropped_do_not_stop_the_run(target: Site) -> None:
    with flood(target, 10_000, "drop") as flooder:
        target.check()
        assert flooder.stdout is not None
        assert flooder.stdout.readline() == "done\n"
        target.check()


# ---------------------------------------------------------------- another user of this machine

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")
OTHER_USER = 61_234


def as_another_user(act: Callable[[], object]) -> str:
    """Do something in a process of another user and return what came of it, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
            os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            try:
                outcome = repr(act())
            except OSError as error:
                outcome = type(error).__name__
            os.write(writer, outcome.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        outcome = file.read().decode()
    os.waitpid(pid, 0)
    return outcome


@needs_root
def test_another_user_can_neither_read_nor_change_the_run_directory(target: Site) -> None:
    one = target
    secret = one.folder / "connection.json"
    attempts: list[Callable[[], object]] = [
        lambda: os.scandir(one.folder),
        lambda: os.open(secret, os.O_RDONLY),
        lambda: os.open(secret, os.O_WRONLY),
        lambda: os.open(one.folder / "new", os.O_CREAT | os.O_WRONLY),
        lambda: os.unlink(secret),
        lambda: one.folder.rename(f"{one.folder}.moved"),
        lambda: one.folder.chmod(0o777),
    ]
    assert [as_another_user(attempt) for attempt in attempts] == ["PermissionError"] * len(attempts)


def connect_as_no_honest_client_would(key: str) -> bool:
    with local_connection._socket() as sock:
        sock.connect(local_connection._address(key))
        sock.send(local_connection._digest(b"name", b"who") + bytes(16))
        return local_connection.is_own(sock)


@needs_root
def test_another_user_gets_no_local_connection_even_with_a_client_s_identity() -> None:
    key = zmq.curve_keypair()[0].decode()
    with (
        socket.socket() as other,
        contextlib.closing(LocalClients(key, other.fileno())) as clients,
        select.epoll() as watched,
    ):
        assert as_another_user(lambda: connect(key, b"who", watched)) == "None"
        assert as_another_user(lambda: connect_as_no_honest_client_would(key)) == "False"
        clients.greeted(b"who")
        assert clients.get(b"who") is None


@needs_root
@pytest.mark.parametrize("kind", [TcpScheduler, gridengine.ProcessScheduler])
def test_another_user_can_neither_signal_nor_look_into_a_worker(
    kind: type[gridengine.ProcessScheduler],
) -> None:
    with kind(1) as scheduler:
        others = set(psutil.Process().children(recursive=True))
        gridengine.map(square, [1], scheduler=scheduler)
        found = set(psutil.Process().children(recursive=True)) - others
        assert len(found) >= 2
        try_as_another_user([one.pid for one in found])


def try_as_another_user(pids: Sequence[int]) -> None:
    for pid in pids:
        for attempt in (
            lambda: os.kill(pid, signal.SIGTERM),  # noqa: B023
            lambda: os.open(f"/proc/{pid}/environ", os.O_RDONLY),  # noqa: B023
            lambda: os.open(f"/proc/{pid}/mem", os.O_RDONLY),  # noqa: B023
            lambda: Path(f"/proc/{pid}/fd/3").readlink(),  # noqa: B023
        ):
            assert as_another_user(attempt) == "PermissionError"


# ---------------------------------------------------------------- where the keys are


def environment_of_a_call(_: int) -> dict[str, str]:
    return dict(os.environ)


def secrets_of(connection: Connection) -> list[bytes]:
    keys = [connection.server_key, connection.worker_public, connection.worker_secret]
    assert all(len(key) == 40 for key in keys)
    return [key.encode() for key in keys]


def test_no_key_stands_on_a_command_line_or_in_an_environment(target: Site) -> None:
    checked = 0
    for process in psutil.process_iter():
        for file in ("cmdline", "environ", "comm"):
            try:
                content = Path(f"/proc/{process.pid}/{file}").read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
            checked += process == target.agent
            assert not any(key in content for key in secrets_of(target.connection))
    assert checked == 3


def test_no_key_is_in_the_environment_that_a_call_sees(target: Site) -> None:
    [environment] = gridengine.map(environment_of_a_call, [0], scheduler=target.scheduler)
    text = json.dumps(environment).encode()
    assert not any(key in text for key in secrets_of(target.connection))


IN_A_CLUSTER_JOB = """
import glob, json, os, subprocess
import gridengine

def look(_):
    commands = [["qstat", "-j", os.environ["JOB_ID"]], ["ps", "axeww"]]
    return [subprocess.check_output(command, text=True) for command in commands]

with gridengine.GridEngineScheduler(max_workers=1) as scheduler:
    [texts] = gridengine.map(look, [0], scheduler=scheduler)
    [path] = glob.glob(os.environ["GRIDENGINE_RUN_DIRECTORY"] + "/*/connection.json")
    with open(path) as file:
        print(json.dumps([json.load(file), texts]))
"""


@pytest.mark.grid_engine
def test_neither_grid_engine_nor_ps_shows_a_key_of_a_cluster_job(
    grid_engine: GridEngine,
) -> None:
    runs = grid_engine.folder / "runs-of-attackers"
    done = grid_engine.run(IN_A_CLUSTER_JOB, environment={"GRIDENGINE_RUN_DIRECTORY": str(runs)})
    connection, (told, processes) = json.loads(done.stdout)
    assert "job_number" in told
    assert "gridengine.worker" in processes
    assert "JOB_ID=" in processes  # ps shows environments too
    for name in ("server_key", "worker_public", "worker_secret"):
        assert len(connection[name]) == 40
        assert connection[name] not in told + processes
    assert not list(runs.glob("*/connection.json"))


def test_no_key_is_logged_or_left_in_the_run_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="gridengine")
    with site(TcpScheduler(1), tmp_path / "runs", tmp_path / "mark") as one:
        intrude(one, server_key=one.connection.server_key, keys=zmq.curve_keypair())
        one.check()
        secret, folder = one.connection.worker_secret, one.folder
    assert caplog.records
    assert secret not in caplog.text
    assert not folder.exists()


def test_a_run_directory_that_anybody_may_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigurationError, match=r"everybody may replace files in .*/open"):
        make_private_folder(tmp_path / "open" / "runs")
