"""Blocks: large buffers of a function in memory that other processes can map, in this one
process.
"""

from __future__ import annotations

import errno
import functools
import os
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gridengine.errors import PicklingError
from gridengine.serialize import pickling, shared_memory
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import (
    LARGE,
    ResultBlocks,
    StoredPayload,
    fetch,
    in_own_block,
    store,
)
from tests.support.open_files import open_files

FIRST, SECOND = b"a" * LARGE, b"b" * (LARGE + 1)
PAYLOAD: list[Buffer] = [b"pickle", FIRST, b"small", SECOND]


class Array:
    """What stands for an array: a buffer that pickle passes on as it is."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return Array, (pickle.PickleBuffer(self.data),)


def first(array: Array, value: int = -1) -> int:
    """Return the first byte; write one there if it is given."""
    if value >= 0:
        array.data[0] = value
    return int(array.data[0])


def stored() -> StoredPayload:
    payload = store(PAYLOAD)
    assert isinstance(payload, StoredPayload)
    return payload


def open_blocks() -> list[str]:
    return open_files("gridengine-block")


def test_a_stored_payload_is_unchanged_and_its_small_buffers_stay_out_of_the_block() -> None:
    payload = stored()
    assert payload.others() == [b"pickle", b"small"]
    for found in (payload, fetch({payload.block.path: payload.places}, payload.others())):
        assert [bytes(buffer) for buffer in found] == PAYLOAD


def test_the_pickle_itself_stays_out_of_the_block() -> None:
    payload: list[Buffer] = [bytes(2 * LARGE), b"small"]
    assert store(payload) is payload


def test_a_stored_payload_is_not_stored_again() -> None:
    payload = stored()
    assert store(payload) is payload


def test_a_payload_stays_where_no_block_can_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "Block", Mock(side_effect=OSError(errno.ENOMEM, "none")))
    assert store(PAYLOAD) is PAYLOAD


def test_writes_to_a_fetched_payload_are_not_seen_elsewhere() -> None:
    payload = stored()
    mine = memoryview(payload.fetch()[1])
    mine[0] = 0
    assert (mine[0], memoryview(payload[1])[0], memoryview(payload.fetch()[1])[0]) == (
        0,
        ord("a"),
        ord("a"),
    )


def test_a_block_cannot_be_written_to_by_a_payload() -> None:
    with pytest.raises(TypeError):
        memoryview(stored()[1])[0] = 0


def test_a_fetched_payload_outlives_the_block() -> None:
    payload = stored()
    mine, gone = payload.fetch(), weakref.ref(payload.block)
    del payload
    assert gone() is None
    assert bytes(mine[3]) == SECOND


@pytest.mark.linux
def test_a_block_goes_with_its_payload_and_the_last_of_its_buffers() -> None:
    payload = stored()
    buffer = payload[3]
    del payload
    assert bytes(buffer) == SECOND
    assert open_blocks() != []
    del buffer
    assert open_blocks() == []


def test_without_descriptors_a_payload_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, str]:
        raise OSError("no descriptor left")

    monkeypatch.setattr(shared_memory, "openable_memory", refuse)
    assert store(PAYLOAD) == PAYLOAD
    _, payload = pickling.dump_function(functools.partial(first, Array(bytearray(b"x" * LARGE))))
    assert not isinstance(payload, StoredPayload)
    assert pickling.load_function(payload)[0]() == ord("x")


@pytest.mark.linux
def test_a_process_closed_to_others_makes_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: Path("/proc/self/fd").stat().st_uid + 1)
    kept = store(PAYLOAD)
    assert not isinstance(kept, StoredPayload)
    assert kept == PAYLOAD


def test_without_another_thread_the_digest_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("no thread is to be had")

    before = stored().digest
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert stored().digest == before


def test_a_block_that_is_gone_is_an_error() -> None:
    payload = stored()
    path, places, others = payload.block.path, payload.places, payload.others()
    del payload
    with pytest.raises(FileNotFoundError):
        fetch({path: places}, others)


# ---------------------------------------------------------------- functions


@pytest.mark.parametrize("size", [LARGE, LARGE - 1])
def test_a_function_is_stored_with_its_large_buffers_alone(size: int) -> None:
    _, payload = pickling.dump_function(functools.partial(first, Array(bytearray(size))))
    assert isinstance(payload, StoredPayload) is (size == LARGE)
    assert not isinstance(payload, StoredPayload) or len(payload.others()) == 1


def test_later_changes_of_stored_data_change_nothing() -> None:
    data = bytearray(b"x" * LARGE)
    _, payload = pickling.dump_function(functools.partial(first, Array(data)))
    data[0] = ord("y")
    assert pickling.load_function(payload)[0]() == ord("x")


def test_a_function_with_too_much_to_digest_is_like_no_other() -> None:
    def digest_of(most: float) -> bytes:
        return pickling.dump_function(
            functools.partial(first, Array(bytearray(LARGE))), most_digested=most
        )[0]

    assert digest_of(LARGE - 1) != digest_of(LARGE - 1)
    assert digest_of(LARGE) == digest_of(LARGE)


@pytest.mark.parametrize("place", [0, LARGE // 2, 2 * LARGE - 1])
def test_functions_that_differ_in_a_large_buffer_have_digests_that_differ(place: int) -> None:
    data = bytearray(2 * LARGE)
    before, _ = pickling.dump_function(functools.partial(first, Array(data)))
    data[place] = 1
    after, _ = pickling.dump_function(functools.partial(first, Array(data)))
    assert before != after


def test_a_function_that_cannot_be_pickled_leaves_no_block() -> None:
    with pytest.raises(PicklingError):
        pickling.dump_function(
            functools.partial(print, Array(bytearray(LARGE)), (letter for letter in "ab"))
        )
    assert open_blocks() == []


def test_a_block_of_this_process_can_be_moved_to_a_file(tmp_path: Path) -> None:
    assert in_own_block(b"small") == b"small"
    content = os.urandom(LARGE)
    moved, view = in_own_block(content), in_own_block(bytearray(LARGE))
    kept = ResultBlocks(LARGE, tmp_path)
    kept.keep([b"small", moved, view])
    assert bytes(moved) == content
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == 1
    del moved
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == 0
