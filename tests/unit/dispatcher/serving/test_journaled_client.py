"""What the journal has of what came of a client's calls, and when the client is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.serving import shared_journal
from gridengine.dispatcher.serving.shared_journal import LARGE
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.serialize import pickling
from gridengine.serialize.payload import Buffer
from gridengine.wire.messages import Checked, Durable, Finished, FinishedItem
from tests.support.journaled_client import HELLO, Process, again, finish, hand_in


@pytest.fixture
def other_language(tmp_path: Path) -> Iterator[Process]:
    """One whose client does not tell apart calls that come twice."""
    with Process(tmp_path / "journal.sqlite", replace(HELLO, codec="json"), patient=True) as made:
        yield made


def test_calls_that_were_taken_back_are_told_when_that_is_on_disk(process: Process) -> None:
    hand_in(process, 1, 2)
    process.record.finish([FinishedItem(1, 0, 1, recalled=True, last=True)], [])
    assert not process.sent.outcomes()
    process.record.finish([FinishedItem(2, 0, 1, recalled=True, last=True, path=["f"])], [])
    assert [one.outcomes[0].task for one in process.sent.outcomes()] == [2]
    process.sync()
    assert [one.outcomes[0].task for one in process.sent.outcomes()] == [2, 1]


def test_an_answer_comes_behind_outcomes_that_wait(other_language: Process) -> None:
    process = other_language
    first, second = Checked(0, 1), Checked(0, 2)
    process.record.answer(first, ())
    hand_in(process, 1, count=2)
    finish(process, 1, 0, 1, last=False)
    process.record.answer(second, ())
    assert process.sent.messages == [first]
    process.sync()
    kinds = [type(one) for one in process.sent.messages if type(one) is not Durable]
    assert kinds == [Checked, Finished, Checked]


@pytest.mark.parametrize("apart", [True, False])
def test_a_part_of_a_task_is_sent_at_once_to_a_client_that_recognises_calls(
    process: Process, other_language: Process, apart: bool
) -> None:
    process = process if apart else other_language
    hand_in(process, 1, count=2)
    finish(process, 1, 1, 2, last=False)
    finish(process, 1, 0, 1)
    assert bool(process.sent.outcomes()) is apart
    process.sync()
    assert [one.outcomes[0].start for one in process.sent.outcomes()] == [1, 0]


def test_parts_of_a_task_are_sent_after_its_recalled_calls(process: Process) -> None:
    hand_in(process, 1, count=3)
    process.record.finish([FinishedItem(1, 2, 3, recalled=True)], [])
    finish(process, 1, 0, 2)
    assert not process.sent.outcomes()
    process.sync()
    assert [one.outcomes[0].start for one in process.sent.outcomes()] == [2, 0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_result_that_others_need_is_sent_when_it_is_on_disk(process: Process, count: int) -> None:
    hand_in(process, 1, count=count, kept=[(0, 50)])
    finish(process, 1, last=count == 1)
    assert not process.sent.outcomes()
    process.sync()
    assert len(process.sent.outcomes()) == 1


def finish_large(process: Process, start: int = 0, *, last: bool = True) -> None:
    """Have a result that is so large that it is not written while it may be taken."""
    process.record.finish([FinishedItem(1, start, start + 1, 1, last=last)], [bytes(LARGE)])


def test_outcomes_taken_soon_are_never_written(
    hasty: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(hasty, 1, count=2, defines=False)
    hasty.sync()
    monkeypatch.setattr(shared_journal.RowContent, "__conform__", lambda self, protocol: 1 / 0)
    finish_large(hasty, last=False)
    hasty.record.taken([1])
    hasty.commit()
    other = again(hasty, tmp_path)
    assert (other.tasks(), other.settled) == ([1], {1: [(0, 1)]})
    finish_large(hasty, 1)
    hasty.record.taken([2])
    assert [hasty.rows(table) for table in ("requests", "ended", "outcomes")] == [0, 0, 0]


def test_outcomes_not_taken_in_time_are_written(hasty: Process, tmp_path: Path) -> None:
    hand_in(hasty, 1, defines=False)
    finish_large(hasty)
    hasty.commit()
    early = again(hasty, tmp_path / "early")
    assert early.tasks() == [1]
    hasty.sync()
    assert not hasty.record._later
    late = again(hasty, tmp_path)
    assert not late.tasks()
    late.record.resume()
    assert len(late.sent.outcomes()) == 1
    hasty.record.taken([1])
    assert [hasty.rows(table) for table in ("requests", "ended", "outcomes")] == [0, 0, 0]


@pytest.mark.parametrize("connected", [True, False])
def test_the_last_part_of_a_task_is_not_on_disk_before_others(
    hasty: Process, tmp_path: Path, connected: bool
) -> None:
    hand_in(hasty, 1, count=2)
    finish_large(hasty, last=False)
    hasty.sent.connected = connected
    finish(hasty, 1, 1, 2)
    hasty.commit()
    other = again(hasty, tmp_path)
    assert other.tasks() == ([1] if connected else [])
    assert not other.settled
    assert other.record.ready == (0 if connected else 2)


def test_a_returning_client_is_sent_unwritten_outcomes(hasty: Process) -> None:
    hand_in(hasty, 1, 2)
    finish_large(hasty)
    hasty.record.resume()
    hasty.commit()
    assert [one.number for one in hasty.sent.outcomes()] == [1]
    hasty.sync()
    assert [one.number for one in hasty.sent.outcomes()] == [1, 1]


def test_nothing_is_written_of_a_forgotten_client(process: Process) -> None:
    hand_in(process, 1)
    finish_large(process)
    process.record.delete()
    assert [process.rows(table) for table in ("clients", "requests", "outcomes")] == [0, 0, 0]


@pytest.mark.parametrize("end", ["taken", "written", "deleted"])
def test_messages_of_workers_are_acknowledged_when_taken_or_on_disk(
    hasty: Process, end: str
) -> None:
    acknowledged: list[str] = []
    hasty.file.after_later(lambda: acknowledged.append("before"))
    hand_in(hasty, 1, 2)
    finish_large(hasty)
    hasty.file.after_later(lambda: acknowledged.append("behind"))
    hasty.commit()
    assert acknowledged == ["before"]
    if end == "written":
        hasty.sync()
    else:
        hasty.record.taken([1]) if end == "taken" else hasty.record.delete()
        assert acknowledged == ["before"]  # what it ended with is not on disk
        hasty.commit()
    assert acknowledged == ["before", "behind"]


@pytest.mark.parametrize("options", [{"codec": "json"}, {"keep": "night"}])
def test_outcomes_that_others_may_want_are_written_at_once(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    hasty = Process(tmp_path / "journal.sqlite", replace(HELLO, **options))
    hand_in(hasty, 1)
    finish_large(hasty)
    hasty.commit()
    other = again(hasty, tmp_path)
    assert not other.tasks()
    hasty.file.close()


def test_outcomes_of_a_client_that_is_away_wait_on_disk(process: Process) -> None:
    hand_in(process, *range(1, 201))
    process.sent.connected = False
    for id in range(1, 201):
        finish(process, id)
    process.sync()
    assert not process.sent.outcomes()
    process.sent.connected = True
    process.record.resume()
    got: list[int] = []
    while len(got) < 200:
        new = [one.number for one in process.sent.outcomes()][len(got) :]
        assert 0 < len(new) <= 64
        got += new
        process.record.taken(new)
    assert got == sorted(set(got))


def test_an_outcome_that_no_row_can_hold_waits_in_memory(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    hand_in(process, 1, defines=False)
    process.sent.connected = False
    finish(process, 1)
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [1]
    process.sent.connected = True
    process.record.resume()
    assert len(process.sent.outcomes()) == 1
    process.record.taken([1])
    assert process.rows("requests") == 0


@pytest.mark.parametrize(
    ("codec", "load"),
    [
        ("pickle", lambda buffers: pickling.load_exception(buffers).args[0]),
        ("json", lambda buffers: msgspec.json.decode(buffers[0])["message"]),
    ],
)
@pytest.mark.parametrize(
    ("retries", "count", "outcomes"),
    [
        pytest.param(0, 1, [(0, 1, True)], id="may run only once"),
        pytest.param(2, 3, [(0, 1, True), (1, 3, False)], id="a part of a task"),
    ],
)
def test_an_outcome_that_no_row_can_hold_is_told_as_lost_where_its_calls_cannot_run_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    retries: int,
    count: int,
    outcomes: list[tuple[int, int, bool]],
    codec: str,
    load: Callable[[Sequence[Buffer]], str],
) -> None:
    process = Process(tmp_path / "journal.sqlite", replace(HELLO, codec=codec))
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    hand_in(process, 1, defines=False, count=count, retries=retries)
    process.sent.connected = False
    finish(process, 1, last=count == 1)
    if count > 1:
        process.record.finish([FinishedItem(1, 1, count, 1, last=True)], [b"small"])
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == []
    other.record.resume()
    items = [one for message in other.sent.outcomes() for one in message.outcomes]
    assert [(one.start, one.stop, one.failed) for one in items] == outcomes
    assert "a result of 6 bytes is lost" in load(other.sent.buffers[0])
    other.record.taken([1, 2])
    assert other.rows("requests") == 0
    process.sent.connected = True
    process.record.resume()  # while this process lives, it has the result
    assert not any(one.failed for one in process.sent.outcomes()[0].outcomes)
    process.file.close()


def test_outcomes_that_cannot_be_read_now_are_sent_later(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*args: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    hand_in(process, 1)
    process.sent.connected = False
    finish(process, 1)
    process.sync()
    process.sent.connected = True
    monkeypatch.setattr(process.file, "read", locked)
    process.record.resume()
    assert process.record.is_stuck
    assert not process.sent.outcomes()
    monkeypatch.undo()
    process.record.send_waiting()
    assert not process.record.is_stuck
    assert len(process.sent.outcomes()) == 1


def test_outcomes_do_not_wait_for_a_disk_that_takes_nothing(
    other_language: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = other_language
    hand_in(process, 1, count=2)
    finish(process, 1, 0, 1, last=False)
    assert not process.sent.outcomes()
    monkeypatch.setattr(DispatcherFile, "failure", OSError("disk full"))
    assert process.record.is_stuck
    process.record.send_waiting()
    assert len(process.sent.outcomes()) == 1
    assert Durable(1) not in process.sent.messages


@pytest.mark.parametrize(("retries", "told"), [(0, [2]), (2, [2, 1])])
def test_calls_taken_back_that_may_run_only_once_wait_for_a_disk_that_takes_nothing(
    process: Process, monkeypatch: pytest.MonkeyPatch, retries: int, told: list[int]
) -> None:
    hand_in(process, 1, retries=retries)
    hand_in(process, 2, defines=False)
    with monkeypatch.context() as full:
        full.setattr(DispatcherFile, "failure", OSError("disk full"))
        process.record.finish([FinishedItem(1, 0, 1, recalled=True, last=True)], [])
        finish(process, 2)
        process.record.send_waiting()
        assert [one.outcomes[0].task for one in process.sent.outcomes()] == told
    process.sync()
    assert [one.outcomes[0].task for one in process.sent.outcomes()] == [2, 1]


def test_a_take_over_on_a_full_disk_waits_until_outcomes_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(tmp_path / "journal.sqlite", replace(HELLO, keep="night"))
    hand_in(process, 1)
    process.sync()
    with monkeypatch.context() as full:
        full.setattr(DispatcherFile, "failure", OSError("disk full"))
        finish(process, 1)
        process.record.leave(1e9)
        process.record.resume()
        assert len(process.sent.outcomes()) == 1  # before it left
    process.sync()
    assert len(process.sent.outcomes()) == 2
    process.file.close()


def test_outcomes_of_a_client_that_is_gone_lie_on_disk_and_not_in_memory(process: Process) -> None:
    hand_in(process, *range(1, 201))
    for id in range(1, 65):
        finish(process, id)
    process.sent.connected = False
    process.record.leave(1e9)
    for id in range(65, 201):
        finish(process, id)
    process.sync()
    assert process.rows("outcomes") == 200
    assert not process.record._held
    assert (process.record.owed, process.record.ready) == (200, 200)
    assert process.journal.absent() == {7: 1e9}


def test_a_take_over_after_a_restart_is_sent_earlier_outcomes_again(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1, 2)
    finish(process, 1)
    process.record.leave(1e9)
    process.sync()
    other = again(process, tmp_path)
    assert other.journal.absent() == {7: 1e9}
    other.record.resume()
    assert [one.outcomes[0].task for one in other.sent.outcomes()] == [1]
    other.record.delete()
    assert not other.rows("absent")
