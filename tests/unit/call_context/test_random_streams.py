"""Streams of random numbers of calls with a seed."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.call_context import random_streams
from gridengine.call_context.random_streams import (
    RandomStream,
    Seed,
    Seeded,
    rng,
    seed_of,
    takes_number,
    with_numbers,
    without_number,
)
from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import FULL, SINGLE, STAR


def draws(seed: Seed) -> list[float]:
    with RandomStream(seed):
        return [random.random(), random.gauss(0, 1)]


def test_a_call_draws_by_its_number_alone() -> None:
    first, second = seed_of(1).child(0), seed_of(1).child(1)
    assert draws(first) == draws(first) != draws(second)
    assert draws(first) not in (draws(seed_of(2).child(0)), draws(seed_of(1)))


def test_afterwards_the_process_goes_on_from_where_it_was() -> None:
    before = random.getstate()
    random.gauss(0, 1)  # half of a pair is kept for the next
    state = random.getstate()
    draws(seed_of(1))
    with pytest.raises(ZeroDivisionError), RandomStream(seed_of(1)):
        print(1 / 0)
    assert random.getstate() == state
    random.setstate(before)


def test_the_streams_are_the_children_of_numpy_s_seed_sequence() -> None:
    numpy_random = pytest.importorskip("numpy.random")
    children = numpy_random.SeedSequence([1, 2]).spawn(3)
    with RandomStream(seed_of([1, 2]).child(2)):
        assert rng().random() == numpy_random.default_rng(children[2]).random()
        assert rng() is rng()
    grandchild = children[1].spawn(5)[4]
    assert seed_of([1, 2]).child((1, 4)).sequence().spawn_key == grandchild.spawn_key


def test_a_seed_sequence_goes_on_after_the_children_that_it_has() -> None:
    numpy_random = pytest.importorskip("numpy.random")
    given = numpy_random.SeedSequence(7, spawn_key=(3,))
    given.spawn(2)
    child = seed_of(given).child(0)
    assert child.sequence().state == given.spawn(1)[0].state


def test_the_hidden_generator_of_numpy_is_seeded_and_goes_on() -> None:
    numpy_random = pytest.importorskip("numpy.random")
    numpy_random.normal()
    before = numpy_random.get_state(legacy=False)
    found = []
    for _ in range(2):
        with RandomStream(seed_of(1)):
            found.append(numpy_random.normal())
    assert found[0] == found[1]
    after = numpy_random.get_state(legacy=False)
    assert str(before) == str(after)


FAKE_TORCH = """
state = "by chance"
seeds = []
def get_rng_state(): return state
def set_rng_state(new): global state; state = new
def manual_seed(number): set_rng_state(number); seeds.append(number)
def seed(): set_rng_state("by another chance")
"""


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library `torch` that is not imported yet."""
    Path(tmp_path, "torch.py").write_text(FAKE_TORCH)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    del sys.modules["torch"]


def imported() -> Any:
    return importlib.import_module("torch")


@pytest.mark.usefixtures("torch")
def test_a_library_that_the_call_imports_is_seeded_as_one_that_is_there() -> None:
    finders = list(sys.meta_path)
    with RandomStream(seed_of(1)):
        lazily = imported().state
    assert imported().state == "by chance"
    with RandomStream(seed_of(1)):
        assert imported().state == lazily
    assert type(lazily) is int
    assert sys.meta_path == finders


@pytest.mark.usefixtures("torch")
def test_nested_calls_have_random_states_of_their_own() -> None:
    outer, inner = seed_of(1), seed_of(2)
    with RandomStream(outer):
        with RandomStream(inner):
            assert imported().state == inner.number()
        assert imported().state == outer.number()
    assert imported().state == "by chance"


@pytest.mark.usefixtures("torch")
def test_a_library_that_may_not_be_imported_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert draws(seed_of(1)) == draws(seed_of(1))


def test_a_library_that_is_not_there_is_missed_as_without_a_seed() -> None:
    with RandomStream(seed_of(1)), pytest.raises(ModuleNotFoundError, match="gridengine_torch"):
        importlib.import_module("gridengine_torch")


def test_outside_of_a_call_with_a_seed_there_is_no_generator() -> None:
    with pytest.raises(ConfigurationError, match="this code runs in none"):
        rng()
    assert gridengine.rng is rng


@pytest.mark.parametrize("given", [-1, [1, -2]])
def test_a_negative_seed_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="seed must be at least 0"):
        seed_of(given)


@pytest.mark.parametrize("given", ["a", b"a", 1.5, True, [1.5], random.Random(1)])
def test_a_wrong_seed_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="seed must be a whole number"):
        seed_of(given)


def test_large_numbers_and_those_of_numpy_are_seeds() -> None:
    assert seed_of(2**100).entropy == 2**100
    numpy = pytest.importorskip("numpy")
    assert seed_of(numpy.int64(3)) == seed_of(3)
    assert seed_of(numpy.array([3, 4])) == seed_of([3, 4])


@pytest.mark.parametrize(
    ("form", "call", "numbered"), [(SINGLE, 5, (5, 0)), (STAR, (5, 6), (5, 6, 0))]
)
def test_the_number_is_the_last_argument(form: int, call: Any, numbered: Any) -> None:
    assert list(with_numbers(form, [call], itertools.count())) == [numbered]
    positional, named = without_number(numbered, STAR)
    assert (positional, named) == (numbered[:-1], {})
    assert without_number((numbered, {"a": 1}), FULL) == (numbered[:-1], {"a": 1})


def test_the_function_gets_its_own_arguments() -> None:
    def told(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs, random.random()

    seeded = Seeded(told, seed_of(1))
    assert seeded(1, 2, 7, self=3)[:2] == ((1, 2), {"self": 3})
    assert seeded(7)[2] == draws(seed_of(1).child(7))[0]
    assert takes_number(seeded)
    assert not takes_number(told)


def test_no_library_is_imported_for_a_seed() -> None:
    assert {"random"} == {
        name for name in random_streams.LIBRARIES if hasattr(random_streams, name)
    }
