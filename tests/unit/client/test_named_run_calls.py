"""The maps, single calls, graphs and jobs of a named run, in this process."""

from __future__ import annotations

import datetime
import gc
import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

import gridengine
from gridengine import requests
from gridengine.client.future import CallTemplate
from gridengine.client.graph import Node, read
from gridengine.client.named_run import OpenRun, RecordPlace, RunCall
from gridengine.client.named_run_calls import RunGraph
from gridengine.client.options import CallOptions
from gridengine.journal.known_calls import Piece
from gridengine.journal.run_file import RunFile, files_in_use
from gridengine.requests import CallsFinished
from gridengine.serialize.payload import SINGLE
from gridengine.serialize.pickling import dump_exception
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.held_dispatcher import HeldDispatcher
from tests.support.named_calls import Notes, square, square_and_ignore


def squares(notes: Notes, numbers: Any, **options: Any) -> list[Any]:
    options = {"scheduler": FakeScheduler(), "reraise": False, **options}
    return gridengine.map(square, numbers, **options, **notes.options)


@pytest.mark.parametrize("chunksize", [None, 1, 7])
def test_only_unknown_calls_are_handed_over(notes: Notes, chunksize: int | None) -> None:
    assert squares(notes, range(5, 20)) == [x * x for x in range(5, 20)]
    assert notes.made() == list(range(5, 20))
    scheduler = FakeScheduler()
    found = squares(notes, range(30), chunksize=chunksize, scheduler=scheduler)
    assert found == [x * x for x in range(30)]
    assert notes.made() == [*range(5), *range(20, 30)]


def test_nothing_is_handed_over_when_all_results_are_known(notes: Notes) -> None:
    squares(notes, range(10))
    scheduler = FakeScheduler()
    assert squares(notes, range(10), scheduler=scheduler) == [x * x for x in range(10)]
    assert scheduler.dispatcher.entries == []


def test_failed_calls_are_made_again_or_stay_failures_as_asked_for(notes: Notes) -> None:
    notes.bad(3)
    assert str(squares(notes, range(6))[3]) == "3 is bad"
    notes.made()
    notes.bad()
    kept = squares(notes, range(6), retry_failed=False)
    assert (str(kept[3]), notes.made()) == ("3 is bad", [])
    assert squares(notes, range(6)) == [0, 1, 4, 9, 16, 25]
    assert notes.made() == [3]


def test_a_run_that_takes_nothing_of_as_many_calls_names_the_difference(
    notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    def warned(numbers: Any, **options: Any) -> list[str]:
        caplog.clear()
        squares(notes, numbers, **options)
        return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]

    assert warned([1, 2]) == warned([1, 2]) == warned([1, 3]) == warned([4, 5, 6]) == []
    [text] = warned([7, 8, 9])
    assert "0 results taken from the journal, 3 new: the run has as many calls, and" in text
    assert text.endswith("the argument differs: 4 before, 7 now")
    assert warned([7, 8, 9], resume=False) == []


def test_a_run_with_calls_and_no_result_of_any_blames_no_argument(
    notes: Notes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RunFile, "add_result", lambda *result, **options: None)
        squares(notes, [1, 2])
    squares(notes, [1, 2])
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [one.partition(": ")[2] for one in told] == [
        "0 results taken from the journal, 2 new: the run has as many calls, and no result of any"
    ]


def test_results_that_are_too_old_do_not_count_and_stay(
    notes: Notes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    squares(notes, range(3))
    notes.made()
    squares(notes, range(3), max_age=datetime.timedelta(days=1))
    assert notes.made() == []
    with monkeypatch.context() as later:
        now = time.time() + 2 * 86_400
        later.setattr(time, "time", lambda: now)
        caplog.set_level("INFO")
        squares(notes, range(2), max_age=86_400)
        assert notes.made() == [0, 1]
        assert "2 new: some are older than max_age=" in caplog.text
        assert not [one for one in caplog.records if one.levelname == "WARNING"]
        squares(notes, range(3), max_age=86_400)
        assert notes.made() == [2]
    squares(notes, range(3))
    assert notes.made() == []


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("many", [True, False])
def test_an_ignored_argument_changes_nothing(notes: Notes, many: bool, seed: int | None) -> None:
    def made(by: int) -> list[int]:
        options: Any = {"scheduler": FakeScheduler(), "ignore": "by", "seed": seed, **notes.options}
        if many:
            gridengine.starmap(square_and_ignore, [(1, by), (2, by)], **options)
        else:
            with gridengine.Executor(**options) as executor:
                for x in (1, 2):
                    executor.submit(square_and_ignore, x, by=by).result()
        return notes.made()

    assert made(1) == [1, 2]
    assert made(2) == []


def set_up(scale: int) -> None:
    """Prepare a process."""


def test_calls_of_another_initializer_or_of_other_initargs_are_made_again(notes: Notes) -> None:
    def made(initializer: Any, *initargs: Any) -> list[list[int]]:
        prepared: Any = {"initializer": initializer, "initargs": initargs}
        squares(notes, [1], **prepared)
        found = [notes.made()]
        options: Any = {"scheduler": FakeScheduler(), **prepared, **notes.options}
        with gridengine.Executor(**options) as executor:
            for begin in (
                lambda: executor.submit(square, 2).result(),
                lambda: [*executor.map(square, [3])],
                lambda: executor.submit_graph({"four": (square, 4)}, ["four"])[0].result(),
            ):
                begin()
                found.append(notes.made())
        return found

    new: list[list[int]] = [[1], [2], [3], [4]]
    known: list[list[int]] = [[], [], [], []]
    assert made(set_up, 1) == new
    assert made(set_up, 1) == known
    assert made(set_up, 2) == new
    assert made(abs, 1) == new
    assert made(None) == new
    assert made(set_up, 1) == made(None) == known


def test_a_wrong_option_for_the_keys_of_calls_is_an_error_at_once(notes: Notes) -> None:
    for options, told in [
        ({"ignore": "y"}, "ignore= names 'y', which is no parameter of square"),
        ({"ignore": "y", "seed": 1}, "ignore= names 'y', which is no parameter of square"),
        ({"ignore": 3}, "ignore must be a text, not 3"),
        ({"max_age": 0}, "max_age must be above zero"),
        ({"max_age": "1"}, "max_age='1' is not a time"),
        ({"depends": "nothing.csv"}, "depends= names the file 'nothing.csv'"),
    ]:
        with pytest.raises((TypeError, gridengine.ConfigurationError), match=told):
            squares(notes, [1], **options)
    assert notes.made() == []
    assert not files_in_use()


@pytest.mark.parametrize(
    "call",
    [
        lambda executor: executor.submit(abs, 1),
        lambda executor: executor.map(abs, [1]),
    ],
)
def test_an_executor_names_the_ignored_parameter_that_a_function_has_not(
    notes: Notes, call: Any
) -> None:
    with (
        gridengine.Executor(scheduler="inline", name="run", ignore="y") as executor,
        pytest.raises(gridengine.ConfigurationError, match="'y', which is no parameter of abs"),
    ):
        call(executor)


def test_results_of_before_are_left_alone_when_it_is_to_begin_anew(notes: Notes) -> None:
    squares(notes, range(3))
    notes.made()
    squares(notes, range(3), resume=False)
    assert notes.made() == [0, 1, 2]


def test_a_call_that_cannot_be_pickled_fails_alone_and_the_others_are_kept(notes: Notes) -> None:
    lock: Any = threading.Lock()
    for _ in range(2):
        found = squares(notes, [1, 2, lock, 4], chunksize=4)
        assert [found[0], found[1], found[3]] == [1, 4, 16]
        assert isinstance(found[2], gridengine.PicklingError)
    assert notes.made() == [1, 2, 4]


def test_a_call_that_needs_another_is_made_each_time_and_the_others_are_kept(notes: Notes) -> None:
    with FakeScheduler() as scheduler, gridengine.Executor(scheduler=scheduler) as executor:
        for made in [1, 4, 9], [9]:
            needed = executor.submit(abs, 9)
            assert squares(notes, [1, needed, 4], scheduler=scheduler) == [1, 81, 16]
            assert notes.made() == made


def test_an_imap_has_known_results_in_their_places(notes: Notes) -> None:
    squares(notes, [1, 3])
    notes.made()
    with FakeScheduler() as scheduler:
        found = gridengine.imap(square, [1, 2, 3, 4], scheduler=scheduler, **notes.options)
        assert list(found) == [1, 4, 9, 16]
        assert notes.made() == [2, 4]
        options = {"scheduler": scheduler, "with_index": True, **notes.options}
        found = gridengine.imap_unordered(square, [4, 5, 3], **options)
        assert sorted(found) == [(0, 16), (1, 25), (2, 9)]
    assert notes.made() == [5]


def test_an_iterator_that_is_left_lets_go_of_the_run(notes: Notes) -> None:
    scheduler = FakeScheduler()
    results = gridengine.imap(square, range(100), scheduler=scheduler, **notes.options)
    assert next(results) == 0
    assert len(files_in_use()) == 1
    scheduler.dispatcher.entries.clear()  # they hold their listeners
    del results
    gc.collect()
    assert not files_in_use()


def test_the_last_of_several_maps_of_one_name_is_shown(notes: Notes) -> None:
    for made in [1, 2, 3], []:
        squares(notes, [1, 2])
        squares(notes, [3])
        assert gridengine.run_named("run", journal=notes.journal).results() == [9]
        assert notes.made() == made


def test_a_call_that_is_made_twice_has_two_results(notes: Notes) -> None:
    squares(notes, [1, 1])
    assert notes.made() == [1, 1]
    squares(notes, [1, 1, 1])
    assert notes.made() == [1]


def test_a_ctrl_c_says_that_the_results_are_kept_and_the_next_step(notes: Notes) -> None:
    def on_submit(dispatcher: FakeDispatcher) -> None:
        raise KeyboardInterrupt

    scheduler = FakeScheduler(FakeDispatcher(on_submit=on_submit))
    with pytest.raises(KeyboardInterrupt) as caught:
        squares(notes, [1, 2], scheduler=scheduler)
    assert caught.value.__notes__[-1] == (
        "they are on disk in the run 'run': "
        "when the script is run again, it makes only the other calls"
    )


def outcomes(notes: Notes, *numbers: Any) -> list[Any]:
    """Return what came of single calls, and of a map, of one executor."""
    with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
        futures = [executor.submit(square, x) for x in numbers]
        return [future.exception() or future.result() for future in futures]


def test_the_dispatcher_knows_of_which_run_they_are(notes: Notes) -> None:
    scheduler = FakeScheduler()
    with gridengine.Executor(scheduler=scheduler, **notes.options) as executor:
        executor.submit(square, 2).result()
        assert list(executor.map(square, [3])) == [9]
    gridengine.map(square, [4, 5], scheduler=scheduler, **notes.options)
    gridengine.map(square, [6], scheduler=scheduler)
    with gridengine.JobDispatcher(scheduler, **notes.options) as dispatcher:
        dispatcher.dispatch([gridengine.Job(target=square, args=(7,))])
        dispatcher.join()
    named = scheduler.dispatcher.named
    submitters = [entry.task.options.submitter for entry in scheduler.dispatcher.entries]
    assert [number in named for number in submitters] == [*[True] * 4, False, True]
    assert set(named.values()) == {("run", str(notes.journal))}


def test_a_call_is_known_by_its_arguments(notes: Notes) -> None:
    assert outcomes(notes, 1, 2, 3) == [1, 4, 9]
    notes.made()
    assert outcomes(notes, 3, 4, 1) == [9, 16, 1]
    assert notes.made() == [4]


def test_a_call_that_needs_another_is_made_each_time(notes: Notes) -> None:
    for made in [2, 4], [4]:
        with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
            assert executor.submit(square, executor.submit(square, 2)).result() == 16
        assert notes.made() == made


def test_calls_of_a_pool_are_known(notes: Notes) -> None:
    for made in [1, 2, 3, 4], []:
        with gridengine.Pool(scheduler=FakeScheduler(), **notes.options) as pool:
            assert (pool.apply(square, (1,)), pool.map(square, [2])) == (1, [4])
            assert (pool.starmap(square, [(3,)]), [*pool.imap(square, [4])]) == ([9], [16])
        assert notes.made() == made


def test_a_failed_call_is_made_again(notes: Notes) -> None:
    notes.bad(2)
    assert [str(one) for one in outcomes(notes, 1, 2)] == ["1", "2 is bad"]
    notes.bad()
    notes.made()
    assert outcomes(notes, 1, 2) == [1, 4]
    assert notes.made() == [2]


def test_known_ones_have_their_results_before_others_are_handed_over(notes: Notes) -> None:
    outcomes(notes, 1, 2)
    dispatcher = HeldDispatcher()
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher), **notes.options)
    futures = [executor.submit(square, x) for x in (1, 9, 2)]
    assert [future.done() for future in futures] == [True, False, True]
    executor.shutdown(wait=False, cancel_futures=True)
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    executor.shutdown()


def test_a_cancelled_call_has_no_result(notes: Notes) -> None:
    dispatcher = HeldDispatcher()
    executor = gridengine.Executor(scheduler=FakeScheduler(dispatcher), **notes.options)
    futures = [executor.submit(square, x) for x in range(50)]
    assert futures[-1].cancel()
    executor.shutdown(wait=False)
    dispatcher.run_all(until=lambda: all(future.done() for future in futures))
    executor.shutdown()
    notes.made()
    assert outcomes(notes, *range(50)) == [x * x for x in range(50)]
    assert notes.made() == [49]


def test_a_call_without_a_key_is_made_each_time(notes: Notes) -> None:
    lock: Any = threading.Lock()
    found = outcomes(notes, lock, 2)
    assert isinstance(found[0], gridengine.PicklingError)
    assert found[1] == 4


def test_a_map_of_it_is_known_too(notes: Notes) -> None:
    for made in ([1, 2, 3], [4]):
        with gridengine.Executor(scheduler=FakeScheduler(), **notes.options) as executor:
            executor.submit(square, made[0]).result()
            assert list(executor.map(square, [2, 3])) == [4, 9]
        assert notes.made() == made


def one() -> int:
    return 1


def double(x: Any) -> Any:
    return 2 * x


GRAPH = {"a": (one,), "b": (double, "a"), "c": (double, "b"), "other": (double, 21)}


class Function:
    """What a run has of a function: calls are known by what they are given."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.identity = run, name.encode()
        self.blocks: list[Sequence[int]] = []

    def keys_of(self, calls: list[Any], form: int) -> list[bytes] | None:
        [call] = calls
        return None if "secret" in repr(call) else [self.identity + repr(call).encode()]

    def take_keys(self, keys: list[bytes], first: int) -> list[Piece]:
        return [self.run.pieces.get(self.run.names.get(key, ""), Piece(0, 1)) for key in keys]

    def outcome(self, piece: Piece) -> Any:
        return self.run.outcomes.get(piece.row)

    def add_block(self, form: int, numbers: Sequence[int], arguments: None, keys: bytes) -> int:
        self.blocks.append(numbers)
        return 100 + len(self.blocks)


class Run:
    """A run in which these calls of a graph, by their keys in that, have pieces and outcomes."""

    def __init__(self) -> None:
        self.pieces: dict[str, Piece] = {}
        self.outcomes: dict[int, Any] = {}
        self.names: dict[bytes, str] = {}
        self.functions: dict[str, Function] = {}
        self.places: dict[int, list[RecordPlace]] = {}
        self.expect = self.places.__setitem__
        self._places, self._numbers = self.places, itertools.count(10)

    look_up, expect_calls = OpenRun.look_up, OpenRun.expect_calls
    submit = None

    def function(self, f: Any, travels: object) -> Function:
        return self.functions.setdefault(f.__name__, Function(self, f.__name__))


def template_of(f: Any) -> CallTemplate:
    function = requests.Function(b"", (), (), b"", f.__name__)
    none: Any = None
    return CallTemplate(none, function, SINGLE, CallOptions(), batcher=none)


@pytest.fixture
def run() -> Run:
    return Run()


def left(run: Run, graph: dict[str, Any], *wanted: str) -> tuple[RunGraph, list[Node]]:
    """Return what is told of a graph, and the calls of it that are to be made."""
    nodes, calls = read(graph, wanted)
    kept: Any = RunGraph(run, template_of)  # type: ignore[arg-type]
    for node in calls:
        kept._find(node)
    run.names = {key: str(node.key) for node, (_, key) in kept._known.items()}
    return kept, kept.left(nodes, calls)


def made(calls: list[Node]) -> list[str]:
    return [str(node.key) for node in calls]


def test_calls_of_one_task_are_recorded_in_the_order_of_their_arguments(run: Run) -> None:
    function: Any = run.function(double, True)
    calls = [RunCall(function, SINGLE, b"%d" % number, number) for number in (5, 3)]
    run.expect_calls([(1, item, call) for item, call in enumerate(calls)], (b"arguments",))
    assert function.blocks == [[5, 3]]
    assert [call.offset for call in calls] == [0, 1]


def gave(run: Run, name: str, value: Any) -> None:
    """Have a call of the graph known, with its result, or with how it failed."""
    row = len(run.outcomes) + 1
    run.pieces[name] = Piece(0, 1, 5, row, row)
    run.outcomes[row] = value if isinstance(value, CallsFinished) else [value]


def test_all_wanted_nodes_of_a_new_graph_are_made(run: Run) -> None:
    _, calls = left(run, GRAPH, "c")
    assert made(calls) == ["a", "b", "c"]


def test_known_nodes_are_data_and_their_own_dependencies_are_not_made(run: Run) -> None:
    gave(run, "b", 2)
    _, calls = left(run, GRAPH, "c")
    [call] = calls
    assert made(calls) == ["c"]
    assert [node.value for node in call.needs] == [2]


def test_a_known_result_that_is_false_is_a_result(run: Run) -> None:
    gave(run, "c", None)
    assert left(run, GRAPH, "c")[1] == []


def test_failed_nodes_are_data_that_raises_and_their_dependents_are_made(run: Run) -> None:
    gave(run, "b", CallsFinished(0, 0, 1, dump_exception(ValueError("no")), raised=True))
    _, calls = left(run, GRAPH, "c")
    [call] = calls
    [failed] = [node.value for node in call.needs]
    assert (made(calls), failed.template.function.name) == (["c"], "double (node 'b')")
    with pytest.raises(ValueError, match="no"):
        failed.result()


def test_dependents_of_a_call_without_a_key_have_none_and_are_made(run: Run) -> None:
    graph = {"a": (double, b"secret"), "b": (double, "a"), "c": (double, 3)}
    kept, calls = left(run, graph, "b", "c")
    assert made(calls) == ["a", "b", "c"]
    for task, node in enumerate(calls):
        kept.added(node, task)
    kept.hand_over()
    assert run.places == {2: [RecordPlace(0, 1, 101, 0)]}


def test_calls_of_one_function_are_a_block_in_their_order(run: Run) -> None:
    kept, calls = left(run, GRAPH, "c", "other")
    for task, node in reversed(list(enumerate(calls))):
        kept.added(node, task)
    kept.hand_over()
    [numbers] = run.functions["double"].blocks
    assert list(numbers) == sorted(numbers)
    doubles = [task for task, node in enumerate(calls) if node.function is double]
    places = [place for task in doubles for place in run.places[task]]
    assert [place.block for place in places] == [101] * len(doubles)
    assert sorted(place.offset for place in places) == list(range(len(doubles)))


def test_a_call_that_is_made_again_is_recorded_at_its_old_place(run: Run) -> None:
    run.pieces["b"] = Piece(0, 1, 5, 7)
    kept, calls = left(run, GRAPH, "b")
    for task, node in enumerate(calls):
        kept.added(node, task)
    kept.hand_over()
    assert run.places[1] == [RecordPlace(0, 1, 5, 7)]


def test_a_result_that_nobody_asks_for_is_recorded_only_if_it_is_here(run: Run) -> None:
    kept, calls = left(run, GRAPH, "c")
    for task, node in enumerate(calls):
        kept.added(node, task)
    kept.hand_over()
    assert [run.places[task][0].only_here for task in range(3)] == [True, True, False]


def outcomes_of_jobs(
    notes: Notes, *numbers: Any, **options: Any
) -> tuple[list[Any], list[int | None]]:
    """Return what came of jobs, and their exit codes."""
    jobs = [gridengine.Job(target=square, args=(x,)) for x in numbers]
    with gridengine.JobDispatcher(FakeScheduler(), **notes.options, **options) as dispatcher:
        dispatcher.dispatch(jobs)
        results = list(dispatcher.join())
    return results, [job.exitcode for job in jobs]


def test_a_scheduler_that_cannot_be_had_holds_no_run(notes: Notes) -> None:
    with pytest.raises(ZeroDivisionError):
        gridengine.JobDispatcher(lambda: 1 / 0, **notes.options)  # type: ignore[arg-type,return-value]
    assert not files_in_use()


def test_a_job_that_has_returned_is_not_run_again(notes: Notes) -> None:
    assert outcomes_of_jobs(notes, 1, 2) == ([1, 4], [0, 0])
    notes.made()
    assert outcomes_of_jobs(notes, 1, 2, 3) == ([1, 4, 9], [0, 0, 0])
    assert notes.made() == [3]


def test_a_failed_job_is_run_again_or_has_failed_as_asked_for(notes: Notes) -> None:
    notes.bad(2)
    outcomes_of_jobs(notes, 1, 2)
    notes.bad()
    notes.made()
    results, codes = outcomes_of_jobs(notes, 1, 2, retry_failed=False)
    assert (str(results[1]), codes, notes.made()) == ("2 is bad", [0, 1], [])
    assert outcomes_of_jobs(notes, 1, 2) == ([1, 4], [0, 0])
    assert notes.made() == [2]
    assert outcomes_of_jobs(notes, 1, 2) == ([1, 4], [0, 0])
    assert notes.made() == []
