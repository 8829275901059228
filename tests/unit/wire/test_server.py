"""A dispatcher's socket: the order of what has arrived, and the addresses of this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from gridengine.errors import ConfigurationError
from gridengine.system.machine import addresses
from gridengine.wire.framing import encode
from gridengine.wire.messages import Beat, Stop
from gridengine.wire.server import Server, lasting_ports, own_addresses, resolve
from gridengine.wire.session import PIECE, Frames, Session


def test_an_impossible_host_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'a\.\.b' .*does not resolve"):
        resolve("a..b")


def test_a_host_that_resolves_is_taken() -> None:
    resolve("127.0.0.1")


def test_loopback_is_the_last_address_that_others_are_told() -> None:
    *outer, last = own_addresses()
    assert last == "127.0.0.1"
    assert not [one for one in outer if one.startswith(("127.", "fe80")) or one == "::1"]


@pytest.mark.parametrize(("given", "count"), [("32768\t60999\n", 100), ("1024 65535", 0)])
def test_ports_that_last_are_none_that_the_kernel_gives(
    given: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: given)
    ports = lasting_ports()
    assert len(set(ports)) == count
    assert all(1024 <= port < int(given.split()[0]) for port in ports)


def test_the_addresses_are_those_that_psutil_finds() -> None:
    families = socket.AF_INET, socket.AF_INET6
    entries = [one for its in psutil.net_if_addrs().values() for one in its]
    found = {one.address.partition("%")[0] for one in entries if one.family in families}
    assert set(addresses()) == found


class Arriving:
    """Stands in for a server's socket: has messages that have arrived."""

    is_quiet = False

    def __init__(self) -> None:
        self.messages: list[list[zmq.Frame]] = []

    @property
    def pending(self) -> bool:
        return bool(self.messages)

    def receive(self) -> list[zmq.Frame]:
        return self.messages.pop(0) if self.messages else []

    def add(self, peer: bytes, frames: Frames) -> None:
        self.messages.append([zmq.Frame(bytes(one)) for one in (peer, *frames)])


@pytest.fixture
def server() -> Iterator[tuple[Server, Arriving]]:
    server = Server(host="127.0.0.1")
    polled, arriving = server._polled, Arriving()
    server._polled = arriving  # type: ignore[assignment]
    yield server, arriving
    server._polled = polled
    server.close(0)


def test_one_message_of_each_peer_is_read_in_turn(server: tuple[Server, Arriving]) -> None:
    here, arriving = server
    session = Session(PIECE)
    for peer in (b"a", b"a", b"a", b"b", b"c"):
        arriving.add(peer, session.number(encode(Stop()))[0])
    first = [peer for peer, *_ in here._arrived(2)]
    arriving.add(b"d", session.number(encode(Stop()))[0])
    assert here.pending
    assert first + [peer for peer, *_ in here._arrived(9)] == [b"a", b"b", b"c", b"a", b"d", b"a"]
    assert not here.pending


def test_of_signs_of_life_that_wait_only_the_last_is_kept(server: tuple[Server, Arriving]) -> None:
    here, arriving = server
    session = Session(PIECE)
    beats = [session.unnumbered(encode(Beat())) for _ in range(3)]
    stop = session.number(encode(Stop()))[0]
    beats += [session.unnumbered(encode(Beat())) for _ in range(2)]
    for frames in (*beats[:3], stop, *beats[3:]):
        arriving.add(b"a", frames)
    assert [frames for _, frames, _ in here._arrived(9)] == [beats[2], stop, beats[4]]
