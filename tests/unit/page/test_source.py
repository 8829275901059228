"""The dispatcher that a page shows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import CANCEL, GRAPH, REPORT, STATUS, WatchAnswer
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.page import source as module
from gridengine.page.source import MOST_ANSWERS, SHARED_SECONDS, Source
from gridengine.status.rows import GraphStatus, Status
from gridengine.watching import dispatcher_lookup
from gridengine.watching.names import NotKnown
from gridengine.watching.runs_on_disk import report_of
from tests.support.watched import WHO, Machine


class Dispatcher:
    """A dispatcher that may be away or refuse, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.names: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.fault = ""
        self.unknown = False
        self.closed = 0

    def connect(self, name: str) -> Dispatcher:
        self.names.append(name)
        if self.unknown:
            raise NotKnown("none runs")
        return self

    def ask(
        self, ask: str = STATUS, *, most: int = 0, words: Sequence[str] = (), first: int = 0
    ) -> WatchAnswer:
        self.asked.append((ask, first))
        if self.fault:
            raise ClusterError(self.fault)
        return WatchAnswer(WHO, Status(), count=len(self.asked))

    def close(self) -> None:
        self.closed += 1

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Dispatcher:
    one = Dispatcher()
    for asked in (module, dispatcher_lookup):
        monkeypatch.setattr(asked, "connect", one.connect)
    monkeypatch.setattr(module, "time", one)
    return one


def test_viewers_share_an_answer_for_a_moment(dispatcher: Dispatcher) -> None:
    source = Source("")
    first = source.ask()
    assert source.ask() is first
    assert source.ask(first=1) is not first
    dispatcher.now += 1.01 * SHARED_SECONDS
    assert source.ask() is not first


def test_no_more_answers_are_kept_than_may_be(dispatcher: Dispatcher) -> None:
    source = Source("")
    for first in range(MOST_ANSWERS + 1):
        source.ask(first=first)
    source.ask(first=0)
    assert dispatcher.asked.count((STATUS, 0)) == 1 + 2  # one at its beginning


def test_a_lost_dispatcher_is_looked_for_by_its_own_name_after_a_moment(
    dispatcher: Dispatcher,
) -> None:
    source = Source("")
    dispatcher.fault = "it has ended"
    for _ in range(3):
        with pytest.raises(ClusterError, match="it has ended"):
            source.ask()
    assert (len(dispatcher.asked), dispatcher.closed) == (2, 1)
    dispatcher.fault = ""
    dispatcher.now += 1.01 * SHARED_SECONDS
    assert source.ask().identity is WHO
    assert dispatcher.names == ["", "sweep.py"]


def left(machine: Machine) -> WatchAnswer | None:
    """Return the report that the dispatcher has left."""
    machine.ended(WatchAnswer(WHO, Status(done=299, failed=1)))
    return report_of(WHO.run_id)


def test_after_the_end_the_report_answers_until_a_dispatcher_of_that_name_is_there(
    dispatcher: Dispatcher, machine: Machine
) -> None:
    source, report = Source(""), left(machine)
    assert source.ended is None
    dispatcher.now += 1.01 * SHARED_SECONDS
    dispatcher.fault = "it has ended"
    assert source.ask() == source.ask(REPORT) == source.ended == report
    assert source.ask(GRAPH) == replace(report, graph=GraphStatus())
    with pytest.raises(ClusterError, match="it has ended"):
        source.act(CANCEL, ["1.0"])
    assert source.ask() == report
    dispatcher.fault = ""
    dispatcher.now += 1.01 * SHARED_SECONDS
    assert source.ask() != report
    assert source.ended is None


def test_a_run_that_has_ended_before_is_shown_by_its_report(
    dispatcher: Dispatcher, machine: Machine
) -> None:
    report = left(machine)
    dispatcher.unknown = True
    source = Source("20261123")
    assert source.ask() == source.ended == report
    assert dispatcher.names == ["20261123"] * 2  # no other run of the same script is meant
    with pytest.raises(NotKnown, match="none runs"):
        Source("nosuch")
    machine.killed(900_004_242, "20261124-093000-node7-4242-0a1b2c")
    with pytest.raises(ConfigurationError, match="was killed"):
        Source("20261124")


def test_a_refusal_to_act_is_for_the_asker_alone(dispatcher: Dispatcher) -> None:
    source = Source("")
    dispatcher.fault = "it refuses"
    with pytest.raises(ClusterError, match="it refuses"):
        source.act(CANCEL, ["1.0"])
    dispatcher.fault = ""
    assert source.ask().identity is WHO


def test_answers_from_before_an_action_are_asked_for_anew(dispatcher: Dispatcher) -> None:
    source = Source("")
    first = source.ask()
    source.act(CANCEL, ["1.0"])
    assert source.ask() is not first


def test_a_connection_that_gives_no_answer_is_closed(dispatcher: Dispatcher) -> None:
    dispatcher.fault = "it does not answer"
    with pytest.raises(ClusterError):
        Source("")
    assert dispatcher.closed == 1


def test_a_source_may_be_closed_twice(dispatcher: Dispatcher) -> None:
    source = Source("")
    source.close()
    source.close()
    assert dispatcher.closed == 1
