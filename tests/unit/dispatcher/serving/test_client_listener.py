"""Which clients a dispatcher takes, what each may ask for, and when one is taken for gone."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.dispatcher import journal_limits
from gridengine.dispatcher.core.events import ClientJoined, ClientLeft
from gridengine.dispatcher.serving.client_listener import LOOK_SECONDS, MOST_UNREAD, WATCHER_SECONDS
from gridengine.dispatcher.serving.shared_journal import Journal
from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.dispatcher.watch_server import FollowerAnswer
from gridengine.journal.dispatcher_file import DispatcherFile
from gridengine.requests import CallsFinished, NamesForgotten, Submitted, TasksCancelled
from gridengine.wire.messages import (
    DETACHED,
    NUMBER_BITS,
    ClientCancel,
    ClientForget,
    ClientRecall,
    ClientWelcome,
    Control,
    Controlled,
    Finished,
    Goodbye,
    Message,
    NestedEnded,
    NestedHello,
    OutcomesTaken,
    OutputTaken,
    Refuse,
    SharedItem,
    Supply,
    TaskItem,
    Want,
)
from gridengine.wire.processes import started, this_machine
from tests.support.played_listener import FUNCTION, A, B, C, Played, hello

KEPT = {"keep": "sweep/1", "keeps": True}


def welcomed(played: Played, peer: bytes, **words: Any) -> ClientWelcome:
    """Have one say hello; return what it is told."""
    played.say(peer, hello(**words))
    [welcome] = played.told(peer)
    assert isinstance(welcome, ClientWelcome)
    return welcome


def test_a_client_joins_with_its_weight_and_submits(played: Played) -> None:
    first = played.join(A, weight=2.5)
    [event] = played.submit(A, TaskItem(first + 1, submitter=first + 2), function=FUNCTION)
    assert isinstance(event, Submitted)
    assert (event.parent, event.detached, event.tasks[0].id) == (0, False, first + 1)


def test_messages_of_a_stranger_are_ignored(played: Played) -> None:
    assert played.submit(A, TaskItem(1), function=FUNCTION) == []


def test_a_file_that_a_client_cannot_write_is_known_while_it_is_here(played: Played) -> None:
    played.join(A)
    played.listener.note_fault(A, "/night.sqlite", "disk full")
    [(path, error, client)] = played.listener.faults()
    assert (path, error) == ("/night.sqlite", "disk full")
    assert "process 12 on host" in client
    played.listener.note_fault(A, "", "")
    assert list(played.listener.faults()) == []
    played.listener.note_fault(A, "/night.sqlite", "disk full")
    played.say(A, Goodbye("it ends"))
    assert list(played.listener.faults()) == []


def test_a_watcher_submits_nothing_and_ends_nothing(played: Played) -> None:
    played.server.watchers.add(A)
    assert welcomed(played, A).client == 0
    first = played.join(B)
    assert played.submit(A, TaskItem(1), function=FUNCTION) == []
    assert played.say(A, ClientCancel(0, [first + 1], 15)) == []
    played.say(A, Control(1, "status"))
    played.say(A, Control(2, "stop"))
    answers = played.told(A)
    assert [(one.number, one.failed) for one in answers] == [(1, False), (2, True)]  # type: ignore[union-attr]
    assert not played.did
    assert played.say(A, Goodbye("closed")) == []


def test_a_watcher_ends_no_run_that_it_names(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(played.listener._absent, "take", lambda keep: taken.append(keep) or [])
    played.server.watchers.add(A)
    played.say(A, hello(keep="sweep", keeps=True))
    played.say(A, Goodbye("closed"))
    assert played.server.forgotten == [A]
    assert taken == []


def test_a_client_cannot_cancel_or_want_calls_of_another_client(played: Played) -> None:
    its = played.join(A)
    played.join(B)
    assert played.say(B, ClientCancel(0, [its + 1], 15, [(its + 2, 0, 1)])) == [
        TasksCancelled((), 15, ())
    ]
    assert played.say(B, Want(0, its + 1, 0, 77)) == []


@pytest.mark.parametrize("number", [-5, 1, 900, 1 << 40, 1 << 70 >> 7])
def test_a_client_cannot_come_back_with_another_s_number_or_one_nobody_had(
    played: Played, number: int
) -> None:
    file = SimpleNamespace(pending=False)
    played.clients.journal = SimpleNamespace(first_client=500, epoch=2, file=file)  # type: ignore[assignment]
    assert played.join(A) >> NUMBER_BITS == 1
    assert played.say(B, hello(resumes=number)) == []
    [refusal] = played.told(B)
    assert isinstance(refusal, Refuse)
    assert played.say(B, hello(resumes=7)) == [ClientJoined(7, 1.0)]


def test_a_client_that_introduces_itself_twice_is_the_same(played: Played) -> None:
    number = played.join(A) >> NUMBER_BITS
    assert welcomed(played, A).client == number


def test_a_client_cannot_submit_with_another_s_numbers(played: Played) -> None:
    its, own = played.join(A), played.join(B)
    for task in (TaskItem(its + 1, submitter=own + 1), TaskItem(own + 1, submitter=its + 1)):
        assert played.submit(B, task, function=FUNCTION) == []
        played.clients.flush()
        [finished] = played.told(B)
        assert isinstance(finished, Finished)
        assert finished.outcomes[0].failed


def test_a_client_cannot_read_say_or_release_another_s_result(played: Played) -> None:
    its, own = played.join(A), played.join(B)
    kept = TaskItem(its + 1, submitter=its + 9, kept=[(0, 50)])
    assert len(played.submit(A, kept, function=FUNCTION)) == 1
    reading = TaskItem(own + 1, submitter=own + 9, after=[50])
    assert played.submit(B, reading, function=FUNCTION) == []
    assert played.say(B, Supply(0, 50, buffers=1), b"false") == []
    assert played.say(B, ClientForget(0, references=[50])) == []
    assert played.say(A, ClientForget(0, references=[50])) == [NamesForgotten(references=(50,))]


def test_a_client_cannot_release_another_s_shared_object(played: Played) -> None:
    its = played.join(A)
    played.join(B)
    name = b"n" * 16
    task = TaskItem(its + 1, submitter=its + 9, needs=[name])
    assert len(played.submit(A, task, function=FUNCTION, shared=[SharedItem(name)])) == 1
    assert played.say(B, ClientForget(0, shared=[name])) == []
    assert played.say(A, ClientForget(0, shared=[name])) == [NamesForgotten(shared=(name,))]


def test_a_shared_object_cannot_go_by_the_name_of_a_result(played: Played) -> None:
    own = played.join(A)
    name = (50).to_bytes(8, "big")
    task = TaskItem(own + 1, submitter=own + 9, needs=[name])
    assert played.submit(A, task, function=FUNCTION, shared=[SharedItem(name)]) == []


@pytest.mark.parametrize(
    "message", [NestedHello(0), NestedEnded(0), ClientCancel(7, [], 15), NestedHello(7)]
)
def test_a_client_that_plays_a_worker_s_agent_is_sent_away(
    played: Played, message: Message
) -> None:
    number = played.join(A) >> NUMBER_BITS
    assert played.say(A, message) == [ClientLeft(number)]
    [refusal] = played.told(A)
    assert isinstance(refusal, Refuse)
    assert played.server.forgotten == [A]


def test_a_client_that_leaves_ends_at_once(played: Played) -> None:
    number = played.join(A) >> NUMBER_BITS
    assert played.say(A, Goodbye("closed")) == [ClientLeft(number)]
    assert played.server.forgotten == [A]
    assert played.listener.seen() == []


def test_output_of_jobs_is_waited_for_while_their_client_may_come_back(played: Played) -> None:
    done: list[tuple[Any, ...]] = []
    played.clients.output = SimpleNamespace(  # type: ignore[assignment]
        add=lambda client: done.append(("add", client.number)),
        resume=lambda client: done.append(("resume", client.number)),
        taken=lambda client, message: done.append((message, client.number)),
        remove=lambda client: done.append(("remove", client.number)),
    )
    number = played.join(A) >> NUMBER_BITS
    played.say(B, OutputTaken(5, 7))
    played.say(A, OutputTaken(5, 7))
    played.say(A, hello())
    played.say(A, Goodbye("closed"))
    assert [one for one, _ in done] == ["add", OutputTaken(5, 7), "resume", "remove"]
    assert {client for _, client in done} == {number}


def test_a_client_whose_process_is_dead_ends_after_the_grace_time(played: Played) -> None:
    number = played.join(A, machine=this_machine(), pid=1 << 22, started=5) >> NUMBER_BITS
    assert played.wait(58) == []
    assert played.listener.seen()[0]["gone"] is True
    assert played.wait(8) == [ClientLeft(number)]


def test_a_client_whose_number_another_process_has_by_now_is_dead(played: Played) -> None:
    pid = os.getpid()
    number = played.join(A, machine=this_machine(), pid=pid, started=started(pid) - 1)
    assert played.wait(70) == [ClientLeft(number >> NUMBER_BITS)]


def test_a_client_that_is_stopped_or_without_network_is_waited_for(played: Played) -> None:
    pid = os.getpid()
    played.join(A, machine=this_machine(), pid=pid, started=started(pid))
    played.join(B, machine="elsewhere", pid=1 << 22, started=5)
    assert played.wait(890) == []
    assert played.wait(200, A, B) == []


@pytest.mark.parametrize("back", [False, True])
def test_a_client_that_is_silent_for_the_lease_ends_after_the_grace_time(
    played: Played, back: bool
) -> None:
    number = played.join(A, machine="elsewhere") >> NUMBER_BITS
    assert played.wait(900 + 50) == []
    if back:
        assert played.wait(200, A) == []
        assert played.listener.seen()[0]["gone"] is False
    else:
        assert played.wait(20) == [ClientLeft(number)]


def test_time_in_which_the_dispatcher_was_suspended_counts_for_nothing(played: Played) -> None:
    played.join(A, machine="elsewhere")
    assert played.wait(10, A) == []
    played.now += 36_000
    assert list(played.listener.look(played.now)) == []
    assert played.wait(300, A) == []


def test_nothing_is_due_where_there_are_no_clients(played: Played) -> None:
    assert played.listener.deadline == float("inf")
    played.join(A)
    assert played.listener.deadline == played.now + LOOK_SECONDS
    played.say(A, Goodbye("closed"))
    played.wait(LOOK_SECONDS)
    assert played.listener.deadline == float("inf")


def test_clients_are_told_when_the_dispatcher_ends(played: Played) -> None:
    played.join(A)
    played.listener.close()
    assert played.told(A) == [Goodbye("the dispatcher has ended")]
    assert played.server.closed


@pytest.fixture
def journaled(played: Played, tmp_path: Path) -> Iterator[Played]:
    file = DispatcherFile(tmp_path / "journal.sqlite")
    played.clients.record_in(Journal(file))
    yield played
    file.close()


def left(played: Played) -> int:
    """Have A hand in a task of a run with a name, and leave; return the task."""
    task = (welcomed(played, A, **KEPT).client << NUMBER_BITS) + 1
    played.submit(A, TaskItem(task, 1, submitter=task), function=FUNCTION)
    assert played.say(A, Goodbye(DETACHED)) == []
    return task


def test_the_next_client_of_a_name_learns_of_the_remaining_calls_and_gets_their_outcomes(
    journaled: Played,
) -> None:
    task = left(journaled)
    [told] = journaled.listener.left()
    assert (told["run"], told["calls"]) == ("sweep", 1)
    assert welcomed(journaled, C, keep="sweep/2", keeps=True).owed == 0
    welcome = welcomed(journaled, B, **KEPT)
    assert (welcome.owed, welcome.ready) == (1, 0)
    assert journaled.listener.left() == []
    [gone] = journaled.listener._absent
    gone.settled(CallsFinished(task, 0, 1, [b"r"], last=True))
    journaled.clients.flush()
    [finished] = [one for one in journaled.told(B) if isinstance(one, Finished)]
    assert [one.task for one in finished.outcomes] == [task]
    assert ClientLeft(task >> NUMBER_BITS) in journaled.say(B, OutcomesTaken([finished.number]))
    assert not journaled.told(A)


def test_a_call_that_the_journal_cannot_hold_is_refused_and_its_client_stays(
    journaled: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_limits, "MOST_BYTES", 5)
    task = (welcomed(journaled, A, keeps=True).client << NUMBER_BITS) + 1
    large = TaskItem(task, 2, submitter=task)
    assert journaled.submit(A, large, function=FUNCTION) == []
    [refused] = journaled.told(A)
    assert isinstance(refused, Finished)
    assert [(one.task, one.stop, one.failed, one.last) for one in refused.outcomes] == [
        (task, 2, True, True)
    ]
    monkeypatch.undo()
    [event] = journaled.submit(A, large, function=FUNCTION)
    assert isinstance(event, Submitted)


def test_a_client_gives_its_place_to_the_next_of_its_name(journaled: Played) -> None:
    journaled.say(A, hello(**KEPT))
    journaled.told(A)
    events = journaled.say(B, hello(**KEPT))
    assert [type(one) for one in events] == [ClientJoined, ClientLeft]
    assert [type(one) for one in journaled.told(A)] == [Refuse]


def test_a_goodbye_ends_the_calls_left_to_a_client(journaled: Played) -> None:
    task = left(journaled)
    journaled.say(B, hello(**KEPT))
    assert ClientLeft(task >> NUMBER_BITS) in journaled.say(B, Goodbye("closed"))


def test_calls_of_clients_told_of_the_end_are_not_made_by_a_later_process(
    journaled: Played, tmp_path: Path
) -> None:
    left(journaled)
    for peer, words in ((A, {}), (B, {}), (C, KEPT)):
        journaled.say(peer, hello(**{"keeps": True, **words}))
    journaled.wait(3 * LOOK_SECONDS, A, C)
    journaled.told(B)
    journaled.listener.ends = True
    journaled.listener.close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as file:
        found = file.execute("SELECT peer FROM clients ORDER BY number").fetchall()
    # B may come back: it does not answer just now. Others will have the calls of the runs.
    assert found == [(A,), (B,), (C,)]
    assert len(journaled.told(B)) == 1


def later(tmp_path: Path) -> Played:
    """Return the next process."""
    played = Played()
    file = DispatcherFile(tmp_path / "journal.sqlite")
    file.wake = lambda: None
    played.clients.record_in(Journal(file))
    return played


def close(played: Played) -> None:
    assert played.clients.journal is not None
    played.clients.journal.file.close()


def test_a_client_that_does_not_come_back_to_a_later_process_is_looked_for(tmp_path: Path) -> None:
    first = later(tmp_path)
    dead = first.join(A, keeps=True, machine=this_machine(), pid=1 << 22, started=5)
    close(first)
    second = later(tmp_path)
    assert ClientJoined(dead >> NUMBER_BITS, 1.0) in list(second.listener.restore())
    assert second.listener.deadline <= second.now
    assert second.wait(80) == [ClientLeft(dead >> NUMBER_BITS)]
    close(second)


def test_deferred_writes_that_are_due_are_written(tmp_path: Path) -> None:
    played = later(tmp_path)
    assert played.clients.journal is not None
    file, written = played.clients.journal.file, list[bool]()
    file.write_later(
        "INSERT INTO outcomes VALUES (?, ?, ?)", (1, 7, b""), 1, lambda: written.append(True)
    )
    due = played.listener.deadline
    assert due == file.deadline < math.inf
    list(played.listener.look(due))
    assert played.listener.deadline == math.inf
    file._writer.flush()
    file.settle()
    assert written == [True]
    close(played)


def test_a_damaged_request_gives_up_its_client_and_keeps_the_requests_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = later(tmp_path)
    tasks = [first.join(peer, keeps=True) + 1 for peer in (A, B)]
    for peer, task in zip((A, B), tasks, strict=True):
        first.submit(peer, TaskItem(task, 1, submitter=task), function=FUNCTION)
    close(first)
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        [(row, content)] = file.execute(
            "SELECT max(id), content FROM requests JOIN clients ON client = number WHERE peer = ?",
            (A,),
        )
        file.execute("UPDATE requests SET content = ? WHERE id = ?", (content[:-1], row))
    second = later(tmp_path)
    events = list(second.listener.restore())
    submitted = [task.id for one in events if isinstance(one, Submitted) for task in one.tasks]
    assert submitted == tasks[1:]
    assert f"{path}: row {row} of requests is damaged" in caplog.text
    assert "script script.py, are given up: run it again" in caplog.text
    second.say(A, hello(keeps=True, resumes=tasks[0] >> NUMBER_BITS, durable=1))
    assert [type(one) for one in second.told(A)] == [Refuse]
    close(second)
    third = later(tmp_path)
    assert third.clients.journal is not None
    assert [peer for _, peer, *_ in third.clients.journal.clients()] == [B]
    close(third)


@pytest.mark.parametrize("ends", [ClientRecall, ClientCancel])
def test_ended_calls_are_not_ended_again_by_a_later_process(
    tmp_path: Path, ends: type[Message]
) -> None:
    first = later(tmp_path)
    own = first.join(A, keeps=True)
    task = own + 1
    first.submit(A, TaskItem(task, 3, submitter=own), function=FUNCTION)
    calls = [(task, 0, 3)]
    first.say(A, ClientRecall(0, calls) if ends is ClientRecall else ClientCancel(0, [], 9, calls))
    first.clients.finished[first.clients._clients[A, 0]].append(
        CallsFinished(task, 0, 1, [b"r"], last=False)
    )
    first.clients.flush()
    close(first)
    second, ended = later(tmp_path), []
    for event in second.listener.restore():
        second.play.play(event)
        ended += second.play.seen(CallsFinished)
    close(second)
    assert [(one.task, one.start, one.stop, one.last) for one in ended] == [(task, 1, 3, True)]


def test_a_silent_watcher_is_dropped_and_a_client_is_not(played: Played) -> None:
    played.server.watchers.add(A)
    played.say(A, hello())
    played.join(B)
    played.wait(10 * WATCHER_SECONDS, A)
    assert played.wait(WATCHER_SECONDS - LOOK_SECONDS) == []
    assert played.server.forgotten == []
    played.wait(2 * LOOK_SECONDS)
    assert played.server.forgotten == [A]
    assert [one["number"] for one in played.listener.seen()] == [1]


TOLD = FollowerAnswer(WatchAnswer(Identity("sweep", "run", 1, "host", "", "", 0.0, "", "", "")))


def test_a_client_asks_for_actions_and_is_told_their_answer(played: Played) -> None:
    played.join(A)
    played.say(A, Control(5, "status"))
    assert played.told(A) == [Controlled(5, b'{"workers":3}')]
    played.say(A, Control(6, "stop", b'{"now": true}'))
    assert played.told(A) == [Controlled(6, b"null")]
    assert played.did == [True]


@pytest.mark.parametrize(
    ("action", "arguments"),
    [("nosuch", b"{}"), ("stop", b"no JSON"), ("stop", b"[]"), ("stop", b'{"other": 1}')],
)
def test_an_action_that_cannot_be_done_says_why(
    played: Played, action: str, arguments: bytes
) -> None:
    played.join(A)
    assert played.say(A, Control(5, action, arguments)) == []
    [answer] = played.told(A)
    assert isinstance(answer, Controlled)
    assert (answer.number, answer.failed) == (5, True)
    assert answer.answer
    assert not played.did


def test_a_question_to_follow_is_answered_again_and_again(played: Played) -> None:
    played.join(A)
    played.say(A, Control(3, "follow", b"{}"))
    [follower] = played.followers
    assert follower.tell(TOLD)
    follower.end()
    follower.drop()
    first, told, last = played.told(A)
    assert first == Controlled(3, b'"first"')
    assert told == Controlled(3, TOLD.line)
    assert isinstance(last, Controlled)
    assert (last.number, last.failed) == (3, True)


def test_a_client_that_acknowledges_nothing_is_told_nothing_more(played: Played) -> None:
    played.join(A)
    played.say(A, Control(3, "follow", b"{}"))
    played.told(A)
    played.server.unread = MOST_UNREAD + 1
    assert not played.followers[0].tell(TOLD)
    assert played.told(A) == []


def test_a_question_that_is_asked_again_has_the_same_follower(played: Played) -> None:
    played.join(A)
    for _ in range(2):
        played.say(A, Control(3, "follow", b"{}"))
    played.say(A, Control(4, "follow", b"{}"))
    assert len(set(played.followers)) == 2
