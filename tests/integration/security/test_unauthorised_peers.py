"""Attackers at our sockets: nothing of theirs runs or is unpickled, and honest work goes on."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq
from msgspec.structs import replace
from zmq.utils.monitor import recv_monitor_message

from gridengine._version import __version__
from gridengine.errors import ConfigurationError
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.connection_file import Connection
from gridengine.wire.dispatcher_connection import DispatcherConnection
from gridengine.wire.framing import MAGIC, decode, encode
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
from tests.integration.security.conftest import Site

# ---------------------------------------------------------------- attackers who speak ZeroMQ

PATIENCE_SECONDS = 120
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
PIECE = 256 * 1024
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
