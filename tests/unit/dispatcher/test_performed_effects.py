"""What the core decides is done: sent, passed on, asked of the launcher."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

from gridengine.dispatcher.core.events import (
    Explain,
    Grant,
    Inform,
    Launch,
    Lost,
    Send,
    Warn,
    Withdraw,
)
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.core.tasks import (
    CallsFinished,
    ResultWanted,
    Task,
    TaskBegan,
    TaskMessage,
    WantAnswered,
)
from gridengine.dispatcher.io_loop import MOST_LINES, EffectPerformer
from gridengine.dispatcher.serving.clients import Clients
from gridengine.dispatcher.unsettled import UnsettledTasks
from gridengine.resources import Cores, Memory, Ranks
from gridengine.resources.base import Resource
from gridengine.schedulers.launcher import Handle
from gridengine.serialize import pickling
from gridengine.wire.messages import Allocate, Beat


class Recorder:
    """Takes the place of a link, a launcher and a listener: records what is called."""

    daemon = True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def no_clients(recorder: Any) -> Clients:
    """Return the processes whose calls make calls, of which there are none."""
    state, nothing = CoreState(Policy()), UnsettledTasks()
    return Clients(state, recorder.send, recorder.post, nothing, recorder.check, slots=1)


def performer(held: Resource | None = None) -> tuple[EffectPerformer, Recorder, Recorder]:
    recorder: Any = Recorder()
    listener: Any = Recorder()
    unsettled = UnsettledTasks()
    unsettled.add([Task(1, [], 2)], listener)
    return (
        EffectPerformer(recorder, recorder, unsettled, held, {}, no_clients(recorder), recorder),
        recorder,
        listener,
    )


def test_each_effect_goes_to_whom_it_is_for() -> None:
    one, recorder, listener = performer()
    handle = Handle("4711")
    finished = CallsFinished(1, 0, 1, [])
    started, message = TaskBegan(1, 5, "here", 1), TaskMessage(1, [b"x"])
    one.perform(
        [
            Send(b"a", Beat()),
            Lost(b"a"),
            Launch(3),
            Withdraw([handle]),
            Explain([handle], 2.0),
            started,
            message,
            finished,
        ]
    )
    assert recorder.calls == [
        ("send", b"a", Beat(), ()),
        ("forget", b"a"),
        ("launch", Launch(3)),
        ("cancel", [handle]),
        ("explain", [handle], 2.0),
    ]
    assert listener.calls == [("began", started), ("noted", message), ("settled", finished)]


def test_who_wanted_a_result_hears_once_that_it_is_missing_and_else_nothing() -> None:
    recorder: Any = Recorder()
    wanted = {one: (ResultWanted(1, 0, one), partial(recorder.missing, one)) for one in (5, 6)}
    clients = no_clients(recorder)
    one = EffectPerformer(recorder, recorder, UnsettledTasks(), None, wanted, clients, recorder)
    one.perform([WantAnswered(5, missing=True), WantAnswered(6, missing=False)])
    assert recorder.calls == [("missing", 5)]
    assert wanted == {}


def test_what_is_told_of_a_settled_task_is_dropped() -> None:
    one, _, listener = performer()
    one.perform([CallsFinished(1, 0, 2, [], last=True)])
    listener.calls.clear()
    one.perform([TaskBegan(1, 5, "here", 1), TaskMessage(1, []), CallsFinished(1, 0, 2, [])])
    assert listener.calls == []


def test_the_last_lines_of_the_log_are_kept_in_their_order() -> None:
    one = performer()[0]
    one.perform([(Warn if number % 2 else Inform)(str(number)) for number in range(MOST_LINES + 2)])
    assert [(text, warning) for _, text, warning in one.recent] == [
        (str(number), number % 2 == 1) for number in range(2, MOST_LINES + 2)
    ]
    times = [time for time, _, _ in one.recent]
    assert times == sorted(times)


def test_a_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gridengine"):
        performer()[0].perform([Warn("100 % full")])
    assert "100 % full" in caplog.text


@pytest.mark.parametrize(
    ("held", "exact"),
    [(None, False), (Cores(2), False), (Cores(2, [4, 6]), True), (Memory(1), False)],
)
def test_a_grant_names_the_cores_and_whether_they_are_the_machine_s_own_numbers(
    held: Resource | None, exact: bool
) -> None:
    one, recorder, _ = performer(held)
    given = Cores(2, [0, 1]) & Memory(1)
    one.perform([Grant(b"a", 7, given, 2)])
    [(_, worker, message, payload)] = recorder.calls
    assert (worker, message.allocation, message.slots, list(message.cores)) == (b"a", 7, 2, [0, 1])
    assert (message.exact, message.failed, message.gpus) == (exact, False, None)
    assert pickling.load(payload) == given


@pytest.mark.parametrize(
    ("given", "cores", "threads"),
    [
        (Ranks(2), None, 1),
        (Ranks(2) & Cores(4), None, 4),
        (Ranks(2) & Cores(4, [0, 1, 2, 3]), [0, 1, 2, 3], 2),
        (Cores(1, [3]), [3], 0),
    ],
    ids=repr,
)
def test_a_grant_to_ranks_says_how_many_threads_each_may_have(
    given: Resource, cores: list[int] | None, threads: int
) -> None:
    one, recorder, _ = performer()
    one.perform([Grant(b"a", 7, given, 4)])
    [(_, _, message, _)] = recorder.calls
    assert (message.cores, message.threads) == (cores, threads)


def test_what_a_user_s_kind_raises_travels_in_place_of_the_grant() -> None:
    class Broken(Cores):
        def __reduce__(self) -> Any:
            raise ValueError("a fault of mine")

    one, recorder, _ = performer()
    one.perform([Grant(b"a", 7, Broken(1, [0]), 1)])
    [(_, _, message, payload)] = recorder.calls
    assert isinstance(message, Allocate)
    assert message.failed
    assert "a fault of mine" in str(pickling.load_exception(payload))
