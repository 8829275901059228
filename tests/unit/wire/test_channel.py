"""Messages arrive whole and in order however the stream is cut, and garbage is refused."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from gridengine.errors import ProtocolError
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.shared_memory import LARGE, Block, disown
from gridengine.wire.channel import Channel, socket_pair
from gridengine.wire.framing import MAGIC, encode_stream
from gridengine.wire.messages import Define, Deliver, Message, Started
from tests.support.open_files import open_files


class Wire:
    """A socket pair without the sockets: what one end sends is read from `data`, at most `step`
    bytes at a time.
    """

    def __init__(self, data: bytes = b"", *, step: int = 1 << 30, room: int = 1 << 40) -> None:
        self.data = bytearray(data)
        self.step = step
        self.room = room
        self.closed = False

    def recv(self, size: int, flags: int) -> bytes:
        count = min(size, self.step, len(self.data))
        if not count and not self.closed:
            raise BlockingIOError
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken

    def recv_into(self, room: memoryview, size: int, flags: int) -> int:
        taken = self.recv(room.nbytes, flags)
        room[: len(taken)] = taken
        return len(taken)

    def sendmsg(self, pieces: list[memoryview], ancillary: object, flags: int) -> int:
        sent = b"".join(pieces)[: min(self.step, self.room)]
        if not sent:
            raise BlockingIOError
        self.room -= len(sent)
        self.data += sent
        return len(sent)

    def send(self, piece: memoryview, flags: int) -> int:
        return self.sendmsg([piece], (), flags)

    def close(self) -> None:
        self.closed = True


class Broken(Wire):
    def sendmsg(self, pieces: list[memoryview], ancillary: object, flags: int) -> int:
        raise BrokenPipeError


def channel(wire: Wire) -> Channel:
    return Channel(wire)  # type: ignore[arg-type]


def read_all(wire: Wire) -> Iterator[tuple[Message, list[bytes]]]:
    reader = channel(wire)
    while wire.data:
        for message, buffers in reader.poll():
            yield message, list(map(bytes, buffers))


SIZES = [0, 1, 1000, 32 * 1024, 32 * 1024 + 1, 70_000, 3_000_000]


@pytest.mark.parametrize("step", [7, 4096, 1 << 30])
def test_messages_arrive_whole_and_in_order_however_the_stream_is_cut(step: int) -> None:
    scale = 1 if step > 7 else 100
    messages: list[tuple[Message, Payload]] = [
        (Define(bytes([i]), [b"/a"], b"/", 2), [bytes([i]) * (size // scale), b"small"])
        for i, size in enumerate(SIZES)
    ]
    messages.append((Started(1, 2), []))
    wire = Wire(step=step)
    writer = channel(wire)
    for message, buffers in messages:
        assert writer.send(message, buffers)
    assert list(read_all(wire)) == messages


def test_bytes_that_the_socket_does_not_take_are_sent_later() -> None:
    wire = Wire(room=100_000)
    writer = channel(wire)
    assert not writer.send(Define(b"f", [], b"/", 1), [b"x" * 200_000])
    assert not writer.send(Started(1, 2))
    assert not writer.flush()
    wire.room = 1 << 40
    assert writer.flush()
    assert [message for message, _ in read_all(wire)] == [Define(b"f", [], b"/", 1), Started(1, 2)]


def test_large_buffers_may_be_written_to() -> None:
    wire = Wire()
    channel(wire).send(Define(b"f", [], b"/", 2), [b"x" * 40_000, b"y" * 2_000_000])
    ((_, buffers),) = channel(wire).poll()
    assert [memoryview(buffer).readonly for buffer in buffers] == [False, False]


def test_the_end_is_seen_after_the_last_message() -> None:
    wire = Wire()
    channel(wire).send(Started(1, 2))
    wire.close()
    reader = channel(wire)
    assert reader.poll() == [(Started(1, 2), [])]
    assert reader.poll() == []
    assert reader.ended


def test_waiting_for_a_message_of_a_peer_that_is_gone_is_an_end_of_file() -> None:
    ours, theirs = socket_pair()
    theirs.close()
    with ours, pytest.raises(EOFError):
        Channel(ours).wait()


@pytest.mark.parametrize("wire", [Broken(), Wire(room=10)], ids=["gone", "no longer waits"])
def test_delivering_to_a_peer_that_takes_no_more_is_an_end_of_file(wire: Wire) -> None:
    with pytest.raises(EOFError):
        channel(wire).deliver(Started(1, 2))


def test_sending_to_a_peer_that_is_gone_is_silent_for_reading_shows_it() -> None:
    assert channel(Broken()).send(Started(1, 2))


def with_sizes(*sizes: int) -> bytes:
    """Return the beginning of a message of one buffer that says that its buffers are as large."""
    header = MAGIC + msgspec.msgpack.encode((sizes, Define(b"f", [], b"/", 1)))
    return struct.pack("=I", len(header)) + header


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("=I", 0),
        struct.pack("=I", 2**32 - 1),
        struct.pack("=I", 4) + b"what",
        b"print('text')",
        with_sizes(2**63),
        with_sizes(2**39),
        with_sizes(1, 1),
    ],
    ids=[
        "no header",
        "endless header",
        "no message",
        "text",
        "endless buffer",
        "buffer larger than memory",
        "a buffer too many",
    ],
)
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        channel(Wire(data)).poll()


def test_one_look_does_not_read_for_ever() -> None:
    wire = Wire()
    channel(wire).send(Define(b"f", [], b"/", 1), [b"x" * 30_000])
    wire.data *= 1000
    reader = channel(wire)
    reader.poll()
    assert wire.data
    assert reader.more


def test_both_ends_of_a_real_socket_pair_understand_each_other() -> None:
    ours, theirs = map(Channel, socket.socketpair())
    assert ours.send(Started(1, 2))
    assert theirs.wait() == [(Started(1, 2), [])]
    theirs.deliver(Started(3, 4))
    assert ours.poll() == [(Started(3, 4), [])]
    ours.close()
    with pytest.raises(EOFError):
        theirs.wait()
    theirs.close()


def ends() -> tuple[Channel, Channel]:
    """Return an agent's end, and its runner's."""
    ours, theirs = socket.socketpair()
    return (
        Channel(ours, takes_blocks=True, keeps_descriptors=True),
        Channel(theirs, takes_blocks=True),
    )


def received(end: Channel, count: int) -> list[tuple[Message, list[Buffer]]]:
    messages = []
    while len(messages) < count:
        messages += end.poll()
    return messages


def test_large_buffers_go_beside_the_stream_and_outlive_their_sender() -> None:
    ours, theirs = ends()
    message, buffers = Define(b"f", [], b"/", 4), [b"pickle", b"x" * LARGE, b"", b"y" * LARGE]
    for _ in range(3):
        theirs.deliver(message, buffers)
        theirs.deliver(Started(1, 2))
    theirs.close()
    arrived = received(ours, 6)
    assert [one for one, _ in arrived] == [message, Started(1, 2)] * 3
    for _, its in arrived[::2]:
        assert [bytes(one) for one in its] == buffers
        large = [one for one in its if len(one) == LARGE]
        assert [type(one.obj) for one in large] == [Block] * 2
        large[0][0] = 1
        assert (large[0][0], large[1][0]) == (1, ord("y"))
        disown(its)
    assert not ours.poll()
    assert ours.ended
    ours.close()
    assert open_files("gridengine-block") == []
    del arrived, its, large


def test_large_buffers_for_a_runner_go_beside_the_stream_and_hold_no_descriptor_there() -> None:
    ours, theirs = ends()
    message, buffers = Define(b"f", [], b"/", 2), [b"pickle", b"x" * LARGE]
    assert ours.send(message, buffers)
    [(arrived, its)] = received(theirs, 1)
    assert (arrived, [bytes(one) for one in its]) == (message, buffers)
    assert type(its[1].obj) is Block
    assert open_files("gridengine-block") == []
    ours.close()
    theirs.close()


def flushed(ours: Channel, theirs: Channel) -> list[tuple[Message, list[Buffer]]]:
    """Return the messages that arrive once this end has written them."""
    messages: list[tuple[Message, list[Buffer]]] = []
    while not messages:
        ours.flush()
        messages = theirs.poll()
    return messages


def test_a_message_to_a_call_in_progress_takes_no_descriptor_of_it() -> None:
    ours, theirs = ends()
    ours.send(Deliver(7, 1), [b"x" * LARGE])
    [(_, [buffer])] = flushed(ours, theirs)
    assert len(buffer) == LARGE
    assert type(buffer.obj) is not Block
    ours.close()
    theirs.close()


def test_an_end_that_must_not_wait_copies_only_small_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridengine.wire.channel._MOST_COPIED", 2 * LARGE)
    ours, theirs = ends()
    for size in (2 * LARGE, 2 * LARGE + 1):
        ours.send(Define(b"f", [], b"/", 1), [b"x" * size])
        [(_, [buffer])] = flushed(ours, theirs)
        assert len(buffer) == size
        assert (type(buffer.obj) is Block) == (size == 2 * LARGE)
    ours.close()
    theirs.close()


def test_a_runner_without_a_descriptor_for_a_large_buffer_ends_as_if_the_channel_were_closed() -> (
    None
):
    ours, theirs = ends()
    ours._socket.sendmsg(encode_stream(Define(b"f", [], b"/", 1), [b"x" * LARGE], {0}))
    with pytest.raises(EOFError):
        theirs.wait()
    ours.close()
    theirs.close()


def test_a_large_buffer_overtakes_nothing_that_waits_for_room_in_the_socket() -> None:
    ours, theirs = ends()
    small, large = Define(b"s", [], b"/", 1), Define(b"l", [], b"/", 1)
    count = 1
    while ours.send(small, [b"x" * (LARGE - 1)]):
        count += 1
    assert not ours.send(large, [b"y" * LARGE])
    messages = []
    while len(messages) <= count:
        ours.flush()
        messages += theirs.poll()
    assert [message for message, _ in messages] == [small] * count + [large]
    assert bytes(messages[-1][1][0]) == b"y" * LARGE
    ours.close()
    theirs.close()


def test_unread_descriptors_are_closed_with_the_channel(tmp_path: Path) -> None:
    ours, theirs = ends()
    with (tmp_path / "file").open("w") as file:
        rights = struct.pack("=i", file.fileno())
        theirs._socket.sendmsg([b"abc"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    assert not ours.poll()
    assert open_files(str(tmp_path)) == [str(tmp_path / "file")]
    ours.close()
    theirs.close()
    assert open_files(str(tmp_path)) == []


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("failing", ["new_block", "sendmsg"])
def test_without_descriptors_large_buffers_go_through_the_stream(
    failing: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends()
    refused = OSError(errno.ETOOMANYREFS, "too many")
    if failing == "new_block":
        monkeypatch.setattr("gridengine.wire.channel.new_block", Mock(side_effect=refused))
    else:
        sock = theirs._socket

        def sendmsg(parts: list[Buffer], rights: list[object], flags: int) -> int:
            if rights:
                raise refused
            return sock.sendmsg(parts, (), flags)

        theirs._socket = Mock(sendmsg=sendmsg, send=sock.send, close=sock.close)
    message, buffers = Define(b"f", [], b"/", 1), [b"x" * (3 * LARGE)]
    if waits:
        sending = threading.Thread(target=theirs.deliver, args=(message, buffers))
        sending.start()
        [(_, [buffer])] = received(ours, 1)
        sending.join()
    else:
        theirs.send(message, buffers)
        messages = []
        while not messages:
            theirs.flush()
            messages = ours.poll()
        [(_, [buffer])] = messages
    assert bytes(buffer) == b"x" * (3 * LARGE)
    assert type(buffer.obj) is not Block
    ours.close()
    theirs.close()


def test_a_wrong_block_is_a_protocol_error(tmp_path: Path) -> None:
    for size in (LARGE, LARGE + 1):
        ours, theirs = ends()
        with (tmp_path / "file").open("w+b") as file:
            file.truncate(LARGE)
            header = encode_stream(Define(b"f", [], b"/", 1), [b"x" * size], {0})
            rights = struct.pack("=i", file.fileno())
            theirs._socket.sendmsg(header, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            with pytest.raises(ProtocolError):
                ours.poll()
        ours.close()
        theirs.close()


# ---------------------------------------------------------------- socket pairs


def test_both_ends_wait_although_new_sockets_have_a_time_limit() -> None:
    socket.setdefaulttimeout(0.5)
    try:
        ours, theirs = socket_pair()
    finally:
        socket.setdefaulttimeout(None)
    with ours, theirs:
        assert (ours.gettimeout(), theirs.gettimeout()) == (None, None)
