"""The warning for a generator of random numbers that several processes get copies of."""

from __future__ import annotations

import functools
import itertools
import random
import warnings
from typing import Any

import pytest

import gridengine
from gridengine.client.copied_generators import place_of_generator
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler
from tests.support.mapped_calls import square

RNG = random.Random(1)


def chosen(x: int, rng: random.Random) -> float:
    return rng.random()


class Model:
    def __init__(self) -> None:
        self.parts = {"noise": [RNG]}

    def draw(self, _: int) -> float:
        return self.parts["noise"][0].random()


def defined(source: str) -> Any:
    """Return the function `f` of a script that has a generator `rng`."""
    space: dict[str, Any] = {"__name__": "__main__", "rng": RNG}
    exec(source, space)
    return space["f"]


def captured() -> Any:
    rng = RNG
    return lambda x: rng.random()


GLOBAL = defined("def f(x): return rng.random()")


@pytest.mark.parametrize(
    ("f", "place"),
    [
        (GLOBAL, "its global variable 'rng'"),
        (defined("def f(x, r=rng): return r.random()"), "its default value of 'r'"),
        (defined("def f(x, *, r=rng): return r.random()"), "its default value of 'r'"),
        (captured(), "its captured variable 'rng'"),
        (Model().draw, "its object.parts['noise'][0]"),
        (RNG.gauss, "its object"),
        (RNG.random, "its object"),
        (functools.partial(square, RNG), "its argument 1"),
        (functools.partial(square, x=RNG), "its argument 'x'"),
    ],
)
def test_the_variable_that_holds_the_generator_is_named(f: Any, place: str) -> None:
    assert place_of_generator(f) == f"{place} (a random.Random)"


def test_a_generator_of_numpy_is_named() -> None:
    numpy_random = pytest.importorskip("numpy.random")
    f = functools.partial(square, numpy_random.default_rng(1))
    assert place_of_generator(f) == "its argument 1 (a numpy.random._generator.Generator)"


@pytest.fixture
def two() -> FakeScheduler:
    return FakeScheduler()


def test_a_map_of_several_calls_warns_at_the_line_of_the_user(two: FakeScheduler) -> None:
    with pytest.warns(UserWarning, match=r"'rng' .* give each call a stream .* seed=1") as told:
        gridengine.map(GLOBAL, [1, 2], scheduler=two)
    assert [one.filename for one in told] == [__file__]


def test_a_function_with_a_seed_is_named_like_any_other(two: FakeScheduler) -> None:
    with pytest.warns(UserWarning, match="the function f takes along its global variable 'rng'"):
        gridengine.map(GLOBAL, [1, 2], scheduler=two, seed=1)


def test_a_warning_that_is_an_error_closes_the_scheduler() -> None:
    scheduler = FakeScheduler()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            gridengine.map(GLOBAL, [1, 2], scheduler=lambda: scheduler)
    assert scheduler.dispatcher.closed


def test_all_kin_of_map_warn(two: FakeScheduler) -> None:
    with pytest.warns(UserWarning, match="'rng'"):
        list(gridengine.imap(GLOBAL, iter([1, 2]), scheduler=two))
    with gridengine.Executor(scheduler=two) as executor, pytest.warns(UserWarning, match="'rng'"):
        list(executor.map(GLOBAL, [1, 2]))


def test_the_second_submission_warns_and_no_other(two: FakeScheduler) -> None:
    with gridengine.Executor(scheduler=two) as executor, warnings.catch_warnings():
        warnings.simplefilter("error")
        executor.submit(GLOBAL, 1)
        assert isinstance(executor.submit(GLOBAL, 1).exception(), UserWarning)
        assert executor.submit(GLOBAL, 1).exception() is None


def test_a_generator_that_several_calls_are_given_is_warned_of_once(two: FakeScheduler) -> None:
    with pytest.warns(UserWarning, match="several calls of chosen have the same generator") as told:
        gridengine.map(chosen, range(99), itertools.repeat(RNG), scheduler=two)
    assert len(told) == 1


def test_one_call_one_process_and_generators_among_arguments_are_not_warned_of(
    two: FakeScheduler,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gridengine.map(GLOBAL, [1], scheduler=two)
        gridengine.map(GLOBAL, [1, 2], scheduler=FakeScheduler(FakeDispatcher(slots=1)))
        gridengine.map(random.Random.random, [random.Random(1), RNG], scheduler=two)
        gridengine.map(functools.partial(random.gauss, 0), [1, 2], scheduler=two)
