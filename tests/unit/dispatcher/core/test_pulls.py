"""Results that go straight from worker to worker: who is told to get what from whom."""

from __future__ import annotations

import math
import signal

import pytest

from gridengine.dispatcher.core import pulls
from gridengine.dispatcher.core.events import DrainHosts, Inform, ResultAsked
from gridengine.requests import NamesForgotten, Submitted, TasksCancelled
from gridengine.wire.messages import (
    ABSENT,
    CANCELLED,
    NOT_PULLED,
    TERMINATED,
    UNREACHED,
    Assignment,
    Crashed,
    Fetch,
    Fetched,
    Forget,
    Goodbye,
    Pull,
    Pulled,
    Returned,
    Serves,
    Stop,
    input_name,
)
from tests.support.core_play import CUBE, SQUARE, Play
from tests.unit.dispatcher.core.test_kept_results import FIRST, keeps, makes, needs

NAME = input_name(FIRST)


def served(play: Play, name: bytes) -> None:
    """Have a worker say where others get the results that it has."""
    play.say(Serves([f"tcp://{name.decode()}:1"], f"key of {name.decode()}"), worker=name)


def joined(*names: bytes) -> Play:
    """Have workers that can get results from each other, each of a host of its own."""
    play = Play(idle_seconds=1000.0)
    for name in names:
        play.hello(name, pid=name[0], pulls=True)
        served(play, name)
    return play


def keep_at(play: Play, worker: bytes, number: int) -> None:
    play.play(Submitted(SQUARE, [makes(number)]))
    [one] = play.assigned(worker)
    keeps(play, one, worker)


def pulling(**options: object) -> tuple[Play, Assignment, Pull]:
    """Have worker `a` be told to get a result from `b`, which is at another call that needs it."""
    play = joined(b"a", b"b")
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST, **options) for number in (200, 201)]))
    [pull] = play.sent(Pull, b"a")
    [one] = play.assigned(b"a")
    return play, one, pull


def given_back(play: Play, one: Assignment, pull: Pull, failure: str) -> None:
    play.say(Pulled(NAME, pull.number, failure), worker=b"a")
    play.say(Returned([one.run], NOT_PULLED), worker=b"a")


def test_a_call_is_assigned_at_once_and_its_worker_told_where_its_input_is() -> None:
    play, one, pull = pulling()
    assert (one.task, [given.reference for given in one.inputs]) == (201, [FIRST])
    assert pull == Pull(NAME, 1, ["tcp://b:1"], "key of b")
    assert play.sent(Fetch) == []


def test_a_worker_pulls_a_result_once_for_all_its_calls() -> None:
    play, one, pull = pulling()
    play.play(Submitted(CUBE, [needs(202, FIRST)]))
    play.say(Pulled(NAME, pull.number), worker=b"a")
    play.done(one, worker=b"a")
    assert play.sent(Pull) == play.sent(Fetch) == []
    assert play.core.state.objects[NAME].workers == {b"a", b"b"}


def test_a_pulled_result_survives_the_worker_that_made_it() -> None:
    play, _, pull = pulling()
    play.say(Pulled(NAME, pull.number), worker=b"a")
    play.say(Goodbye("killed", []), worker=b"b")
    assert play.sent(Pull) == []
    play.play(ResultAsked(FIRST))
    assert play.sent(Fetch, b"a") == [Fetch([NAME])]


def test_a_result_that_cannot_be_pulled_comes_here_and_goes_on() -> None:
    play, one, pull = pulling()
    given_back(play, one, pull, ABSENT)
    assert play.sent(Fetch, b"b") == [Fetch([NAME])]
    play.say(Fetched(NAME), b"bytes", worker=b"b")
    assert [again.task for again in play.assigned(b"a")] == [201]
    assert b"a" in play.core.state.workers


def test_that_two_hosts_cannot_connect_is_told_once() -> None:
    play, _, pull = pulling()
    play.say(Pulled(NAME, pull.number, UNREACHED), worker=b"a")
    [line] = [effect.text for effect in play.seen(Inform)]
    assert line.startswith("node-a cannot connect to workers on node-b")
    play.say(Pulled(NAME, pull.number, UNREACHED), worker=b"a")
    assert play.seen(Inform) == []
    until = play.now + pulls.NO_WAY_SECONDS
    assert play.core.state.no_ways == {("node-b", "node-a"): until}


@pytest.mark.parametrize("pairs", [1, pulls.MOST_IN_VAIN])
def test_hosts_that_could_not_connect_try_again_later(pairs: int) -> None:
    play = joined(b"a", b"b")
    until = play.now + pulls.NO_WAY_SECONDS
    play.core.state.no_ways = {(f"node-{one}", "node-a"): until for one in "bcd"[:pairs]}
    play.later(pulls.NO_WAY_SECONDS, beats=[b"a", b"b"])
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    assert len(play.sent(Pull, b"a")) == 1


def test_a_pull_that_has_failed_is_acknowledged() -> None:
    play, _, pull = pulling()
    play.say(Pulled(NAME, pull.number, ABSENT), worker=b"a")
    assert play.sent(Forget, b"a") == [Forget([NAME])]


def test_workers_that_pull_from_one_that_leaves_get_what_it_hands_over() -> None:
    play, one, pull = pulling()
    play.play(DrainHosts({"node-b"}))
    assert play.sent(Pull, b"a") == []
    [run] = play.core.state.workers[b"b"].runs.values()
    play.done(Assignment(run.number, 0, b"", 0, 1, 1, 0), worker=b"b")
    assert play.sent(Stop, b"b") == [Stop()]
    assert play.sent(Pull, b"a") == [Pull(NAME, pull.number)]
    play.say(Fetched(NAME), b"bytes", worker=b"b")
    given_back(play, one, pull, ABSENT)
    assert [again.task for again in play.assigned(b"a")] == [one.task]


def test_workers_that_pull_from_one_that_leaves_get_the_result_of_another_that_has_it() -> None:
    play = joined(b"b", b"a", b"c")
    keep_at(play, b"c", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    [first] = [name for name in (b"a", b"b") if play.sent(Pull, name)]
    play.say(Pulled(NAME, 1), worker=first)
    assert play.core.state.objects[NAME].workers == {first, b"c"}
    other = b"a" if first == b"b" else b"b"
    play.play(Submitted(CUBE, [needs(202, FIRST)]))
    [pull], [one] = play.sent(Pull, other), play.assigned(other)
    source = play.core.state.objects[NAME].pulls[other][0]
    for run in list(play.core.state.workers[source].runs.values()):
        play.done(Assignment(run.number, 0, b"", 0, 1, 1, 0), worker=source)
    play.play(DrainHosts({f"node-{source.decode()}"}))
    assert (play.sent(Forget, source), play.sent(Stop, source)) == ([Forget([NAME])], [Stop()])
    assert play.sent(Pull, other) == [Pull(NAME, pull.number)]
    play.say(Pulled(NAME, pull.number, ABSENT), worker=other)
    play.say(Returned([one.run], NOT_PULLED), worker=other)
    [keeper] = play.core.state.objects[NAME].workers
    assert play.sent(Fetch, keeper) == [Fetch([NAME])]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_call_that_waits_for_a_pull_has_not_begun_when_its_worker_leaves(retries: int) -> None:
    play, one, _ = pulling(retries=retries)
    play.say(Goodbye(TERMINATED, []), worker=b"a")
    [run] = play.core.state.workers[b"b"].runs.values()
    play.done(Assignment(run.number, 0, b"", 0, 1, 1, 0), worker=b"b")
    assert [(again.task, again.attempt) for again in play.assigned(b"b")] == [(one.task, 1)]


def test_nothing_is_pulled_between_hosts_that_cannot_connect() -> None:
    play = joined(b"a", b"b")
    play.core.state.no_ways["node-b", "node-a"] = math.inf
    play.core.state.has_way = True
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    assert (play.sent(Pull), play.sent(Fetch)) == ([], [Fetch([NAME])])


def test_nothing_more_is_pulled_when_no_hosts_could_connect() -> None:
    play = joined(b"a", b"b")
    play.core.state.no_ways.update({("x", str(n)): math.inf for n in range(3)})
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    assert (play.sent(Pull), play.sent(Fetch)) == ([], [Fetch([NAME])])


@pytest.mark.parametrize("who", ["cannot pull", "does not serve", "serves nowhere"])
def test_workers_without_the_means_get_results_from_here(who: str) -> None:
    play = Play(idle_seconds=1000.0)
    for name in (b"a", b"b"):
        play.hello(name, pid=name[0], pulls=who != "cannot pull")
        if who == "serves nowhere":
            play.say(Serves([], "key"), worker=name)
        elif who != "does not serve":
            served(play, name)
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    assert (play.sent(Pull), play.sent(Fetch)) == ([], [Fetch([NAME])])


def test_a_worker_that_pulls_from_a_lost_one_is_told_to_give_up() -> None:
    play, one, pull = pulling()
    play.say(Goodbye("killed", []), worker=b"b")
    assert play.sent(Pull, b"a") == [Pull(NAME, pull.number)]
    given_back(play, one, pull, ABSENT)
    [again] = play.assigned(b"a")
    assert (again.task < 0, list(again.kept)) == (True, [(0, FIRST)])


def test_a_result_that_had_arrived_before_its_source_was_lost_is_not_made_again() -> None:
    play, one, pull = pulling()
    play.play(ResultAsked(FIRST))
    play.say(Goodbye("killed", []), worker=b"b")
    assert all(again.task > 0 for again in play.assigned())
    play.say(Pulled(NAME, pull.number), worker=b"a")
    assert play.sent(Fetch, b"a") == [Fetch([NAME])]
    play.done(one, worker=b"a")
    assert all(again.task > 0 for again in play.assigned())


def test_a_result_that_is_let_go_is_forgotten_where_it_is_pulled_and_a_late_answer_is_dropped() -> (
    None
):
    play, one, pull = pulling()
    play.play(NamesForgotten(references=[FIRST, FIRST]))
    for run in list(play.core.state.runs.values()):
        play.done(Assignment(run.number, 0, b"", 0, 1, 1, 0), worker=run.worker.id)
    assert NAME not in play.core.state.objects
    play.say(Pulled(NAME, pull.number), worker=b"a")
    assert play.core.state.workers[b"a"].functions.isdisjoint([NAME])
    assert one.run not in play.core.state.runs


def test_a_lost_worker_pulls_nothing_more() -> None:
    play, _, _ = pulling()
    play.say(Goodbye("killed", []), worker=b"a")
    assert play.core.state.workers[b"b"].sending == 0
    assert play.core.state.objects[NAME].pulls == {}


def test_the_worker_that_sends_the_fewest_is_the_source() -> None:
    play, _, pull = pulling()
    play.say(Pulled(NAME, pull.number), worker=b"a")
    play.hello(b"c", pid=3, pulls=True)
    play.hello(b"d", pid=4, pulls=True)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in range(300, 310)]))
    sources = [one.addresses for one in [*play.sent(Pull, b"c"), *play.sent(Pull, b"d")]]
    assert sorted(sources) == [["tcp://a:1"], ["tcp://b:1"]]


def test_a_worker_that_sends_much_is_asked_by_way_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls, "MOST_SENDING", 0)
    play = joined(b"a", b"b")
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    assert (play.sent(Pull), play.sent(Fetch)) == ([], [Fetch([NAME])])


def test_unused_copies_of_a_result_that_is_not_here_go_but_for_one() -> None:
    play, one, pull = pulling()
    play.say(Pulled(NAME, pull.number), worker=b"a")
    play.core.state.objects[NAME].size = 1 << 30
    play.done(one, worker=b"a")
    for run in list(play.core.state.runs.values()):
        play.done(Assignment(run.number, 0, b"", 0, 1, 1, 0), worker=run.worker.id)
    assert play.sent(Forget) == [Forget([NAME])]
    assert len(play.core.state.objects[NAME].workers) == 1


def test_a_worker_that_leaves_hands_over_no_copy_of_what_another_has() -> None:
    play, one, pull = pulling()
    play.say(Pulled(NAME, pull.number), worker=b"a")
    play.done(one, worker=b"a")
    for run in list(play.core.state.runs.values()):
        play.done(Assignment(run.number, 0, b"", 0, 1, 1, 0), worker=run.worker.id)
    play.play(DrainHosts({"node-a"}))
    assert play.sent(Forget, b"a") == [Forget([NAME])]
    play.play(DrainHosts({"node-b"}))
    assert play.sent(Forget, b"b") == []
    assert play.sent(Stop, b"b") == [Stop()]


def test_a_result_asked_of_a_worker_that_pulls_it_and_leaves_is_asked_of_another() -> None:
    play = joined(b"a", b"b")
    keep_at(play, b"b", FIRST)
    play.hello(b"c", pid=3, pulls=True)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201, 202)]))
    sent = {name: (play.sent(Pull, name), play.assigned(name)) for name in (b"a", b"c")}
    first, second = play.core.state.objects[NAME].pulls
    [one], [at_source] = sent[first][1], play.assigned(b"b")
    [pull] = sent[second][0]
    play.play(ResultAsked(FIRST))
    play.play(TasksCancelled([one.task, at_source.task], signal.SIGTERM))
    play.say(Goodbye("killed", []), worker=b"b")
    play.say(Pulled(NAME, pull.number), worker=second)
    play.say(Crashed(one.run, -1, -15, CANCELLED, 0), b"", b"", worker=first)
    play.play(DrainHosts({f"node-{first.decode()}"}))
    assert play.sent(Fetch, second) == [Fetch([NAME])]


@pytest.mark.parametrize("is_silent_first", [True, False])
def test_a_result_of_a_silent_worker_comes_from_another_that_has_it(is_silent_first: bool) -> None:
    play = joined(b"b", b"a")
    keep_at(play, b"a", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    [pull] = play.sent(Pull, b"b")
    play.say(Pulled(NAME, pull.number), worker=b"b")
    seconds = 4 * play.core.state.policy.beat_seconds
    if is_silent_first:
        play.later(seconds, beats=[b"b"])
        play.play(ResultAsked(FIRST))
    else:
        play.play(ResultAsked(FIRST))
        assert play.sent(Fetch) == play.sent(Fetch, b"a")
        play.later(seconds, beats=[b"b"])
    assert play.sent(Fetch) == play.sent(Fetch, b"b") == [Fetch([NAME])]


@pytest.mark.parametrize("host", ["node-b", "another"])
def test_a_pull_within_a_host_does_not_show_that_hosts_can_connect(host: str) -> None:
    play = Play(idle_seconds=1000.0)
    for name, its in ((b"a", host), (b"b", "node-b")):
        play.hello(name, pid=name[0], pulls=True, host=its)
        served(play, name)
    keep_at(play, b"b", FIRST)
    play.play(Submitted(CUBE, [needs(number, FIRST) for number in (200, 201)]))
    [pull] = play.sent(Pull, b"a")
    play.say(Pulled(NAME, pull.number), worker=b"a")
    assert play.core.state.has_way is (host == "another")
