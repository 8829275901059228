"""What the journal has of what a client has handed in, and what the next process has of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridengine.dispatcher import journal_limits, journal_rows
from gridengine.errors import ConfigurationError
from gridengine.journal.writer import Act
from gridengine.serialize import pickling
from gridengine.wire.framing import decode
from gridengine.wire.messages import (
    ChildForget,
    ChildSupply,
    ChildTasks,
    ChildWant,
    Durable,
    FinishedItem,
    FunctionItem,
    SharedItem,
    TaskItem,
)
from tests.support.journaled_client import Process, again, finish, hand_in


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / "journal.sqlite")
    yield made
    made.file.close()


def test_what_was_acknowledged_is_in_the_files_as_they_are_then(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1, 2)
    process.sync()
    assert process.sent.messages[-1] == Durable(1)
    other = again(process, tmp_path)
    assert other.record.seen == 1
    assert other.tasks() == [1, 2]
    assert [buffers for _, buffers in other.replayed] == [[b"function"], [b"1", b"2"]]
    other.file.close()


def test_a_kill_between_two_commits_has_no_call_run_again_that_the_client_has(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(process, 1)
    finish(process, 1)
    process.sync()
    [outcome] = process.sent.outcomes()
    changes: list[Act] = []
    monkeypatch.setattr(process.file._writer, "do", lambda act, then=None: changes.append(act))
    process.record.taken([outcome.number])
    monkeypatch.undo()
    process.file._writer.do(changes[0])
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == []
    other.file.close()


def test_tasks_that_have_ended_are_not_handed_in_again(process: Process, tmp_path: Path) -> None:
    hand_in(process, 1, 2, 3)
    finish(process, 1)
    finish(process, 2)
    process.record.taken([1])
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [3]
    other.record.resume()
    assert [one.outcomes[0].task for one in other.sent.outcomes()] == [2]
    other.file.close()


def test_calls_that_have_ended_of_a_task_are_told_apart(process: Process, tmp_path: Path) -> None:
    hand_in(process, 1, count=10)
    finish(process, 1, 0, 4, last=False)
    process.sync()
    process.record.taken([1])
    finish(process, 1, 6, 8, last=False)
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [1]
    assert other.settled == {1: [(0, 4), (6, 8)]}
    other.file.close()


def test_the_calls_are_counted_that_the_client_does_not_know_of(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1, 2, count=10)
    finish(process, 1, 0, 4, last=False)
    process.sync()
    process.record.taken([1])
    finish(process, 1, 6, 8, last=False)
    process.sync()
    other = again(process, tmp_path)
    for record in (process.record, other.record):
        assert (record.owed, record.owed_calls) == (2, 16)
    finish(process, 2, 0, 10)
    process.record.taken([2, 3])
    assert (process.record.owed, process.record.owed_calls) == (1, 4)
    other.file.close()


def test_nothing_is_left_of_what_a_client_has_taken(process: Process) -> None:
    hand_in(process, 1, 2)
    process.record.take(ChildForget(0, functions=[b"digest"]), [])
    finish(process, 1)
    finish(process, 2)
    process.record.taken([1, 2])
    assert [process.rows(table) for table in ("requests", "ended", "outcomes")] == [0, 0, 0]


def test_a_function_stays_until_no_older_task_is_left(process: Process) -> None:
    hand_in(process, 1, 2)
    process.record.take(ChildForget(0, functions=[b"digest"]), [])
    finish(process, 1)
    process.record.taken([1])
    assert process.rows("requests") == 3
    finish(process, 2)
    process.record.taken([2])
    assert process.rows("requests") == 0


def test_a_result_that_others_need_stays_until_it_is_released(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1, kept=[(0, 50)])
    hand_in(process, 2, defines=False, after=[50])
    finish(process, 1)
    process.record.taken([1])
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [2]
    message, buffers = other.replayed[-1]
    assert (message.reference, list(buffers)) == (50, [b"result"])  # type: ignore[union-attr]
    other.file.close()


@pytest.mark.parametrize(
    ("outcome", "raised", "cancelled"),
    [
        pytest.param({"ended": True}, True, True, id="killed"),
        pytest.param({}, True, False, id="lost"),
        pytest.param({"recalled": True, "path": ["f"]}, True, True, id="its input was cancelled"),
    ],
)
def test_what_needs_a_call_that_was_ended_is_cancelled_after_a_restart_too(
    process: Process, tmp_path: Path, outcome: dict[str, Any], raised: bool, cancelled: bool
) -> None:
    hand_in(process, 1, kept=[(0, 50)])
    hand_in(process, 2, defines=False, after=[50])
    item = FinishedItem(1, 0, 1, failed=True, last=True, **outcome)
    process.record.finish([item], [b"error"])
    process.record.taken([1])
    process.sync()
    other = again(process, tmp_path)
    message, _ = other.replayed[-1]
    assert isinstance(message, ChildSupply)
    assert (message.raised, message.cancelled) == (raised, cancelled)
    other.file.close()


def test_a_result_that_was_found_to_be_needed_stays_over_two_restarts(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1)
    process.record.take(ChildWant(0, 1, 0, 50), [])
    hand_in(process, 2, defines=False, after=[50])
    process.sync()
    first = again(process, tmp_path)
    finish(first, 1)
    first.record.taken([1])
    first.sync()
    second = again(first, tmp_path / "second")
    assert second.tasks() == [2]
    supplies = [one for one in second.replayed if isinstance(one[0], ChildSupply)]
    assert [(one.reference, list(its)) for one, its in supplies] == [(50, [b"result"])]  # type: ignore[union-attr]
    first.file.close()
    second.file.close()


@pytest.mark.parametrize("size", [10, journal_rows.LARGE])
def test_a_row_is_a_msgpack_array_of_frames_whatever_its_size(process: Process, size: int) -> None:
    process.record.take(ChildTasks(0, 0, b"f", [TaskItem(1, buffers=2)]), [bytes(size), b"x" * 9])
    process.sync()
    [(content,)] = process.file.read("SELECT content FROM requests")
    message, buffers = decode(msgspec.msgpack.decode(content))
    assert isinstance(message, ChildTasks)
    assert list(map(bytes, buffers)) == [bytes(size), b"x" * 9]


def test_what_is_too_long_for_a_row_comes_in_several(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_rows, "ROW_BYTES", 10)
    tasks = [TaskItem(id) for id in range(1, 8)]
    buffers = [b"%d" % id * 4 for id in range(1, 8)]
    process.record.take(ChildTasks(0, 0, b"digest", tasks), buffers)
    assert process.rows("requests") == 4
    process.record.finish([FinishedItem(id, 0, 1, 1, last=True) for id in (1, 2, 3)], buffers[:3])
    assert [len(one.outcomes) for one in process.sent.outcomes()] == [2, 1]
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [4, 5, 6, 7]
    assert [its for _, its in other.replayed] == [[b"4444"], [b"5555", b"6666"], [b"7777"]]
    process.record.taken([1, 2])
    assert (process.rows("requests"), process.rows("ended")) == (3, 1)
    other.file.close()


@pytest.mark.parametrize(
    ("buffers", "words"),
    [
        ([b"too long", b"1", b"2", b"3"], "the function f has 8 bytes"),
        ([b"f", b"too long", b"2", b"3"], "a shared object has 8 bytes"),
        ([b"f", b"1", b"2", b"too long"], "the call fit has 8 bytes"),
    ],
)
def test_what_no_row_can_hold_is_refused_and_counts(
    process: Process, monkeypatch: pytest.MonkeyPatch, buffers: list[bytes], words: str
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    tasks = [TaskItem(1), TaskItem(2, name="fit")]
    shared, function = [SharedItem(b"s" * 16, ())], FunctionItem("f", [], b"/")
    with pytest.raises(ConfigurationError, match=words):
        process.record.take(ChildTasks(0, 0, b"digest", tasks, function, shared), buffers)
    assert process.rows("requests") == 0
    assert process.sent.messages == [Durable(1)]


@pytest.mark.parametrize("supplied", [True, False])
def test_a_needed_result_that_no_row_can_hold_is_told_as_lost_after_a_restart(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supplied: bool
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    if supplied:
        process.record.take(ChildSupply(0, 50, buffers=1), [b"result"])
    else:
        hand_in(process, 1, defines=False, kept=[(0, 50)])
        finish(process, 1)
        process.record.taken([1])
    hand_in(process, 2, defines=False, after=[50])
    process.sync()
    other = again(process, tmp_path)
    monkeypatch.undo()
    message, buffers = other.replayed[0]
    assert isinstance(message, ChildSupply)
    assert (message.reference, message.raised) == (50, True)
    assert "a result of 6 bytes that this call needs is lost" in str(
        pickling.load_exception(buffers)
    )
    assert other.tasks() == [2]
    other.file.close()
