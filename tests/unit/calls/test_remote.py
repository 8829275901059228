"""A client of a stand-alone dispatcher: what it does when something cannot be sent, and when it
hears nothing; its connection is the test's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gridengine._version import __version__
from gridengine.calls import remote
from gridengine.calls.outstanding import MOST_UNTOLD, TELL_SECONDS
from gridengine.calls.remote import RemoteDispatcher
from gridengine.calls.remote_control import LOOK_SECONDS
from gridengine.calls.requesting import Question
from gridengine.errors import ConfigurationError, DispatcherGone, VersionMismatch
from gridengine.requests import CallsFinished, Function
from gridengine.serialize.payload import Payload
from gridengine.wire.clock import Clock
from gridengine.wire.connection_file import ClientConnection, replace_private, to_json
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    NUMBER_BITS,
    ClientHello,
    ClientWelcome,
    Control,
    Controlled,
    Finished,
    FinishedItem,
    Goodbye,
    Message,
    OutcomesTaken,
    Output,
    OutputTaken,
    Refuse,
    Submit,
    Supply,
)
from tests.support.interrupts import at_each_point
from tests.support.manual_clock import ManualClock
from tests.support.tasks import make_task

FUNCTION = Function(b"f", (b"pickled",), (), b"/", "f")
CLIENT = 5


class Connection:
    """To a dispatcher that takes what it is sent, and says what the test has it say."""

    fd = 0
    pending = True

    def __init__(self, file: object, *, clock: Clock) -> None:
        self.epoch = 0
        self.received_at = 0.0
        self.introduce: object = None
        self.sent: list[Message] = []
        self.incoming: list[tuple[Message, Payload]] = []
        self.moves = 0

    def send(self, message: Message, buffers: Payload = ()) -> None:
        self.sent.append(decode(encode(message, buffers))[0])

    def receive(self) -> list[tuple[Message, Payload]]:
        incoming, self.incoming = self.incoming, []
        return incoming

    def tick(self, now: float) -> float:
        return 3600.0

    def move(self, addresses: object) -> None:
        self.moves += 1

    def begin_again(self) -> None:
        """Nothing is on its way here."""

    def close(self) -> bool:
        return True


class Remote(RemoteDispatcher):
    """One whose thread is the test."""

    _connection: Connection  # type: ignore[assignment]

    def _begin(self, hello: Message, name: str) -> None:
        self._thread = threading.current_thread()
        self._poller = SimpleNamespace(poll=lambda timeout: [])  # type: ignore[assignment]
        self._questions[0] = Question()
        self._send(hello)
        self.step(ClientWelcome(0, CLIENT, 8, epoch=3, taken=0))

    def step(self, *messages: Message) -> None:
        """Send what waits, and take in what the dispatcher says."""
        for message in messages:
            self._connection.incoming.append((message, [b""] * message.count_buffers()))
        for message, buffers in self._receive():
            self._handlers[type(message)](message, buffers)

    def take_sent(self) -> list[Message]:
        """Return what the dispatcher was sent since."""
        self.step()
        sent, self._connection.sent = self._connection.sent, []
        return sent

    def begin_again(self, taken: int = 0) -> None:
        """Have the dispatcher be started again, with so many requests on its disk."""
        self._resume()
        self.step(ClientWelcome(0, CLIENT, 8, epoch=4, taken=taken))


class Streams:
    """Standard output and error, which take what the test says."""

    def __init__(self, wake: object) -> None:
        self.written: list[bytes] = []
        self.passed = self.accepted = 0
        self.started = self.awaited = False
        self.flushed: list[float | None] = []

    def __iter__(self) -> Iterator[Streams]:
        return iter((self, self))

    def start(self) -> None:
        self.started = True

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.accepted += len(data)

    def flush(self, seconds: float | None) -> None:
        self.flushed.append(seconds)

    def end(self) -> None:
        """Nothing is on its way."""


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Returns a client that has been welcomed."""
    path = tmp_path / "client.json"
    file = ClientConnection("sweeps", (), __version__, "host", 0, 2.0, "key", "public", "secret")
    replace_private(path, to_json(file))
    monkeypatch.setattr(remote, "DispatcherConnection", Connection)
    monkeypatch.setattr(remote, "StandardStreams", Streams)
    monkeypatch.setattr(remote, "atexit", SimpleNamespace(register=id, unregister=id))

    def make(**options: Any) -> Remote:
        made = Remote(path, patience=60.0, **options)
        assert isinstance(made.take_sent()[0], ClientHello)
        return made

    return make


def submit(client: Remote, **options: Any) -> list[CallsFinished]:
    """Submit a task; return what is told of it."""
    events: list[CallsFinished] = []
    listener: Any = SimpleNamespace(settled=events.append, daemon=True)
    client.submit(FUNCTION, [make_task(client.new_id(), (b"calls",), **options)], listener)
    return events


def test_a_client_knows_the_command_that_shows_the_output_of_its_calls(make: Any) -> None:
    remote = make()
    assert remote.snapshot().output == f"`gridengine logs {remote.name}` shows what calls printed"


def test_an_unsendable_task_fails_with_its_dependents_and_counts_no_more(make: Any) -> None:
    client = make(max_calls=1)
    events = submit(client, name="\udcff", kept=((0, 77),))
    sent = client.take_sent() + client.take_sent()
    assert "the request cannot be sent" in str(events[0].error)
    assert [type(message) for message in sent] == [Submit, Supply]
    assert sent[0].tasks == []
    assert submit(client) == []
    with pytest.raises(ConfigurationError, match="1 call open, and may have 1"):
        submit(client)
    assert [type(message) for message in client.take_sent()] == [Submit]


def test_tasks_travel_together_and_those_that_cannot_be_sent_fail_alone(make: Any) -> None:
    client = make()
    submit(client)
    client.take_sent()
    good, bad, also = submit(client), submit(client, name="\udcff"), submit(client)
    sent = client.take_sent()
    assert not client._requests.has(client.new_id() - 2), "it is not on its way to the disk"
    assert [len(message.tasks) for message in sent] == [1, 1]
    assert (good, len(bad), also) == ([], 1, [])
    submit(client)
    submit(client)
    [together] = client.take_sent()
    assert len(together.tasks) == 2


def test_a_file_that_cannot_be_written_is_told_of_once_and_again_to_the_next_process(
    make: Any,
) -> None:
    client = make(origin="night")
    fault = "/night.sqlite", "disk full"
    client.file_fault = lambda: fault
    told = client.take_sent() + client.take_sent()
    assert [one.action for one in told] == ["note_fault"]
    assert msgspec.json.decode(told[0].arguments) == {"path": fault[0], "error": fault[1]}
    client.begin_again()
    assert [one.arguments for one in client.take_sent() if isinstance(one, Control)] == [
        told[0].arguments
    ]
    fault = "", ""
    [now] = client.take_sent()
    assert msgspec.json.decode(now.arguments)["path"] == ""


def taken_of(client: Remote) -> list[int]:
    """Return the numbers of outcomes that the client says it has."""
    said = [one for one in client.take_sent() if isinstance(one, OutcomesTaken)]
    return [number for one in said for number in one.numbers]


def test_ended_calls_count_no_more_and_are_acknowledged_soon(make: Any) -> None:
    clock = ManualClock()
    client = make(max_calls=1, clock=clock)
    events = submit(client)
    [sent] = client.take_sent()
    item = FinishedItem(sent.tasks[0].id, 0, 1, buffers=1, last=True)
    client.step(Finished(0, [item], number=9))
    assert [event.last for event in events] == [True]
    client.begin_again(taken=1)
    client.step(Finished(0, [item], number=9))
    submit(client)
    assert taken_of(client) == []  # that would have the dispatcher at work before the call
    clock.advance(TELL_SECONDS)
    assert set(taken_of(client)) == {9}
    with pytest.raises(ConfigurationError, match="1 call open"):
        submit(client)


def test_outcomes_are_acknowledged_together(make: Any) -> None:
    client = make(clock=ManualClock())
    for number in range(1, MOST_UNTOLD + 1):
        assert taken_of(client) == []
        client.step(Finished(0, [], number=number))
    assert taken_of(client) == [*range(1, MOST_UNTOLD + 1)]


@pytest.mark.parametrize("interruption", [TimeoutError, KeyboardInterrupt])
def test_an_abandoned_request_is_not_repeated(
    make: Any, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    def interrupted(question: Question, seconds: float | None = None) -> None:
        raise interruption

    client = make()
    monkeypatch.setattr(Question, "result", interrupted)
    with pytest.raises(interruption):
        client.control("status", seconds=1.0)
    client.take_sent()
    client.begin_again()
    assert not [one for one in client.take_sent() if isinstance(one, Control)]


def test_outcomes_of_another_client_are_those_that_it_has_left(make: Any) -> None:
    clock = ManualClock()
    client = make(origin="night", clock=clock)
    client.left.get_nowait()  # the welcome, with how much there is
    item = FinishedItem((CLIENT - 1) << NUMBER_BITS | 1, 2, 4, buffers=1)
    client.step(Finished(0, [item], number=4))
    left = client.left.get_nowait()
    assert (left.number, left.life, left.outcomes[0].start) == (4, 3, 2)
    client.took([left])
    assert taken_of(client) == []
    clock.advance(TELL_SECONDS)
    assert taken_of(client) == [4]


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (Refuse("older", mismatch=True), VersionMismatch, "older"),
        (Refuse("who are you"), DispatcherGone, "has given up this client"),
        (Goodbye("it ends", []), DispatcherGone, "it ends: sweeps"),
    ],
)
def test_a_refused_client_is_told_why(
    make: Any, message: Message, kind: type[Exception], words: str
) -> None:
    client = make()
    with pytest.raises(kind, match=words):
        client.step(message)


def test_an_answer_that_nobody_waits_for_any_more_is_dropped(make: Any) -> None:
    client = make()
    with pytest.raises(TimeoutError):
        client.control("status", seconds=0)
    client.step(Controlled(client.new_id(), b"{}"))
    assert client._questions == {}


def test_a_silent_dispatcher_is_taken_to_be_gone_after_the_lease(
    make: Any,
) -> None:
    clock = ManualClock(100.0)
    client = make(clock=clock)
    connection = client._connection
    for _ in range(60):
        clock.advance(1.0)
        client.step()
    assert connection.moves == pytest.approx(60 / LOOK_SECONDS, abs=1)
    clock.advance(1.0)
    with pytest.raises(DispatcherGone, match="nothing was heard from the dispatcher 'sweeps'"):
        client.step()


def test_the_time_that_this_process_was_suspended_hardly_counts(make: Any) -> None:
    clock = ManualClock(100.0)
    client = make(clock=clock)
    clock.advance(8 * 3600.0)
    client.step()
    clock.advance(50.0)
    client.step()
    client._connection.received_at = clock.monotonic()
    for _ in range(60):
        clock.advance(1.0)
        client.step()


def printed(client: Remote, run: int, words: bytes) -> Any:
    """Have the client be sent what a job has printed; return where that goes."""
    client._connection.incoming.append((Output(run, 1), [words]))
    client.step()
    return client._streams


def test_output_of_jobs_is_printed_here_and_acknowledged(
    make: Any,
) -> None:
    client = make()
    streams = printed(client, 5, b"hello\n")
    printed(client, 6, b"you\n")
    assert streams.written == [b"hello\n", b"you\n"]
    assert client.take_sent() == []
    streams.passed = 6
    assert client.take_sent() == [OutputTaken(6, 5)]
    client.flush_output(3.0)
    assert streams.flushed == [3.0]


def test_only_clients_with_jobs_have_threads_for_output(make: Any) -> None:
    client = make()
    submit(client)
    assert not client._streams.started
    submit(client, watched=True)
    assert client._streams.started


def test_the_next_process_is_not_told_of_outcomes_that_the_previous_one_has_sent(make: Any) -> None:
    client = make()
    streams = printed(client, 5, b"hello\n")
    client.begin_again()
    client.take_sent()
    streams.passed = streams.accepted
    printed(client, 5, b"you\n")
    streams.passed = streams.accepted
    assert client.take_sent() == [OutputTaken(4, 5)]


def test_a_fork_of_the_process_does_not_say_goodbye_for_it(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    client.take_sent()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: client._pid + 1)
        client.close()
        client._at_exit()
    assert client.take_sent() == []
    client.close()
    with pytest.raises(EOFError):
        client.step()
    [said] = client._connection.sent
    assert type(said) is Goodbye


def test_a_client_whose_leaving_a_ctrl_c_has_interrupted_can_still_leave(make: Any) -> None:
    client = make()

    def leave() -> None:
        client._closed = False
        client._queue.events.clear()
        client.close(wait=False)

    for _ in at_each_point(leave):
        client.close(wait=False)
        assert client._queue.events


def test_a_waiter_is_released_when_the_connection_ends_though_others_ask_just_then(
    make: Any,
) -> None:
    client = make()

    class Waiting(threading.Event):
        """In its place another thread asks for something."""

        def set(self) -> None:
            super().set()
            client.release(b"name")

    waiting = [Waiting(), Waiting()]
    client._resuming = True  # nothing of the queue is sent meanwhile
    for one in waiting:
        client._queue.post(one)
    client._connection.incoming.append((Goodbye("gone"), ()))
    client._work()
    assert all(one.is_set() for one in waiting)
