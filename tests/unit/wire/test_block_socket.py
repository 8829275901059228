"""Buffers that go beside a session, as descriptors of blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.errors import MessageTooLong
from gridengine.serialize import shared_memory
from gridengine.serialize.shared_memory import adopt, new_block
from gridengine.wire import block_socket
from gridengine.wire.block_socket import BlockSocket
from gridengine.wire.channel import socket_pair
from gridengine.wire.framing import NUMBER

pytestmark = pytest.mark.linux

SIZE = 1 << 20


def descriptors() -> set[int]:
    return {int(one.name) for one in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def raw() -> tuple[socket.socket, socket.socket]:
    return socket_pair()


@pytest.fixture
def ends(raw: tuple[socket.socket, socket.socket]) -> Iterator[tuple[BlockSocket, BlockSocket]]:
    ends = BlockSocket(raw[0]), BlockSocket(raw[1])
    yield ends
    for end in ends:
        end.close()


@pytest.fixture(autouse=True)
def no_descriptor_stays() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


def test_buffers_are_taken_by_number_in_any_order(ends: tuple[BlockSocket, BlockSocket]) -> None:
    ours, theirs = ends
    first, second = ours.put(b"a" * SIZE), ours.put(b"b" * SIZE)
    assert bytes(theirs.take(second, SIZE)) == b"b" * SIZE
    assert bytes(theirs.take(first, SIZE)) == b"a" * SIZE


def test_the_receivers_writes_are_the_receivers_alone(
    ends: tuple[BlockSocket, BlockSocket],
) -> None:
    ours, theirs = ends
    buffer = adopt(new_block(bytes(SIZE)), SIZE)
    taken = theirs.take(ours.put(buffer), SIZE)
    taken[:2] = b"no"
    assert bytes(buffer[:2]) == bytes(2)
    del buffer


def test_a_block_is_sent_as_it_is(
    ends: tuple[BlockSocket, BlockSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    buffer = adopt(new_block(b"c" * SIZE), SIZE)
    monkeypatch.setattr(shared_memory, "new_block", lambda _: pytest.fail("it was copied"))
    assert bytes(theirs.take(ours.put(buffer), SIZE)) == b"c" * SIZE
    del buffer


def test_a_block_that_was_moved_to_a_file_is_copied(
    ends: tuple[BlockSocket, BlockSocket], tmp_path: Path
) -> None:
    ours, theirs = ends
    buffer = adopt(new_block(b"d" * SIZE), SIZE)
    buffer.obj.move_to_file(tmp_path)  # type: ignore[attr-defined]
    assert bytes(theirs.take(ours.put(buffer), SIZE)) == b"d" * SIZE
    del buffer


def test_nothing_is_put_once_the_socket_is_full_or_the_other_end_gone(
    ends: tuple[BlockSocket, BlockSocket],
) -> None:
    ours, theirs = ends
    buffer = adopt(new_block(bytes(SIZE)), SIZE)
    count = 0
    while ours.put(buffer):
        count += 1
    assert count > 1
    theirs.take(NUMBER.pack(count - 1), SIZE)
    assert ours.put(buffer) == NUMBER.pack(count)
    theirs.close()
    assert ours.put(buffer) == b""
    del buffer


@pytest.mark.parametrize("size", [SIZE + 1, SIZE - 1])
def test_a_block_of_another_size_is_refused(
    ends: tuple[BlockSocket, BlockSocket], size: int
) -> None:
    ours, theirs = ends
    with pytest.raises(MessageTooLong, match="has not arrived"):
        theirs.take(ours.put(bytes(SIZE)), size)


def test_a_block_that_does_not_fit_into_memory_is_refused_with_the_limit(
    ends: tuple[BlockSocket, BlockSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, size: int) -> memoryview:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(block_socket, "adopt", full)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (5000, -1))
    ours, theirs = ends
    with pytest.raises(MessageTooLong, match=r"which may have 5,000 bytes \(`ulimit -v`\)"):
        theirs.take(ours.put(bytes(SIZE)), SIZE)


def test_memory_that_its_sender_could_change_is_refused(
    raw: tuple[socket.socket, socket.socket],
) -> None:
    fd = os.memfd_create("open", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    socket.send_fds(raw[0], [NUMBER.pack(0)], [fd])
    os.close(fd)
    theirs = BlockSocket(raw[1])
    with pytest.raises(MessageTooLong, match="no block"):
        theirs.take(NUMBER.pack(0), SIZE)
    theirs.close()
    raw[0].close()


def test_a_block_that_never_came_is_told(ends: tuple[BlockSocket, BlockSocket]) -> None:
    ours, theirs = ends
    with pytest.raises(MessageTooLong, match="BlockingIOError"):
        theirs.take(NUMBER.pack(0), SIZE)
    ours._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(MessageTooLong, match="the other end is gone"):
        theirs.take(NUMBER.pack(0), SIZE)


def test_a_process_that_has_all_its_descriptors_in_use_takes_blocks(
    ends: tuple[BlockSocket, BlockSocket],
) -> None:
    ours, theirs = ends
    number = ours.put(b"e" * SIZE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(descriptors()) + 2, hard))
    fillers = []
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        assert bytes(theirs.take(number, SIZE)) == b"e" * SIZE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)
