"""What a client has asked for, until its dispatcher has it on disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gridengine.calls.outstanding import PendingRequests, TakenOutcomes
from gridengine.calls.remote import RemoteDispatcher
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.requests import ResultWanted, Task
from gridengine.wire.messages import ClientHello, Message, Submit, TaskItem, Want


def test_a_task_is_durable_once_its_request_is_on_disk_and_not_while_it_is_on_its_way() -> None:
    requests, unsettled = PendingRequests(), UnsettledTasks()
    requests.journaled = True
    dispatcher: Any = SimpleNamespace(_requests=requests, _unsettled=unsettled, _limits=None)

    def is_durable() -> bool:
        return RemoteDispatcher.is_durable(dispatcher, 5)

    assert not is_durable()  # not even handed in
    task = Task(5, (b"calls",))
    RemoteDispatcher._admit(dispatcher, [task])
    unsettled.add([task], SimpleNamespace(daemon=True))  # type: ignore[arg-type]
    assert not is_durable()  # in the queue of the thread that sends
    requests.add(Submit(0, 0, b"digest", [TaskItem(5)]), [b"calls"])
    assert not is_durable()
    requests.taken(1)
    assert is_durable()


def test_a_result_that_is_kept_is_asked_for_again_until_that_is_on_disk() -> None:
    requests = PendingRequests()
    requests.journaled = True
    first, second = [(ResultWanted(5, 0, reference), list) for reference in (1, 2)]
    for want in first, second:
        requests.add(Want(0, 5, 0, want[0].reference), ())
        requests.promised(want)
    requests.taken(1)
    assert not requests.asks_for(1)
    assert requests.take_promises() == {2: second}
    assert requests.take_promises() == {}
    requests.promised(first)  # it is on disk by now
    assert requests.take_promises() == {}


def test_a_client_that_is_not_welcomed_yet_repeats_its_greeting_to_the_next_process() -> None:
    done: list[Message | str] = []
    connection = SimpleNamespace(
        begin_again=lambda: done.append("begins"),
        send=done.append,
        send_again=lambda: done.append("repeats"),
    )
    hello: Any = ClientHello
    taken = TakenOutcomes()
    taken.add(4)
    dispatcher: Any = SimpleNamespace(
        _number=7,
        _resuming=False,
        _taken=taken,
        _connection=connection,
        _hello_again=lambda: hello,
        _streams=(),
    )
    RemoteDispatcher._resume(dispatcher)
    assert done == ["begins", hello]
    RemoteDispatcher._resume(dispatcher)
    assert done == ["begins", hello, "repeats"]
    assert taken.take() == []
