"""`map` and its kin, on a dispatcher that runs calls here."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest

import gridengine
from gridengine.client import connect
from gridengine.errors import (
    Cancelled,
    ConfigurationError,
    PicklingError,
    RemoteTraceback,
    WorkerCrashed,
)
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.mapped_calls import (
    Tracked,
    add,
    broken,
    fail_at_three,
    square,
    tracked_but_for_three,
)


def test_map_returns_results_in_order(scheduler: FakeScheduler) -> None:
    assert gridengine.map(square, range(1000), scheduler=scheduler) == [x * x for x in range(1000)]


def test_several_iterables_are_zipped_to_the_shortest(scheduler: FakeScheduler) -> None:
    assert gridengine.map(add, [1, 2, 3], itertools.count(10), scheduler=scheduler) == [11, 13, 15]


def test_starmap_spreads_each_item(scheduler: FakeScheduler) -> None:
    assert gridengine.starmap(add, [(1, 2), [3, 4]], scheduler=scheduler) == [3, 7]


def test_nothing_to_map_makes_no_scheduler() -> None:
    def never() -> FakeScheduler:
        raise AssertionError("made")

    assert gridengine.map(square, [], scheduler=never) == []
    assert gridengine.map(square, iter([]), scheduler=never) == []


def test_a_map_without_iterables_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="at least one iterable"):
        gridengine.map(square)


@pytest.mark.parametrize(
    "call", [gridengine.map, gridengine.starmap, gridengine.imap, gridengine.imap_unordered]
)
def test_a_function_that_is_not_callable_is_a_type_error(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="3 is not callable"):
        call(3, [1])
    with pytest.raises(TypeError, match=r"\[1\] is not callable: give the function first"):
        call([1], square)


@pytest.mark.parametrize("call", [gridengine.map, gridengine.imap, gridengine.imap_unordered])
def test_an_argument_that_is_not_iterable_is_named(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="3 is not iterable: give an iterable with the argument"):
        call(square, 3)


def test_an_object_that_is_indexed_alone_is_iterable(scheduler: FakeScheduler) -> None:
    class Indexed:
        def __getitem__(self, index: int) -> int:
            return [1, 2][index]

    indexed: Any = Indexed()
    assert gridengine.map(square, indexed, scheduler=scheduler) == [1, 4]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"chunksize": 10**30}, ConfigurationError),
        ({"chunksize": 0}, ConfigurationError),
        ({"chunksize": 1.5}, TypeError),
    ],
)
def test_a_chunksize_out_of_range_is_an_error(
    options: dict[str, Any], error: type[Exception], scheduler: FakeScheduler
) -> None:
    with pytest.raises(error, match=next(iter(options))):
        gridengine.map(square, [1], scheduler=scheduler, **options)


def test_the_first_block_is_one_call_and_later_ones_grow(scheduler: FakeScheduler) -> None:
    gridengine.map(square, iter(range(1000)), scheduler=scheduler)
    assert [entry.task.count for entry in scheduler.dispatcher.entries][:4] == [1, 8, 64, 512]


def test_few_small_calls_of_a_known_number_are_submitted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridengine.client.map_run.GATHER_SECONDS", 3600)
    dispatcher = FakeDispatcher()
    assert gridengine.map(square, range(10), scheduler=FakeScheduler(dispatcher)) == [
        number**2 for number in range(10)
    ]
    assert dispatcher.departures == [len(dispatcher.entries)]


def test_a_slow_iterable_keeps_no_call_waiting() -> None:
    seen: list[int] = []
    dispatcher = FakeDispatcher()

    def numbers() -> Iterator[int]:
        for number in range(5):
            seen.append(sum(entry.task.count for entry in dispatcher.entries))
            yield number

    gridengine.map(square, numbers(), scheduler=FakeScheduler(dispatcher), chunksize=1)
    assert seen == [0, 1, 2, 3, 4]


def test_a_chunksize_is_kept(scheduler: FakeScheduler) -> None:
    gridengine.map(square, range(10), scheduler=scheduler, chunksize=4)
    assert [entry.task.count for entry in scheduler.dispatcher.entries] == [4, 4, 2]


def test_a_failing_call_raises_its_own_exception(scheduler: FakeScheduler) -> None:
    with pytest.raises(ValueError, match="no 3") as caught:
        gridengine.map(fail_at_three, range(10), scheduler=scheduler)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "fail_at_three" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "run",
    [
        lambda **given: gridengine.map(tracked_but_for_three, range(5), **given),
        lambda **given: list(
            gridengine.imap(tracked_but_for_three, range(5), chunksize=5, **given)
        ),
        lambda **given: list(gridengine.Executor(**given).map(tracked_but_for_three, range(5))),
    ],
    ids=["map", "imap", "Executor.map"],
)
def test_no_result_of_a_failed_map_waits_for_the_collector(
    scheduler: FakeScheduler, run: Callable[..., object]
) -> None:
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            run(scheduler=scheduler)
        assert not Tracked.alive
    finally:
        gc.enable()


@pytest.mark.parametrize("calls", [range(5), iter(range(5))], ids=["sized", "unsized"])
def test_the_exception_of_a_map_carries_the_results_as_without_reraise(
    scheduler: FakeScheduler, calls: Iterable[int]
) -> None:
    with pytest.raises(ValueError, match="no 3") as caught:
        gridengine.map(fail_at_three, calls, scheduler=scheduler, chunksize=2)
    *first, error = caught.value.results[:4]  # type: ignore[attr-defined]
    assert first == [0, 1, 2]
    assert (type(error), error.args) == (ValueError, ("no 3",))
    assert error.__cause__ is caught.value.__cause__
    assert error is not caught.value, "they would wait for the collector"


def test_the_exception_of_a_map_has_a_place_for_calls_that_were_not_sent() -> None:
    with pytest.raises(ValueError, match="no 3") as caught:
        gridengine.map(fail_at_three, range(1000), scheduler=gridengine.InlineScheduler())
    results = caught.value.results  # type: ignore[attr-defined]
    assert len(results) == 1000
    assert all(isinstance(one, Cancelled) for one in results[900:])


class OwnResults(Exception):
    def __init__(self, results: int) -> None:
        super().__init__(results)
        self.results = results


def test_results_of_the_user_s_own_exception_stay(scheduler: FakeScheduler) -> None:
    def fail(x: int) -> None:
        raise OwnResults(x)

    with pytest.raises(OwnResults) as caught:
        gridengine.map(fail, [7], scheduler=scheduler)
    assert caught.value.results == 7


class Stubborn(Exception):
    __slots__ = ("results",)

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("frozen")


def test_an_exception_that_takes_no_results_is_raised_all_the_same(
    scheduler: FakeScheduler,
) -> None:
    def fail(x: int) -> None:
        raise Stubborn(x)

    with pytest.raises(Stubborn):
        gridengine.map(fail, [7], scheduler=scheduler)


def test_a_failure_waits_for_the_calls_before_it_and_for_no_other() -> None:
    def on_submit(dispatcher: FakeDispatcher) -> None:
        if len(dispatcher.entries) == 5:
            dispatcher.run(dispatcher.entries[3])
            dispatcher.run(dispatcher.entries[1])
            dispatcher.run(dispatcher.entries[2])
            dispatcher.run(dispatcher.entries[0])

    dispatcher = FakeDispatcher(on_submit=on_submit)
    with pytest.raises(ValueError, match="no 3"):
        gridengine.map(
            fail_at_three, iter(range(10)), scheduler=FakeScheduler(dispatcher), chunksize=1
        )
    assert set(dispatcher.cancelled) == {dispatcher.entries[4].task.id}


def test_no_calls_are_submitted_after_a_failure(scheduler: FakeScheduler) -> None:
    with pytest.raises(ValueError, match="no 3"):
        gridengine.map(fail_at_three, itertools.count(), scheduler=scheduler, chunksize=1)
    assert len(scheduler.dispatcher.entries) == 4


def test_an_error_of_the_cluster_is_raised() -> None:
    dispatcher = FakeDispatcher(
        on_submit=lambda dispatcher: dispatcher.fail(
            dispatcher.entries[-1], WorkerCrashed("it died of SIGSEGV")
        )
    )
    with pytest.raises(WorkerCrashed, match="SIGSEGV"):
        gridengine.map(square, range(3), scheduler=FakeScheduler(dispatcher))


def test_a_scheduler_that_map_made_is_closed_and_an_instance_is_left_open(
    scheduler: FakeScheduler,
) -> None:
    made: list[FakeScheduler] = []

    def make() -> FakeScheduler:
        made.append(FakeScheduler())
        return made[0]

    gridengine.map(square, [1], scheduler=make)
    gridengine.map(square, [1], scheduler=scheduler)
    assert made[0].dispatcher.closed
    assert not scheduler.dispatcher.closed


def test_a_scheduler_that_map_made_is_closed_when_a_call_fails() -> None:
    dispatcher = FakeDispatcher()
    with pytest.raises(ValueError, match="no 3"):
        gridengine.map(fail_at_three, range(5), scheduler=lambda: FakeScheduler(dispatcher))
    assert dispatcher.closed


def test_ctrl_c_cancels_unsettled_calls() -> None:
    def on_submit(dispatcher: FakeDispatcher) -> None:
        if len(dispatcher.entries) == 3:
            raise KeyboardInterrupt

    dispatcher = FakeDispatcher(on_submit=on_submit)
    with pytest.raises(KeyboardInterrupt):
        gridengine.map(square, iter(range(10)), scheduler=FakeScheduler(dispatcher), chunksize=1)
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}


def test_ctrl_c_in_a_map_carries_the_results_that_have_come() -> None:
    def on_submit(dispatcher: FakeDispatcher) -> None:
        if len(dispatcher.entries) == 3:
            dispatcher.run(dispatcher.entries[0])
            dispatcher.run(dispatcher.entries[2])
            raise KeyboardInterrupt

    dispatcher = FakeDispatcher(on_submit=on_submit)
    with pytest.raises(KeyboardInterrupt) as caught:
        gridengine.map(square, iter(range(10)), scheduler=FakeScheduler(dispatcher), chunksize=1)
    first, second, third = caught.value.results  # type: ignore[attr-defined]
    assert (first, third) == (0, 4)
    assert isinstance(second, Cancelled)
    [note] = caught.value.__notes__
    assert note.startswith("`results` of this exception has the results of 2 of 3 calls")


def test_an_error_of_the_iterable_cancels_and_propagates() -> None:
    dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
    with pytest.raises(LookupError, match="no more arguments"):
        gridengine.map(square, broken(3), scheduler=FakeScheduler(dispatcher), chunksize=1)
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}


def test_an_unpicklable_argument_is_an_error_at_once_that_names_its_call() -> None:
    dispatcher = FakeDispatcher(on_submit=lambda dispatcher: None)
    with pytest.raises(PicklingError, match="call 5"):
        gridengine.map(
            square, [0, 1, 2, 3, 4, threading.Lock(), 6], scheduler=FakeScheduler(dispatcher)
        )
    assert set(dispatcher.cancelled) == {entry.task.id for entry in dispatcher.entries}


def test_without_reraise_an_unpicklable_argument_fails_its_own_call_alone(
    scheduler: FakeScheduler,
) -> None:
    arguments = [0, 1, 2, 3, 4, threading.Lock(), 6, 7]
    results: list[Any] = gridengine.map(
        square, arguments, scheduler=scheduler, reraise=False, chunksize=8
    )
    assert isinstance(results.pop(5), PicklingError)
    assert results == [0, 1, 4, 9, 16, 36, 49]


def test_an_unpicklable_function_is_an_error_before_a_scheduler_is_made() -> None:
    lock = threading.Lock()

    def never() -> FakeScheduler:
        raise AssertionError("made")

    with pytest.raises(PicklingError, match="lock"):
        gridengine.map(lambda x: lock, [1], scheduler=never)


# ------------------------------------------------------------------ partial


def train(rate: float, optimiser: str = "SGD", *, steps: int = 1) -> tuple[float, str, int]:
    """Train."""
    return rate, optimiser, steps


def test_a_partial_is_a_functools_partial() -> None:
    made = gridengine.partial(train, 0.1, steps=5)
    assert isinstance(made, functools.partial)
    assert made("Adam") == (0.1, "Adam", 5)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="no argument can be left open")
def test_an_argument_that_is_left_open_is_a_line() -> None:
    made = gridengine.partial(train, functools.Placeholder, 5)  # type: ignore[attr-defined]
    assert made.__name__ == "train___5"


def test_a_partial_of_a_partial_shows_the_values_of_both() -> None:
    made = gridengine.partial(gridengine.partial(train, 0.1), "Adam")
    assert made.__name__ == "train_0.1_Adam"
    assert made() == (0.1, "Adam", 1)


def test_a_chunk_s_function_survives_pickling_with_its_name() -> None:
    made = pickle.loads(pickle.dumps(gridengine.partial(train, 0.1, "Adam")))
    assert (made.__name__, made.__doc__, made()) == ("train_0.1_Adam", "Train.", (0.1, "Adam", 1))


def test_the_name_of_a_map_is_short_and_safe_in_a_file_name() -> None:
    made = gridengine.partial(train, "../a b/" * 100, [1, 2], train)
    assert "/" not in made.__name__
    assert " " not in made.__name__
    assert made.__name__.endswith("_list_train")
    assert len(made.__name__) <= 100


def test_a_callable_without_a_name_goes_by_its_type() -> None:
    assert gridengine.partial(functools.partial(train), 0.1).__name__ == "partial_0.1"


def test_aimap_refuses_asynchronous_iterables() -> None:
    async def arguments() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(
        TypeError, match="is an asynchronous iterable: submit its items to an Executor"
    ):
        gridengine.aimap(square, arguments())  # type: ignore[arg-type]


def test_async_generator_functions_are_refused_before_anything_is_submitted() -> None:
    async def numbers(x: int) -> AsyncIterator[int]:
        yield x

    dispatcher = FakeDispatcher()
    for call in (gridengine.map, gridengine.imap, gridengine.aimap):
        with pytest.raises(TypeError, match="is an async generator function"):
            call(numbers, [1], scheduler=FakeScheduler(dispatcher))
    assert not dispatcher.entries


@pytest.mark.parametrize(
    ("act", "calls"),
    [
        (gridengine.map, [1]),
        (gridengine.starmap, [(1,)]),
        (gridengine.imap, [1]),
        (gridengine.imap_unordered, [1]),
    ],
)
def test_other_keywords_are_refused_with_how_to_give_each_call_one(
    scheduler: FakeScheduler, act: Callable[..., Any], calls: list[Any]
) -> None:
    words = rf"{act.__name__}\(\) got an unexpected keyword argument"
    with pytest.raises(TypeError, match=rf"{words} 'steps'; .* functools.partial\(f, steps=...\)"):
        act(square, calls, scheduler=scheduler, steps=3)
    with pytest.raises(TypeError, match=rf"{words} 'reties'; did you mean 'retries'\?"):
        act(square, calls, scheduler=scheduler, reties=3)
    for name in ("workers", "n_workers"):
        with pytest.raises(TypeError, match=rf"{words} '{name}'; .*max_workers="):
            act(square, calls, scheduler=scheduler, **{name: 3})
    for name, kind in (("cores", "Cores"), ("memory", "Memory")):
        with pytest.raises(TypeError, match=rf"{words} '{name}'; .*resources=gridengine.{kind}"):
            act(square, calls, scheduler=scheduler, **{name: 3})
    with pytest.raises(TypeError, match="progress must be True, False, None, or a bar, not 'no'"):
        act(square, calls, scheduler=scheduler, progress="no")
    assert scheduler.dispatcher.entries == []


@pytest.mark.parametrize("word", ["max_workers", "processes", "n_jobs"])
@pytest.mark.parametrize("act", [gridengine.map, gridengine.imap], ids=lambda act: act.__name__)
def test_a_number_of_workers_makes_a_scheduler_of_that_size(
    act: Callable[..., Any], word: str
) -> None:
    made: list[int] = []

    def make(max_workers: int) -> FakeScheduler:
        made.append(max_workers)
        return FakeScheduler()

    assert [*act(square, [2, 3], scheduler=make, **{word: 3})] == [4, 9]
    assert made == [3]


def test_all_cores_are_minus_one_job_as_at_joblib(scheduler: FakeScheduler) -> None:
    assert gridengine.map(square, [2], scheduler=scheduler, n_jobs=-1) == [4]  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"max_workers": 2, "n_jobs": 2}, "max_workers and n_jobs mean the same"),
        ({"processes": 0}, "processes must be at least 1, not 0"),
        ({"max_workers": 2}, "max_workers is given beside a scheduler instance"),
    ],
)
def test_a_senseless_number_of_workers_is_refused(
    scheduler: FakeScheduler, sizes: Any, words: str
) -> None:
    with pytest.raises((TypeError, gridengine.ConfigurationError), match=words):
        gridengine.map(square, [1], scheduler=scheduler, **sizes)
    assert scheduler.dispatcher.entries == []


@pytest.mark.parametrize(
    ("place", "sizes", "words"),
    [
        (
            gridengine.Client,
            {"max_workers": 2},
            "beside a dispatcher, which has workers of its own",
        ),
        (gridengine.Client, {}, "is called without arguments .missing a required argument"),
        (lambda: FakeScheduler(), {"max_workers": 2}, "takes no max_workers"),
        (4, {"max_workers": 2}, "scheduler must be a scheduler, its name, or a class"),
    ],
)
def test_a_class_or_callable_that_cannot_be_called_so_is_refused(
    place: Any, sizes: Any, words: str
) -> None:
    with pytest.raises((TypeError, gridengine.ConfigurationError), match=words):
        gridengine.map(square, [1], scheduler=place, **sizes)


@pytest.mark.parametrize("act", [gridengine.map, gridengine.imap], ids=lambda act: act.__name__)
def test_strict_refuses_iterables_of_different_lengths(
    scheduler: FakeScheduler, act: Callable[..., Any]
) -> None:
    how: Any = {"scheduler": scheduler, "strict": True}
    assert [*act(pow, [2, 3], [2, 2], **how)] == [4, 9]
    with pytest.raises(ValueError, match="argument 2 has 1 element: shorter"):
        act(pow, [2, 3], [2], **how)
    with pytest.raises(ValueError, match="longer"):
        [*act(pow, iter([2, 3]), iter([2, 2, 2]), **how)]


def test_starmap_with_two_iterables_names_map() -> None:
    with pytest.raises(TypeError, match=r"starmap takes one iterable.*write map\(f, xs, ys\)"):
        gridengine.starmap(pow, [1], [2])


prepared: list[int] = []


def prepare(number: int) -> None:
    prepared.append(number)


def prepared_by(_: Any) -> list[int]:
    return prepared.copy()


@pytest.mark.parametrize(
    "call",
    [gridengine.map, gridengine.imap, gridengine.imap_unordered],
    ids=lambda call: call.__name__,
)
def test_an_initializer_runs_once_in_a_process_before_the_calls_of_a_map(
    call: Callable[..., Any], scheduler: FakeScheduler
) -> None:
    for number in range(2):
        prepared.clear()
        how: Any = {"initializer": prepare, "initargs": (number,), "scheduler": scheduler}
        assert [*call(prepared_by, range(3), **how)] == [[number]] * 3
    prepared.clear()
    assert gridengine.starmap(prepared_by, [(1,)], **how) == [[1]]


def test_an_initializer_that_cannot_be_called_is_refused(scheduler: FakeScheduler) -> None:
    with pytest.raises(TypeError, match="initializer must be a callable"):
        gridengine.map(square, [1], initializer=3, scheduler=scheduler)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="initargs must be a tuple"):
        gridengine.map(square, [1], initializer=prepare, initargs=3, scheduler=scheduler)  # type: ignore[arg-type]


@pytest.mark.parametrize("mapped", [gridengine.map, gridengine.imap])
def test_a_misspelt_chunksize_is_told_its_right_name(mapped: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"'chunk_size'; did you mean 'chunksize'\?"):
        mapped(abs, [1], chunk_size=1)


def test_a_worker_starts_ahead_for_a_map_with_calls_that_request_nothing(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    make = connect.dispatcher_of

    def dispatcher_of(of: FakeScheduler, calls: str = "") -> Any:
        told.append(calls)
        return make(of, calls)

    monkeypatch.setattr(connect, "dispatcher_of", dispatcher_of)
    scheduler._starts_ahead = True
    gridengine.map(square, [], scheduler=scheduler)
    gridengine.map(square, iter([1]), scheduler=scheduler)
    gridengine.map(square, [1], scheduler=scheduler, retries=1)
    list(gridengine.imap(square, [1], scheduler=scheduler))
    assert set(told) <= {""}
    gridengine.map(square, [1], scheduler=scheduler)
    assert "square" in told
