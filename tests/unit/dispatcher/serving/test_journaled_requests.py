"""What the journal has of what a client has handed in, and what the next process has of it."""

from __future__ import annotations

from array import array
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.serving import shared_journal
from gridengine.dispatcher.serving.journaled_requests import ClientRequests, Request
from gridengine.errors import ConfigurationError
from gridengine.journal.writer import Act
from gridengine.serialize import pickling
from gridengine.wire.framing import decode
from gridengine.wire.messages import (
    ClientCancel,
    ClientForget,
    ClientRecall,
    Durable,
    FinishedItem,
    FunctionItem,
    SharedItem,
    Submit,
    Supply,
    TaskItem,
    Want,
)
from tests.support.journaled_client import Process, again, finish, hand_in
from tests.support.lines_run import lines_run


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


def test_tasks_that_have_ended_are_not_handed_in_again(process: Process, tmp_path: Path) -> None:
    hand_in(process, 1, 2, 3)
    finish(process, 1)
    finish(process, 2)
    process.record.taken([1])
    process.sync()
    assert process.sent.messages[-1] == Durable(1)
    other = again(process, tmp_path)
    assert (other.record.seen, other.tasks()) == (1, [3])
    assert [buffers for _, buffers in other.replayed] == [[b"function"], [b"3"]]
    other.record.resume()
    assert [one.outcomes[0].task for one in other.sent.outcomes()] == [2]


def test_calls_that_have_ended_of_a_task_are_told_apart_and_those_counted_that_are_owed(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1, 2, count=10)
    finish(process, 1, 0, 4, last=False)
    process.sync()
    process.record.taken([1])
    finish(process, 1, 6, 8, last=False)
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [1, 2]
    assert other.settled == {1: [(0, 4), (6, 8)]}
    for record in (process.record, other.record):
        assert (record.owed, record.owed_calls) == (2, 16)
    finish(process, 2, 0, 10)
    process.record.taken([2, 3])
    assert (process.record.owed, process.record.owed_calls) == (1, 4)


def test_neither_taken_outcomes_nor_functions_without_a_task_are_left(
    process: Process,
) -> None:
    hand_in(process, 1, 2)
    process.record.take(ClientForget(0, functions=[b"digest"]), [])
    finish(process, 1)
    process.record.taken([1])
    assert process.rows("requests") == 3
    finish(process, 2)
    process.record.taken([2])
    assert [process.rows(table) for table in ("requests", "ended", "outcomes")] == [0, 0, 0]


@pytest.mark.parametrize("together", [1, 10])
def test_noting_an_end_costs_the_same_however_many_calls_are_left(together: int) -> None:
    def cost(tasks: int) -> int:
        requests = ClientRequests(1, count().__next__)
        for first in range(0, tasks, together):
            items = [TaskItem(id) for id in range(first, first + together)]
            requests.take(Submit(0, 0, b"digest", items), [b"1"] * together)
        last = array("q", chain.from_iterable((id, 0, 1, 1) for id in range(tasks)[-together:]))
        lines = lines_run(lambda: requests.end([last]))
        assert requests.owed == tasks - together
        return lines

    assert cost(2000) <= 2 * cost(200)


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


@pytest.mark.parametrize(
    ("outcome", "raised", "cancelled"),
    [
        pytest.param({"ended": True}, True, True, id="killed"),
        pytest.param({}, True, False, id="lost"),
        pytest.param({"recalled": True, "path": ["f"]}, True, True, id="its input was cancelled"),
    ],
)
def test_dependents_of_an_ended_call_are_cancelled_after_a_restart_too(
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
    assert isinstance(message, Supply)
    assert (message.raised, message.cancelled) == (raised, cancelled)


def test_a_result_that_was_found_to_be_needed_stays_over_two_restarts(
    process: Process, tmp_path: Path
) -> None:
    hand_in(process, 1)
    process.record.take(Want(0, 1, 0, 50), [])
    hand_in(process, 2, defines=False, after=[50])
    process.sync()
    first = again(process, tmp_path)
    finish(first, 1)
    first.record.taken([1])
    first.sync()
    second = again(first, tmp_path / "second")
    assert second.tasks() == [2]
    supplies = [one for one in second.replayed if isinstance(one[0], Supply)]
    assert [(one.reference, list(its)) for one, its in supplies] == [(50, [b"result"])]  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [10, shared_journal.LARGE])
def test_a_row_is_a_msgpack_array_of_frames_whatever_its_size(process: Process, size: int) -> None:
    process.record.take(Submit(0, 0, b"f", [TaskItem(1, buffers=2)]), [bytes(size), b"x" * 9])
    process.sync()
    [(content,)] = process.file.read("SELECT content FROM requests")
    message, buffers = decode(msgspec.msgpack.decode(content))
    assert isinstance(message, Submit)
    assert list(map(bytes, buffers)) == [bytes(size), b"x" * 9]


def test_requests_too_long_for_a_row_come_in_several(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_journal, "ROW_BYTES", 10)
    tasks = [TaskItem(id) for id in range(1, 8)]
    buffers = [b"%d" % id * 4 for id in range(1, 8)]
    process.record.take(Submit(0, 0, b"digest", tasks), buffers)
    assert process.rows("requests") == 4
    process.record.finish([FinishedItem(id, 0, 1, 1, last=True) for id in (1, 2, 3)], buffers[:3])
    assert [len(one.outcomes) for one in process.sent.outcomes()] == [2, 1]
    process.sync()
    other = again(process, tmp_path)
    assert other.tasks() == [4, 5, 6, 7]
    assert [its for _, its in other.replayed] == [[b"4444"], [b"5555", b"6666"], [b"7777"]]
    process.record.taken([1, 2])
    assert (process.rows("requests"), process.rows("ended")) == (3, 1)


@pytest.mark.parametrize(
    ("buffers", "words"),
    [
        ([b"too long", b"1", b"2", b"3"], "the function f has 8 bytes"),
        ([b"f", b"too long", b"2", b"3"], "a shared object has 8 bytes"),
        ([b"f", b"1", b"2", b"too long"], "the call fit has 8 bytes"),
    ],
)
def test_requests_that_no_row_can_hold_are_refused_and_count(
    process: Process, monkeypatch: pytest.MonkeyPatch, buffers: list[bytes], words: str
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    tasks = [TaskItem(1), TaskItem(2, name="fit")]
    shared, function = [SharedItem(b"s" * 16, ())], FunctionItem("f", [], b"/")
    with pytest.raises(ConfigurationError, match=words):
        process.record.take(Submit(0, 0, b"digest", tasks, function, shared), buffers)
    assert process.rows("requests") == 0
    assert process.sent.messages == [Durable(1)]


@pytest.mark.parametrize("supplied", [True, False])
def test_a_needed_result_that_no_row_can_hold_is_told_as_lost_after_a_restart(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supplied: bool
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    if supplied:
        process.record.take(Supply(0, 50, buffers=1), [b"result"])
    else:
        hand_in(process, 1, defines=False, kept=[(0, 50)])
        finish(process, 1)
        process.record.taken([1])
    hand_in(process, 2, defines=False, after=[50])
    process.sync()
    other = again(process, tmp_path)
    monkeypatch.undo()
    message, buffers = other.replayed[0]
    assert isinstance(message, Supply)
    assert (message.reference, message.raised) == (50, True)
    assert "a result of 6 bytes that this call needs is lost" in str(
        pickling.load_exception(buffers)
    )
    assert other.tasks() == [2]


# ---------------------------------------------------------------- though an older call runs on


@pytest.fixture
def beside_a_long_call(process: Process) -> Process:
    """A process of whose client task 1 has not ended, of which there are two rows."""
    hand_in(process, 1)
    assert process.rows("requests") == 2
    return process


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(ClientCancel(0, [2], 9, []), id="cancelled"),
        pytest.param(ClientCancel(0, [], 9, [(2, 0, 1)]), id="cancelled by call"),
        pytest.param(ClientRecall(0, [(2, 0, 1)]), id="recalled"),
        pytest.param(Want(0, 2, 0, 50), id="wanted"),
    ],
)
def test_notes_of_a_call_stay_until_it_has_ended(
    beside_a_long_call: Process, tmp_path: Path, message: Request
) -> None:
    process = beside_a_long_call
    hand_in(process, 2, defines=False)
    process.record.take(message, [])
    process.record.take(ClientCancel(0, [3], 9), [])
    process.sync()
    other = again(process, tmp_path)
    assert [one for one, _ in other.replayed[-1:]] == [message]
    finish(process, 2)
    process.record.taken([1])
    process.record.take(ClientForget(0, references=[50]), [])
    assert process.rows("requests") == 2


def test_a_function_goes_though_an_older_call_of_another_runs(
    beside_a_long_call: Process, tmp_path: Path
) -> None:
    process = beside_a_long_call
    for task in range(2, 10):
        digest = b"f%d" % task
        item = FunctionItem(f"f{task}", [], b"/")
        process.record.take(Submit(0, 0, digest, [TaskItem(task)], item), [b"f", b"1"])
        process.record.take(ClientForget(0, functions=[digest]), [])
        finish(process, task)
        process.record.taken([task - 1])
        assert process.rows("requests") == 2
    other = again(process, tmp_path)
    assert [buffers for _, buffers in other.replayed] == [[b"function"], [b"1"]]


@pytest.mark.parametrize(
    ("forgotten", "needed"),
    [
        pytest.param({"functions": [b"digest"]}, 1, id="its function"),
        pytest.param({"shared": [b"whole"]}, 1, id="a shared object of its function"),
        pytest.param({"shared": [b"part"]}, 1, id="a shared object of that"),
        pytest.param({"shared": [b"own"]}, 1, id="its shared object"),
        pytest.param({"references": [50]}, 1, id="a result that its function refers to"),
        pytest.param({"references": [51]}, 1, id="a result that it refers to"),
        pytest.param({"shared": [b"no"], "references": [51]}, 1, id="among others"),
        pytest.param({"shared": [b"no"], "references": [52]}, 0, id="not at all"),
    ],
)
def test_forgotten_inputs_of_a_call_stay_while_needed(
    process: Process, forgotten: dict[str, list[Any]], needed: int
) -> None:
    function = FunctionItem("f", [], b"/", [b"whole"], [50])
    needs = {b"part": [], b"whole": [b"part"], b"own": [], b"no": []}
    shared = [SharedItem(name, its) for name, its in needs.items()]
    defines = Submit(0, 0, b"digest", [], function, shared)
    process.record.take(defines, [b"1", b"2", b"3", b"4", b"f"])
    for reference in (50, 51, 52):
        process.record.take(Supply(0, reference, buffers=1), [b"result"])
    task = TaskItem(1, needs=[b"own"], after=[51])
    process.record.take(Submit(0, 0, b"digest", [task]), [b"1"])
    assert process.rows("requests") == 9
    process.record.take(ClientForget(0, **forgotten), [])
    # What nothing needs goes at once. The release itself stays for what is needed.
    count = sum(map(len, forgotten.values()))
    assert process.rows("requests") == 9 - count + 2 * needed
    finish(process, 1)
    process.record.taken([1])
    process.record.take(ClientForget(0, functions=[b"digest"], shared=[b"whole"]), [])
    assert process.rows("requests") == 8 - len({b"digest", b"whole", *chain(*forgotten.values())})


def test_a_function_that_is_named_anew_stays(beside_a_long_call: Process, tmp_path: Path) -> None:
    process = beside_a_long_call
    item = FunctionItem("g", [], b"/")
    for task in (2, 3):
        process.record.take(Submit(0, 0, b"g", [TaskItem(task)], item), [b"%d" % task, b"1"])
        process.record.take(ClientForget(0, functions=[b"g"]), [])
    process.record.take(Submit(0, 0, b"g", [TaskItem(4)], item), [b"4", b"1"])
    for task in (2, 3):
        finish(process, task)
    process.record.taken([1, 2])
    finish(process, 4)
    process.record.taken([3])
    process.record.take(ClientCancel(0, [2], 9), [])
    process.sync()
    other = again(process, tmp_path)
    assert [buffers for _, buffers in other.replayed] == [[b"function"], [b"1"], [b"4"]]


@pytest.mark.parametrize("long", [False, True])
def test_a_result_goes_that_was_released_before_its_call_had_ended(
    process: Process, long: bool
) -> None:
    if long:
        hand_in(process, 9, defines=False)
    hand_in(process, 1, defines=False, kept=[(0, 50)])
    hand_in(process, 2, defines=False, after=[50])
    process.record.take(ClientForget(0, references=[50]), [])
    finish(process, 1)
    process.record.taken([1])
    assert process.rows("requests") == long + 3
    finish(process, 2)
    process.record.taken([2])
    process.record.take(ClientCancel(0, [1], 9), [])
    assert process.rows("requests") == long


def test_a_result_that_was_wanted_late_is_known_as_released_as_long_as_its_call_runs(
    beside_a_long_call: Process, tmp_path: Path
) -> None:
    process = beside_a_long_call
    wanted, forgotten = Want(0, 1, 0, 50), ClientForget(0, [], [], [50])
    process.record.take(wanted, [])
    process.record.take(forgotten, [])
    process.record.take(ClientCancel(0, [3], 9), [])
    process.sync()
    other = again(process, tmp_path)
    assert [one for one, _ in other.replayed[2:]] == [wanted, forgotten]


def test_a_journal_does_not_grow_as_long_as_a_call_runs(beside_a_long_call: Process) -> None:
    process = beside_a_long_call
    for task in range(2, 100):
        hand_in(process, task, defines=False)
        process.record.take(ClientCancel(0, [task], 9), [])
        finish(process, task)
        process.record.taken([task - 1])
        assert process.rows("requests") == 2


def test_rows_that_an_earlier_process_could_have_deleted_go_with_the_next_write(
    beside_a_long_call: Process, tmp_path: Path
) -> None:
    """As of a gridengine that looked for such rows once there were a thousand of them."""
    process = beside_a_long_call
    rows = [ClientCancel(0, [99], 9), ClientForget(0, functions=[b"gone"])]
    process.file.write(
        "INSERT INTO requests VALUES (?, 7, 2, ?)",
        [(100 + place, shared_journal.RowContent(row, [])) for place, row in enumerate(rows)],
    )
    process.sync()
    other = again(process, tmp_path)
    assert other.rows("requests") == 4
    hand_in(other, 2, defines=False)
    assert other.rows("requests") == 3
