"""What processes ask whose calls make calls, and what they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gridengine.dispatcher.core.events import (
    ClientJoined,
    ClientLeft,
    Event,
    ResultFetched,
    ResultStays,
)
from gridengine.dispatcher.io_loop import PayloadsAtWorkers
from gridengine.dispatcher.serving.client_process import ENDED
from gridengine.dispatcher.serving.clients import Clients
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.errors import ConfigurationError, GridEngineError, WorkerCrashed
from gridengine.requests import (
    CallsFinished,
    CallsRecalled,
    NamesForgotten,
    ResultData,
    ResultWanted,
    Submitted,
    Supplied,
    TaskBegan,
    TaskMessage,
    TasksCancelled,
    Told,
    WantAnswered,
)
from gridengine.resources import Cores
from gridengine.resources.demand import Demand, encode_demand
from gridengine.serialize import pickling
from gridengine.serialize.payload import PayloadAtWorker
from gridengine.wire.framing import decode, encode
from gridengine.wire.messages import (
    NUMBER_BITS,
    Cancel,
    CheckDemand,
    Checked,
    ClientCancel,
    ClientForget,
    ClientRecall,
    ClientWelcome,
    Finished,
    FunctionItem,
    Message,
    NestedEnded,
    NestedHello,
    SharedItem,
    Submit,
    Supply,
    TaskItem,
    TaskPushed,
    TaskStarted,
    Tell,
    Want,
    WantAnswer,
)
from tests.support.core_play import SQUARE, Play
from tests.support.tasks import make_task

RUNNER = 3
FUNCTION = FunctionItem("f", [b"/code"], b"/home")


class Process:
    """A process at the worker `w`, whose calls make calls, and the dispatcher's end of it."""

    def __init__(self, play: Play, check: Any = lambda demand: None) -> None:
        self.sent: list[tuple[bytes, Message, Sequence[Any]]] = []
        self.posted: list[Event] = []
        self.unsettled = UnsettledTasks()
        self.play = play
        self.clients = Clients(
            play.core.state,
            lambda *one: self.sent.append((one[0], *decode(encode(*one[1:])))),
            self.posted.append,
            self.unsettled,
            check,
            slots=7,
        )
        assert self.say(NestedHello(RUNNER)) == []
        [(worker, welcome)] = self.told()
        assert worker == b"w"
        assert isinstance(welcome, ClientWelcome)
        assert (welcome.runner, welcome.slots) == (RUNNER, 7)
        self.first = welcome.client << NUMBER_BITS

    def say(self, message: Message, *buffers: bytes) -> list[Event]:
        return list(self.clients.events(b"w", *decode(encode(message, buffers))))

    def told(self) -> list[tuple[bytes, Message]]:
        sent, self.sent = self.sent, []
        return [(worker, message) for worker, message, _ in sent]

    def task(self, number: int, **options: Any) -> TaskItem:
        return TaskItem(self.first + number, submitter=self.first + 99, **options)

    def submit(self, *tasks: TaskItem, run: int = 0, **options: Any) -> list[Event]:
        message = Submit(RUNNER, run, b"digest", list(tasks), **options)
        return self.say(message, *[b"buffer"] * message.count_buffers())


@pytest.fixture
def process() -> Process:
    return Process(Play())


def test_dependents_of_a_refused_task_are_told_why() -> None:
    def refuse(demand: Demand) -> None:
        raise ConfigurationError("no worker holds so much")

    process = Process(Play(), check=refuse)
    item = process.task(1, kept=[(0, 77)], demand=encode_demand(Demand(Cores(99))))
    [supplied] = process.submit(item, function=FUNCTION)
    assert isinstance(supplied, Supplied)
    assert (supplied.reference, str(supplied.data.error)) == (77, "no worker holds so much")
    [(_, finished)] = process.told()
    assert isinstance(finished, Finished)
    assert finished.outcomes[0].failed
    assert process.say(ClientForget(RUNNER, references=[77])) == [NamesForgotten(references=(77,))]


def test_tasks_with_the_same_options_share_a_record_of_them(process: Process) -> None:
    options = {"retries": 5, "demand": encode_demand(Demand(Cores(2)))}
    found = [
        process.submit(process.task(number, **options), function=FUNCTION)[0].tasks[0].options
        for number in (1, 2)
    ]
    assert found[0].retries == 5
    assert found[0] is found[1]


def test_tasks_are_submitted_for_the_run_that_the_process_is_at_and_a_function_is_sent_once(
    process: Process,
) -> None:
    play = process.play
    play.hello()
    play.submit()
    [parent] = play.assigned()
    options = {"retries": 5, "demand": encode_demand(Demand(Cores(2)))}
    [event] = process.submit(process.task(1, **options), run=parent.run, function=FUNCTION)
    assert isinstance(event, Submitted)
    assert event.parent == parent.run
    function, [task] = event.function, event.tasks
    assert (function.digest, function.name, list(function.payload)) == (b"digest", "f", [b"buffer"])
    assert (task.id, task.options.retries, task.options.demand) == (
        process.first + 1,
        5,
        Demand(Cores(2)),
    )
    assert play.play(event) != []
    [second] = process.submit(process.task(2))
    assert isinstance(second, Submitted)
    assert second.function is event.function
    process.say(ClientForget(RUNNER, functions=[b"digest"]))
    assert process.submit(process.task(3)) == []


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("run", [0, 99])
def test_the_children_of_no_run_or_of_another_worker_s_are_to_end_at_once(
    process: Process, run: int, detached: bool
) -> None:
    [event] = process.submit(process.task(1), run=run, function=FUNCTION, detached=detached)
    assert isinstance(event, Submitted)
    assert event.parent == ENDED
    process.play.play(event)
    [settled] = process.play.seen(CallsFinished)
    assert settled.error is not None


def test_detached_calls_are_the_client_s_whose_call_makes_them(process: Process) -> None:
    play = process.play
    play.hello()
    play.play(ClientJoined(500, 1.0))
    parent = make_task(7, (b"calls",), 1, submitter=500 << NUMBER_BITS)
    play.play(Submitted(SQUARE, [parent]))
    [run] = play.assigned()
    [event] = process.submit(process.task(1), run=run.run, function=FUNCTION, detached=True)
    play.play(event)
    play.done(run)
    detached = process.first + 1
    assert set(play.core.state.open_tasks) == {detached}
    assert play.core.state.snapshot().clients[500].done == 1
    play.play(ClientLeft(500))
    assert play.sent(Cancel)


@pytest.mark.parametrize("wrong", ["id", "submitter", "twice", "needs", "demand", "digest"])
def test_a_refused_task_is_settled_with_an_error(process: Process, wrong: str) -> None:
    task = process.task(1, count=4)
    tasks = {
        "id": [TaskItem(1, submitter=task.submitter)],
        "submitter": [TaskItem(task.id, submitter=1)],
        "twice": [task, task],
        "needs": [process.task(1, needs=[b"unknown"])],
        "demand": [process.task(1, demand=([("Cores", [0])], 1.0))],
        "digest": [task],
    }[wrong]
    assert process.submit(*tasks, function=None if wrong == "digest" else FUNCTION) == []
    [(_, message, buffers)] = process.sent
    assert isinstance(message, Finished)
    assert [(one.task, one.stop, one.last, one.failed) for one in message.outcomes] == [
        (one.id, one.count, True, True) for one in tasks
    ]
    assert isinstance(pickling.load_exception([buffers[0]]), GridEngineError)


def test_shared_objects_are_found_again_by_their_names(process: Process) -> None:
    shared = [SharedItem(b"inner"), SharedItem(b"outer", [b"inner"])]
    [first] = process.submit(process.task(1, needs=[b"outer"]), function=FUNCTION, shared=shared)
    [second] = process.submit(process.task(2, needs=[b"inner"]))
    assert isinstance(first, Submitted)
    assert isinstance(second, Submitted)
    [outer] = first.tasks[0].needs
    [inner] = second.tasks[0].needs
    assert (outer.name, outer.needs) == (b"outer", (inner,))
    assert process.say(ClientForget(RUNNER, shared=[b"outer", b"never"])) == [
        NamesForgotten(shared=(b"outer",))
    ]


def test_outcomes_are_told_together_with_all_that_belongs_to_them(process: Process) -> None:
    process.submit(process.task(1, count=2, retries=0), function=FUNCTION)
    task = process.first + 1
    error = WorkerCrashed("it died", host="here")
    for one in (
        CallsFinished(task, 0, 1, [b"value", b"array"], seconds=2.0),
        CallsFinished(task, 1, 2, None, error=error, stdout=b"out", exitcode=-9, last=True),
    ):
        process.unsettled.settle(one)
    process.clients.flush()
    [(_, message, buffers)] = process.sent[1:] if len(process.sent) > 1 else process.sent
    assert isinstance(message, Finished)
    first, second = message.outcomes
    assert (first.buffers, first.seconds, first.last) == (2, 2.0, False)
    assert (second.failed, second.output, second.exitcode, second.last) == (True, True, -9, True)
    value, array, died, out, err = map(bytes, buffers)
    assert (value, array, out, err) == (b"value", b"array", b"out", b"")
    assert str(pickling.load_exception([died])) == str(error)


@pytest.mark.parametrize("error", [None, GridEngineError("it is lost")])
def test_a_result_that_has_stayed_at_a_worker_is_told_once_it_is_here_and_others_after_it(
    process: Process, error: GridEngineError | None
) -> None:
    process.submit(process.task(1, count=2), function=FUNCTION)
    asked: list[int] = []
    kept, payload = (
        PayloadsAtWorkers(asked.append, lambda references: None),
        PayloadAtWorker(5, 9, b"w"),
    )
    kept.add(ResultStays(payload))
    process.unsettled.settle(CallsFinished(process.first + 1, 0, 1, payload))
    process.unsettled.settle(CallsFinished(process.first + 1, 1, 2, [b"other"], last=True))
    process.clients.flush()
    assert (process.told(), asked) == ([], [5])
    data = ResultData(error=error) if error else ResultData([b"value"])
    kept.fill(ResultFetched(5, data))
    process.clients.flush()
    [(_, message, [first, *others])] = process.sent
    assert isinstance(message, Finished)
    assert [(one.start, one.failed, one.exitcode) for one in message.outcomes] == [
        (0, error is not None, int(error is not None)),
        (1, False, 0),
    ]
    assert others == [b"other"]
    assert str(pickling.load_exception([first])) == "it is lost" if error else first == b"value"


def test_a_watched_task_s_start_and_messages_are_passed_on(process: Process) -> None:
    process.submit(process.task(1, watched=True), function=FUNCTION)
    listener = process.unsettled.listener(process.first + 1)
    assert listener is not None
    listener.began(TaskBegan(process.first + 1, 5, "here", 1))
    listener.noted(TaskMessage(process.first + 1, [b"pushed"]))
    assert [message for _, message in process.told()] == [
        TaskStarted(RUNNER, process.first + 1, 5, "here", 1),
        TaskPushed(RUNNER, process.first + 1),
    ]


def test_a_process_can_end_and_recall_its_own_calls_alone(process: Process) -> None:
    own = process.first + 1
    calls = [(own, 0, 1), (7, 0, 1)]
    assert process.say(ClientCancel(RUNNER, [own, 7], 15, calls)) == [
        TasksCancelled((own,), 15, ((own, 0, 1),))
    ]
    assert process.say(ClientRecall(RUNNER, calls)) == [CallsRecalled(((own, 0, 1),))]


def test_results_are_wanted_supplied_and_released(process: Process) -> None:
    own = process.first + 1
    missing = WantAnswered(50, missing=True)
    assert process.say(Want(RUNNER, own, 2, 50)) == [ResultWanted(own, 2, 50)]
    process.clients.answer_want(missing)
    process.clients.answer_want(missing)  # of others' results
    assert [message for _, message in process.told()] == [WantAnswer(RUNNER, 50, True)]
    [event] = process.say(Supply(RUNNER, 50, raised=True, buffers=1), b"error")
    assert isinstance(event, Supplied)
    assert (event.reference, event.data.raised) == (50, True)
    [event] = process.say(ClientForget(RUNNER, references=[50]))
    assert event == NamesForgotten(references=(50,))


def test_a_request_that_no_worker_can_hold_is_told() -> None:
    def check(demand: Demand) -> None:
        raise ConfigurationError("no worker can")

    process = Process(Play(), check)
    assert process.say(CheckDemand(RUNNER, 5)) == []
    assert process.say(CheckDemand(RUNNER, 6, encode_demand(Demand(Cores(99))))) == []
    (_, first, _), (_, second, buffers) = process.sent
    assert (first, second) == (Checked(RUNNER, 5), Checked(RUNNER, 6, True))
    with pytest.raises(ConfigurationError, match="no worker can"):
        raise pickling.load_exception(buffers)


def test_a_client_is_told_that_there_is_no_worker_before_somebody_starts_one() -> None:
    play = Play(resources=Cores(1), keeps_others=True, max_workers=0)
    found = []
    for number in range(2):
        sent: list[Message] = []
        clients = Clients(
            play.core.state,
            lambda worker, message, *_, sent=sent: sent.append(message),
            list[Event]().append,
            UnsettledTasks(),
            lambda demand: None,
            slots=7,
        )
        list(clients.events(b"w", NestedHello(RUNNER), ()))
        [welcome] = sent
        assert isinstance(welcome, ClientWelcome)
        found.append(welcome.unserved)
        play.hello(b"%d" % number)
    assert found == [True, False]


def test_a_request_for_a_worker_by_hand_is_told_with_the_command() -> None:
    process = Process(Play(resources=Cores(1), keeps_others=True))
    process.say(CheckDemand(RUNNER, 5, encode_demand(Demand(Cores(1)))))
    process.say(CheckDemand(RUNNER, 6, encode_demand(Demand(Cores(9)))))
    assert [message for _, message in process.told()] == [
        Checked(RUNNER, 5),
        Checked(RUNNER, 6, command="gridengine worker NAME --cores 9"),
    ]


@pytest.mark.parametrize("how", ["process", "worker"])
def test_results_that_only_an_ended_process_could_name_are_released(
    process: Process, how: str
) -> None:
    process.submit(
        process.task(1, needs=[b"shared"], after=[40], kept=[(0, 41)]),
        function=FUNCTION,
        shared=[SharedItem(b"shared")],
    )
    if how == "process":
        events = process.say(NestedEnded(RUNNER))
    else:
        process.clients.forget(b"w")
        events = process.posted
    assert NamesForgotten((b"shared",), (40, 41)) in events
    [released] = [one for one in events if isinstance(one, NamesForgotten)]
    assert set(released.references) == {40, 41}
    process.told()
    process.unsettled.settle(CallsFinished(process.first + 1, 0, 1, [b"late"], last=True))
    process.clients.flush()
    assert process.sent == []
    assert process.submit(process.task(2)) == []


def test_a_client_tells_its_own_calls_alone(process: Process) -> None:
    mine = process.first + 1
    [event] = process.say(Tell(RUNNER, mine, 2), b"head", b"rest")
    assert isinstance(event, Told)
    assert (event.task, [*map(bytes, event.payload)]) == (mine, [b"head", b"rest"])
    assert process.say(Tell(RUNNER, 7), b"head") == []
