"""What the journal has of a client, and what it gives back when the dispatcher is started again."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher import client_record, journal_limits, journal_rows
from gridengine.dispatcher.client_journal import Journal
from gridengine.dispatcher.client_record import ClientRecord
from gridengine.errors import ConfigurationError
from gridengine.journal import writer
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.journal.writer import Act
from gridengine.serialize import pickling
from gridengine.serialize.payload import Buffer
from gridengine.wire.framing import decode
from gridengine.wire.messages import (
    VERSION,
    Checked,
    ChildForget,
    ChildrenFinished,
    ChildSupply,
    ChildTasks,
    ChildWant,
    ClientHello,
    Durable,
    FinishedItem,
    FunctionItem,
    Message,
    SharedItem,
    TaskItem,
)

HELLO = ClientHello(VERSION, "1", VERSION, "3.11", "host", 1)
PEER = b"p" * 16


class Sent:
    """A client's end: what it was sent while it was connected."""

    def __init__(self) -> None:
        self.connected = True
        self.messages: list[Message] = []
        self.buffers: list[Sequence[Buffer]] = []
        """Those of outcomes."""

    def __call__(self, message: Message, buffers: Sequence[Buffer] = ()) -> bool:
        if self.connected:
            self.messages.append(message)
            if isinstance(message, ChildrenFinished):
                self.buffers.append(buffers)
        return self.connected

    def outcomes(self) -> list[ChildrenFinished]:
        return [one for one in self.messages if isinstance(one, ChildrenFinished)]


class Process:
    """A dispatcher's journal with one client."""

    def __init__(self, path: Path, hello: ClientHello = HELLO) -> None:
        self.file = DispatcherFile(path)
        self.woken = threading.Event()
        self.file.wake = self.woken.set
        self.journal = Journal(self.file)
        self.sent = Sent()
        self.settled: dict[int, list[tuple[int, int]]] = {}
        self.replayed: list[tuple[Message, Sequence[Buffer]]] = []
        found = list(self.journal.clients())
        if found:
            [(number, peer, hello, seen)] = found
            assert peer == PEER
            self.record = ClientRecord(self.journal, number, hello, self.sent, seen)
            self.replayed = list(self.record.replay(self.settled))
        else:
            self.journal.add(7, PEER, hello)
            self.record = ClientRecord(self.journal, 7, hello, self.sent)

    def sync(self) -> None:
        """Wait until all is on disk, and settle that."""
        done: list[bool] = []
        self.file.write("DELETE FROM ended WHERE 0", [], lambda: done.append(True))
        self.file._writer.flush()
        self.journal.settle()
        assert done

    def commit(self) -> None:
        """Wait until all is on disk but for what is written later, and settle that."""
        done = threading.Event()
        self.file.write("DELETE FROM ended WHERE 0", [], done.set)
        while not done.is_set():
            self.woken.wait(60)
            self.woken.clear()
            self.journal.settle()

    def rows(self, table: str) -> int:
        self.sync()
        found: int = self.file.read(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found

    def tasks(self) -> list[int]:
        return [
            task.id
            for message, _ in self.replayed
            if isinstance(message, ChildTasks)
            for task in message.tasks
        ]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / "journal.sqlite")
    yield made
    made.file.close()


@pytest.fixture
def other_language(tmp_path: Path) -> Iterator[Process]:
    """One whose client does not tell apart calls that come twice."""
    made = Process(tmp_path / "journal.sqlite", replace(HELLO, codec="json"))
    yield made
    made.file.close()


def hand_in(
    process: Process, *ids: int, count: int = 1, defines: bool = True, **options: object
) -> None:
    function = FunctionItem("f", [], b"/") if defines else None
    tasks = [TaskItem(id, count, **options) for id in ids]  # type: ignore[arg-type]
    buffers = [b"function"] * defines + [b"%d" % id for id in ids]
    process.record.take(ChildTasks(0, 0, b"digest", tasks, function), buffers)


def finish(process: Process, id: int, start: int = 0, stop: int = 1, *, last: bool = True) -> None:
    process.record.finish([FinishedItem(id, start, stop, 1, last=last)], [b"result"])


def again(process: Process, tmp_path: Path) -> Process:
    """Return another process with a copy of the file as it is on disk just now."""
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in process.file.path.parent.glob("journal.sqlite*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, folder / path.name)
    return Process(folder / "journal.sqlite")


def test_a_client_is_told_what_is_on_disk(process: Process) -> None:
    hand_in(process, 1)
    hand_in(process, 2, defines=False)
    process.sync()
    assert process.sent.messages[-1] == Durable(2)


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
    assert kinds == [Checked, ChildrenFinished, Checked]


def test_a_part_of_a_task_is_sent_at_once_to_who_tells_calls_apart(process: Process) -> None:
    hand_in(process, 1, count=2)
    finish(process, 1, 1, 2, last=False)
    finish(process, 1, 0, 1)
    assert [one.outcomes[0].start for one in process.sent.outcomes()] == [1, 0]


def test_parts_of_a_task_are_sent_behind_what_was_taken_back_of_it(process: Process) -> None:
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


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results are large, and none is written that may be taken."""
    monkeypatch.setattr(client_record, "LARGE", 0)
    monkeypatch.setattr(writer, "LATER_SECONDS", 3600)


@pytest.mark.usefixtures("large")
def test_what_is_taken_soon_is_never_written(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(process, 1, count=2, defines=False)
    process.sync()
    monkeypatch.setattr(journal_rows.RowContent, "__conform__", lambda self, protocol: 1 / 0)
    finish(process, 1, 0, 1, last=False)
    process.record.taken([1])
    process.commit()
    other = again(process, tmp_path)
    assert (other.tasks(), other.settled) == ([1], {1: [(0, 1)]})
    other.file.close()
    finish(process, 1, 1, 2)
    process.record.taken([2])
    assert [process.rows(table) for table in ("requests", "ended", "outcomes")] == [0, 0, 0]


@pytest.mark.usefixtures("large")
def test_what_is_not_taken_in_time_is_written(process: Process, tmp_path: Path) -> None:
    hand_in(process, 1, defines=False)
    finish(process, 1)
    process.commit()
    early = again(process, tmp_path / "early")
    assert early.tasks() == [1]
    early.file.close()
    process.sync()  # it hurries
    assert not process.record._later
    late = again(process, tmp_path)
    assert not late.tasks()
    late.record.resume()
    assert len(late.sent.outcomes()) == 1
    late.file.close()
    process.record.taken([1])
    assert [process.rows(table) for table in ("requests", "ended", "outcomes")] == [0, 0, 0]


@pytest.mark.parametrize("connected", [True, False])
def test_the_last_part_of_a_task_is_not_on_disk_before_others(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    monkeypatch.setattr(writer, "LATER_SECONDS", 3600)
    monkeypatch.setattr(client_record, "LARGE", 10)
    hand_in(process, 1, count=2)
    process.record.finish([FinishedItem(1, 0, 1, 1)], [b"large result"])
    process.sent.connected = connected
    finish(process, 1, 1, 2)
    process.commit()
    other = again(process, tmp_path)
    assert other.tasks() == ([1] if connected else [])
    assert not other.settled
    assert other.record.ready == (0 if connected else 2)
    other.file.close()


@pytest.mark.usefixtures("large")
def test_who_comes_back_is_sent_what_is_not_written_yet(process: Process) -> None:
    hand_in(process, 1, 2)
    finish(process, 1)
    process.record.resume()
    process.commit()
    assert [one.number for one in process.sent.outcomes()] == [1]
    process.sync()
    assert [one.number for one in process.sent.outcomes()] == [1, 1]


@pytest.mark.usefixtures("large")
def test_of_a_client_that_is_forgotten_nothing_is_written_later(process: Process) -> None:
    hand_in(process, 1)
    finish(process, 1)
    process.record.delete()
    assert [process.rows(table) for table in ("clients", "requests", "outcomes")] == [0, 0, 0]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("end", ["taken", "written", "deleted"])
def test_what_workers_sent_is_acknowledged_when_it_is_taken_or_on_disk(
    process: Process, end: str
) -> None:
    acknowledged: list[str] = []
    process.file.after_later(lambda: acknowledged.append("before"))
    hand_in(process, 1, 2)
    finish(process, 1)
    process.file.after_later(lambda: acknowledged.append("behind"))
    process.commit()
    assert acknowledged == ["before"]
    if end == "written":
        process.sync()
    else:
        process.record.taken([1]) if end == "taken" else process.record.delete()
        assert acknowledged == ["before"]  # what it ended with is not on disk
        process.commit()
    assert acknowledged == ["before", "behind"]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("options", [{"codec": "json"}, {"keep": "night"}])
def test_what_a_client_has_that_others_may_want_is_written_at_once(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    process = Process(tmp_path / "journal.sqlite", replace(HELLO, **options))
    hand_in(process, 1)
    finish(process, 1)
    process.commit()
    other = again(process, tmp_path)
    assert not other.tasks()
    other.file.close()
    process.file.close()


def test_a_part_of_a_task_is_sent_when_it_is_on_disk_to_who_does_not(
    other_language: Process,
) -> None:
    process = other_language
    hand_in(process, 1, count=2)
    finish(process, 1, 1, 2, last=False)
    finish(process, 1, 0, 1)
    assert not process.sent.outcomes()
    process.sync()
    assert [one.outcomes[0].start for one in process.sent.outcomes()] == [1, 0]


def test_a_client_may_say_twice_what_it_has_taken(process: Process) -> None:
    hand_in(process, 1, 2)
    finish(process, 1)
    process.record.taken([1, 1])
    assert process.record.owed == 1


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
    other.file.close()
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
    other.file.close()
    process.sent.connected = True
    process.record.resume()  # while this process lives, it has the result
    assert not any(one.failed for one in process.sent.outcomes()[0].outcomes)
    process.file.close()


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


def test_who_takes_over_while_the_disk_takes_nothing_is_sent_what_is_on_disk_once_it_does(
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


def test_no_process_gives_a_client_a_number_that_one_before_has_given(
    process: Process, tmp_path: Path
) -> None:
    given = {process.journal.new_client() for _ in range(5000)}
    assert len(given) == 5000
    process.sync()
    other = again(process, tmp_path)
    assert other.journal.first_client == other.journal.new_client() > max(given)
    other.file.close()


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    made = Process(tmp_path / "journal.sqlite")
    made.file._reader.execute("PRAGMA user_version = 99")
    made.file.close()
    with pytest.raises(ConfigurationError, match="newer gridengine"):
        DispatcherFile(tmp_path / "journal.sqlite")


def test_a_file_of_another_protocol_is_refused_while_it_holds_anything(tmp_path: Path) -> None:
    def protocol(path: Path, number: int) -> None:
        made = DispatcherFile(path)
        made._reader.execute("UPDATE counters SET value = ? WHERE name = 'protocol'", (number,))
        made.close()

    path = tmp_path / "journal.sqlite"
    made = Process(path)
    hand_in(made, 1)
    made.file.close()
    protocol(path, VERSION - 1)
    with pytest.raises(ConfigurationError, match=f"in protocol {VERSION - 1}, and this one speaks"):
        DispatcherFile(path)
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM requests").fetchone() == (2,)
        file.execute("DELETE FROM clients")
    DispatcherFile(path).close()
    protocol(path, VERSION)  # which it has again


def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        DispatcherFile(path)
    assert path.read_bytes() == b"no database" * 1000


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


def test_who_takes_over_after_a_restart_is_sent_what_was_sent_before(
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
    other.file.close()
