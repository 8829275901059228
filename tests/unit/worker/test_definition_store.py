"""An agent keeps large buffers in blocks, and a runner maps them."""

from __future__ import annotations

import functools
import gc
import os
from pathlib import Path

import pytest

from gridengine.serialize import pickling, shared_memory
from gridengine.serialize.payload import Buffer
from gridengine.serialize.shared_memory import (
    LARGE,
    ResultBlocks,
    StoredPayload,
    adopt,
    block_of,
    fetch,
    new_block,
    writable,
)
from gridengine.wire.messages import Define, Forget
from gridengine.worker import definition_store
from gridengine.worker.definition_store import DefinitionStore
from tests.support.agent_driver import played_agent
from tests.support.runner_driver import RunnerDriver
from tests.unit.serialize.test_shared_memory import PAYLOAD, Array, first, open_blocks


@pytest.fixture(autouse=True)
def _no_blocks_of_earlier_tests() -> None:
    gc.collect()  # a cycle may hold one


@pytest.mark.linux
def test_an_agent_holds_received_buffers_in_a_block_until_they_are_forgotten() -> None:
    agent = played_agent()
    agent.handle(Define(b"f", [], b"/", len(PAYLOAD)), PAYLOAD)
    assert open_blocks() != []
    agent.handle(Forget([b"f"]))
    assert open_blocks() == []
    agent.close()


def test_a_runner_takes_large_buffers_from_the_block_and_its_writes_stay_private() -> None:
    driver = RunnerDriver()
    digest, payload = pickling.dump_function(
        functools.partial(first, Array(bytearray(b"x" * LARGE)))
    )
    assert isinstance(payload, StoredPayload)
    others = payload.others()
    define = Define(digest, [], os.getcwdb(), len(others), {payload.block.path: payload.places})  # noqa: PTH109
    driver.assign(functools.partial(first, Array(bytearray(b"x" * LARGE))), [ord("y")])
    driver.channel.incoming[0] = define, others
    driver.play()
    assert driver.values() == [ord("y")]
    assert memoryview(payload[1])[0] == ord("x")


def test_results_beyond_the_most_blocks_take_no_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(definition_store, "MOST_BLOCKS", 2)
    store = DefinitionStore()
    for number in range(3):
        store.add(Define(b"%d" % number, [], b"", len(PAYLOAD), result=True), PAYLOAD)
    kept = [len(payload) for _, payload in store.messages.values()]
    assert kept == [0, 0, len(PAYLOAD)]
    store.clear()


@pytest.mark.linux
def test_a_result_that_came_in_blocks_is_defined_by_them_without_a_copy() -> None:
    data = b"x" * LARGE
    large = [adopt(new_block(data), LARGE).toreadonly() for _ in range(2)]
    store = DefinitionStore()
    payload = [b"pickle", large[0], b"small", large[1]]
    store.add(Define(b"r", [], b"", len(payload), result=True), payload)
    message, others = store.messages[b"r"]
    assert others == [b"pickle", b"small"]
    assert list(message.blocks) == [one.obj.path for one in large]  # type: ignore[attr-defined]
    assert fetch(message.blocks, others) == [b"pickle", data, b"small", data]
    mine = memoryview(writable(large[0]))
    mine[0] = 1
    assert large[0][0] == ord("x")
    del large, payload, mine
    assert open_blocks() != []
    store.clear()
    assert open_blocks() == []


def test_a_result_of_small_buffers_is_held_once_in_the_block_that_runners_map() -> None:
    payload: list[Buffer] = [bytes([number]) * (LARGE // 4) for number in range(5)]
    store = DefinitionStore()
    store.hold(b"r", payload)
    message, others = store.messages[b"r"]
    [block] = store._blocks[b"r"]
    held = store.held[b"r"]
    assert store.results[b"r"] is held
    assert [memoryview(one).obj for one in held] == [block] * 5
    assert fetch(message.blocks, others) == list(held) == payload
    store.clear()


def kept_block(kept: ResultBlocks, letter: bytes) -> memoryview:
    view = adopt(new_block(letter * LARGE), LARGE)
    kept.keep([b"pickle", view])
    return view


@pytest.mark.linux
def test_the_descriptors_of_results_that_are_gone_are_those_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_memory, "MOST_BLOCKS", 2)
    kept = ResultBlocks()
    first, second = (kept_block(kept, letter) for letter in (b"a", b"b"))
    del first
    third, fourth = (kept_block(kept, letter) for letter in (b"c", b"d"))
    assert [block_of(one) is not None for one in (second, third, fourth)] == [True, True, False]
    assert bytes(writable(fourth.toreadonly())) == b"d" * LARGE


def is_in_file(view: memoryview) -> bool:
    block = block_of(view)
    assert block is not None
    return "memfd" not in str(Path(block.path).readlink())


def in_memory() -> int:
    return len(open_blocks())


@pytest.mark.linux
def test_beyond_their_share_of_memory_the_oldest_definitions_lie_in_files(tmp_path: Path) -> None:
    kept = ResultBlocks(2 * LARGE, tmp_path / "runs")
    views = [kept_block(kept, letter) for letter in (b"a", b"b", b"c", b"d")]
    assert list(map(is_in_file, views)) == [True, True, False, False]
    assert in_memory() == 2
    assert list((tmp_path / "runs").iterdir()) == []
    for view, letter in zip(views, b"abcd", strict=True):
        assert bytes(view) == bytes([letter]) * LARGE
        block = block_of(view)
        assert block is not None
        [there] = fetch({block.path: [(0, 0, LARGE)]}, [])
        there[0] = 0  # type: ignore[index]
        assert memoryview(writable(view.toreadonly()))[0] == letter
    del views[3], view, block, there
    kept_block(kept, b"e")
    assert not is_in_file(views[2])


@pytest.mark.linux
def test_a_full_disk_is_an_error_and_other_definitions_stay(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = ResultBlocks(LARGE, tmp_path / "file")
    first = kept_block(kept, b"a")
    with pytest.raises(OSError, match="file"):
        kept_block(kept, b"b")
    assert bytes(first) == b"a" * LARGE
    assert in_memory() == 1


@pytest.mark.linux
def test_results_that_were_sent_to_an_agent_count_as_those_made_there(tmp_path: Path) -> None:
    agent = played_agent(result_blocks=ResultBlocks(LARGE, tmp_path))
    for name in (b"1", b"2"):
        agent.handle(Define(name, [], b"", 2, result=True), [b"pickle", name * LARGE])
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == 1
    for name in (b"1", b"2"):
        message, others = agent._definitions.messages[name]
        assert fetch(message.blocks, others) == [b"pickle", name * LARGE]
    agent.handle(Forget([b"1", b"2"]))
    assert (str(tmp_path) in Path("/proc/self/maps").read_text(), open_blocks()) == (False, [])
    agent.close()
