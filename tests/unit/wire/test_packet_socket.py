"""Envelopes by a socket of packets: whole and in order, whatever their size, or not at all."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer
from gridengine.wire.packet_socket import MOST_PACKET, PacketSocket

pytestmark = pytest.mark.linux

PIECE = 256 * 1024


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield pair
    for one in pair:
        one.close()


@pytest.fixture
def ends(raw: tuple[socket.socket, socket.socket]) -> tuple[PacketSocket, PacketSocket]:
    return PacketSocket(raw[0]), PacketSocket(raw[1])


def received(end: PacketSocket, most: int = 1000) -> list[list[bytes]]:
    return [[bytes(frame) for frame in envelope] for envelope in end.receive(most)]


ENVELOPES: list[list[Buffer]] = [
    [b"one"],
    [b"several", b"", b"frames"],
    [b"x" * 21, b"h" * 100, b"s" * MOST_PACKET],
    [b"x" * 21, b"p" * PIECE],
    [b"x" * 21, *repeat(b"12345678", 30_000)],
    [b"x" * 100 for _ in range(65)],
]


@pytest.mark.parametrize("envelope", ENVELOPES, ids=lambda one: f"{len(one)} frames")
def test_an_envelope_arrives_as_it_was_sent(
    ends: tuple[PacketSocket, PacketSocket], envelope: list[Buffer]
) -> None:
    ours, theirs = ends
    come = []
    done = ours.send(envelope)
    while not come:
        come += received(theirs)
        done = done or ours.flush()
    assert come == [list(map(bytes, envelope))]


def test_packets_wait_for_a_full_socket_and_come_in_order(
    ends: tuple[PacketSocket, PacketSocket],
) -> None:
    ours, theirs = ends
    sent = [[b"%d" % number, bytes(50_000)] for number in range(200)]
    results = [ours.send(list[Buffer](one)) for one in sent]
    assert results[0]
    assert not results[-1]
    come = []
    while not ours.flush():
        come += received(theirs, 3)
    come += received(theirs)
    assert come == sent


def test_a_queue_refers_to_the_frames_and_has_no_copy(
    ends: tuple[PacketSocket, PacketSocket],
) -> None:
    ours, _ = ends
    frame = bytes(100_000)
    while ours.send([frame]):
        pass
    ours.send([frame])
    assert ours._unsent[-1][0] is frame


def test_a_reader_stops_after_as_many_packets_as_it_was_told(
    ends: tuple[PacketSocket, PacketSocket],
) -> None:
    ours, theirs = ends
    for number in range(5):
        ours.send([b"%d" % number])
    assert received(theirs, 2) == [[b"0"], [b"1"]]
    assert received(theirs, 0) == []
    assert received(theirs) == [[b"2"], [b"3"], [b"4"]]


def test_packets_sent_before_the_end_can_be_read(ends: tuple[PacketSocket, PacketSocket]) -> None:
    ours, theirs = ends
    theirs.send([b"unread"])
    ours.send([b"last"])
    ours.close()
    assert received(theirs) == [[b"last"]]
    assert theirs.ended


def test_sending_to_a_lost_peer_is_no_error_and_shows_when_reading(
    ends: tuple[PacketSocket, PacketSocket],
) -> None:
    ours, theirs = ends
    theirs.close()
    assert ours.send([b"to nobody"])
    assert received(ours) == []
    assert ours.ended


def test_packets_that_the_kernel_does_not_take_end_the_socket(
    ends: tuple[PacketSocket, PacketSocket], raw: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    raw[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    assert ours.send([bytes(100_000)])
    assert received(ours) == received(theirs) == []
    assert ours.ended
    assert theirs.ended


def header(count: int, total: int, *sizes: int) -> bytes:
    return struct.pack(f"=II{len(sizes)}I", count, total, *sizes)


HOSTILE = {
    "no header": [b"x"],
    "no frames": [header(0, 0)],
    "more frames than bytes": [header(2, 4, 0)],
    "very many frames": [header(2**32 - 1, 4, 0)],
    "a huge envelope": [header(1, 2**32 - 1, 2**32 - 9) + b"x"],
    "an envelope of over 512 KiB": [header(1, 600_000, 599_996)],
    "more bytes than it says": [header(1, 5, 1) + b"xyz"],
    "sizes that do not agree": [header(1, 7, 1) + b"xyz"],
    "sizes whose sum is huge": [header(2, 9, 2**32 - 1, 2**32 - 1) + b"x"],
    "a packet of more than was promised": [header(1, 10, 6) + b"xyz", b"x" * 10],
    "a packet longer than any": [b"x" * (MOST_PACKET + 1)],
}


@pytest.mark.parametrize("packets", HOSTILE.values(), ids=HOSTILE)
def test_bytes_that_are_no_envelope_are_refused(
    ends: tuple[PacketSocket, PacketSocket],
    raw: tuple[socket.socket, socket.socket],
    packets: list[bytes],
) -> None:
    for packet in packets:
        raw[0].send(packet)
    with pytest.raises(ProtocolError):
        list(chain.from_iterable(ends[1].receive(10)))
