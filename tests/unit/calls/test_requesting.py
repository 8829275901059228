"""What is asked of a dispatcher in another process, by whichever thread; and who is told when
nobody answers any more.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gridengine.calls.requesting import Question, RequestingDispatcher
from gridengine.errors import (
    Cancelled,
    ConfigurationError,
    DispatcherGone,
    GridEngineError,
    VersionMismatch,
)
from gridengine.requests import CallsFinished, Function
from gridengine.resources import Cores
from gridengine.resources.demand import Demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.wire.framing import encode
from gridengine.wire.messages import (
    Beat,
    CheckDemand,
    Checked,
    ClientRecall,
    ClientWelcome,
    Message,
    NestedHello,
    Submit,
    Supply,
)
from tests.support.tasks import make_task

FUNCTION = Function(b"f", (b"pickled",), (), b"/", "f")


class Requesting(RequestingDispatcher):
    """One whose way to the dispatcher is the test."""

    def __init__(self, *, unserved: bool = False) -> None:
        super().__init__(3)
        self.incoming: queue.SimpleQueue[tuple[Message, Payload] | BaseException] = (
            queue.SimpleQueue()
        )
        self.sent: list[Message] = []
        self.refusal: Payload = ()
        self.command: str | None = None
        self.gone = False
        self.say(ClientWelcome(3, 5, 8, unserved=unserved))
        self._begin(NestedHello(3), "reader")

    def say(self, message: Message, buffers: Payload = ()) -> None:
        self.incoming.put((message, buffers))

    def _deliver(self, message: Message, buffers: Payload = ()) -> None:
        if self.gone:
            raise EOFError("nobody is there")
        encode(message, buffers)
        self.sent.append(message)
        if isinstance(message, CheckDemand):
            refused = bool(self.refusal)
            self.say(Checked(3, message.number, refused, self.command), self.refusal)

    def _submitter(self, number: int, run: int) -> int:
        return number

    def _receive(self) -> list[tuple[Any, Any]]:
        found = self.incoming.get()
        if isinstance(found, BaseException):
            raise found
        return [found]

    def lose(self, error: BaseException) -> None:
        """Have the thread that reads find this, and end."""
        self.incoming.put(error)
        self._thread.join()

    def close(self, *, wait: bool = True) -> None:
        self.lose(EOFError("it is closed"))

    def kinds(self, kind: type) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kind)]


class Heard:
    """A listener."""

    daemon = True

    def __init__(self) -> None:
        self.events: list[CallsFinished] = []
        self.settled = self.events.append


@pytest.fixture
def dispatcher() -> Iterator[Requesting]:
    one = Requesting()
    yield one
    one.close()


def submit(dispatcher: Requesting, **options: Any) -> list[CallsFinished]:
    """Submit a task; return what is told of it."""
    heard: Any = Heard()
    dispatcher.submit(FUNCTION, [make_task(dispatcher.new_id(), (b"calls",), **options)], heard)
    return heard.events  # type: ignore[no-any-return]


def test_numbers_of_tasks_are_those_of_the_client_that_it_is_known_as(
    dispatcher: Requesting,
) -> None:
    assert dispatcher.slots == 8
    assert [dispatcher.new_id() >> 40 for _ in range(2)] == [5, 5]


def test_a_possible_demand_is_not_asked_again(dispatcher: Requesting) -> None:
    for _ in range(2):
        submit(dispatcher, demand=Demand(Cores(2)))
        submit(dispatcher)
    assert len(dispatcher.kinds(CheckDemand)) == 1
    assert len(dispatcher.kinds(Submit)) == 4


def test_an_impossible_demand_is_raised_and_asked_again(dispatcher: Requesting) -> None:
    dispatcher.refusal = pickling.dump_exception(ConfigurationError("too many"))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="too many"):
            submit(dispatcher, demand=Demand(Cores(99)))
    assert len(dispatcher.kinds(CheckDemand)) == 2
    assert dispatcher.kinds(Submit) == []


def test_a_task_that_cannot_be_sent_fails_and_so_do_those_that_need_its_result(
    dispatcher: Requesting,
) -> None:
    events = submit(dispatcher, name="\udcff", kept=((0, 77),))
    [failed] = events
    assert "cannot be sent" in str(failed.error)
    assert failed.last
    [supplied] = dispatcher.kinds(Supply)
    assert (supplied.reference, supplied.raised) == (77, True)
    assert submit(dispatcher) == []  # the next is sent, of a function that is known by then
    defines, calls = dispatcher.kinds(Submit)
    assert (defines.tasks, defines.function.name) == ([], "f")
    assert (len(calls.tasks), calls.function) == (1, None)


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (EOFError("it has ended"), Cancelled, "it has ended"),
        (DispatcherGone("silent"), DispatcherGone, "silent"),
        (VersionMismatch("older"), VersionMismatch, "older"),
        (ZeroDivisionError("own"), Cancelled, "the thread that reads failed: ZeroDivisionError"),
    ],
)
def test_all_waiting_threads_are_told_that_nobody_answers(
    dispatcher: Requesting, found: BaseException, kind: type[GridEngineError], words: str
) -> None:
    events = submit(dispatcher)
    asked = dispatcher._questions[99] = Question()
    dispatcher.lose(found)
    [failed] = events
    assert type(failed.error) is kind
    assert words in str(failed.error)
    with pytest.raises(kind):
        asked.result(0)
    with pytest.raises(DispatcherGone if kind is DispatcherGone else ConfigurationError):
        submit(dispatcher)
    dispatcher.catch_up()  # all is decided


def test_a_message_that_none_is_meant_for_ends_all(dispatcher: Requesting) -> None:
    events = submit(dispatcher)
    dispatcher.say(Beat())
    dispatcher._thread.join()
    assert "the thread that reads failed" in str(events[0].error)


def test_a_request_during_another_s_send_is_sent_by_that_one_in_order() -> None:
    first, second, third = (ClientRecall(3, [(task, 0, 1)]) for task in range(3))

    class Busy(Requesting):
        def _deliver(self, message: Message, buffers: Payload = ()) -> None:
            if message is first:
                other = threading.Thread(target=self._request, args=(second,))
                other.start()
                other.join()  # it does not wait for this one
                self._request(third)
            super()._deliver(message, buffers)

    dispatcher = Busy()
    dispatcher._request(first)
    assert dispatcher.kinds(ClientRecall) == [first, second, third]
    dispatcher.close()


def test_requests_without_a_receiver_are_dropped(dispatcher: Requesting) -> None:
    dispatcher.gone = True
    events = submit(dispatcher)
    assert not dispatcher._outgoing
    dispatcher.lose(EOFError("nobody is there"))
    assert len(events) == 1


def test_a_process_that_was_forked_cannot_use_it(
    dispatcher: Requesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list(dispatcher.sent)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 0)
        with pytest.raises(ConfigurationError, match="forked from"):
            submit(dispatcher)
        dispatcher.release(b"name")  # nothing is sent by it
    assert dispatcher.sent == sent
    assert submit(dispatcher) == []


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "gridengine worker NAME --cores 3",
            "; start one: gridengine worker sweeps --cores 3",
        ),
        ("", ""),
    ],
)
def test_a_demand_that_no_worker_holds_yet_warns_once(
    command: str, told: str, dispatcher: Requesting, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher.command, dispatcher.name = command, "sweeps"
    for _ in range(2):
        dispatcher.check(Demand(Cores(3)))
    assert caplog.messages == [f"calls wait: no worker holds Cores(3){told}"]


@pytest.mark.parametrize("unserved", [False, True])
def test_a_call_without_a_demand_warns_once_where_there_is_no_worker(
    unserved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = Requesting(unserved=unserved)
    one.command = "gridengine worker NAME"
    for _ in range(2):
        submit(one)
    one.close()
    words = "calls wait: there is no worker; start one: gridengine worker NAME"
    assert caplog.messages == [words] * unserved
    assert len(one.kinds(CheckDemand)) == unserved


def test_a_task_that_is_submitted_while_the_dispatcher_is_lost_has_an_error() -> None:
    """The thread that reads fails all tasks after the first look, and before this one is known."""

    class Lost(Requesting):
        def _admit(self, tasks: object) -> None:
            self.lose(EOFError("it has ended"))

    [failed] = submit(Lost())
    assert "it has ended" in str(failed.error)
    assert failed.last


def test_a_question_that_is_asked_while_the_dispatcher_is_lost_is_an_error(
    dispatcher: Requesting,
) -> None:
    dispatcher.lose(EOFError("it has ended"))
    with pytest.raises(Cancelled, match="it has ended"):
        dispatcher.check(Demand(Cores(2)))
