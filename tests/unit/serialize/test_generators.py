"""Generators of random numbers: hidden ones travel by name, others as marked copies."""

from __future__ import annotations

import functools
import pickle
import random
import secrets
import sys
import types
from typing import Any

import pytest

from gridengine.serialize import pickling
from gridengine.serialize.generators import hidden_place
from gridengine.serialize.recipes import GENERATORS, MORE_RECIPES


def drawn_there(f: Any) -> Any:
    """Return the function as it arrives; a fresh pickle of the same function is the same bytes."""
    _, payload = pickling.dump_function(f)
    f()
    assert bytes(pickling.dump_function(f)[1][0]) == bytes(payload[0])
    assert not is_marked(f)
    return pickling.load_function(payload)[0]


def is_marked(f: Any) -> bool:
    return bool(getattr(pickling.dump_function(f)[1], "copies_generator", False))


@pytest.mark.parametrize(
    "f", [random.random, functools.partial(random.gauss, 0, 1), secrets.SystemRandom().random]
)
def test_a_method_of_a_hidden_generator_draws_from_the_receiver_s(f: Any) -> None:
    drawn_there(f)()


def test_the_generator_of_random_arrives_as_that_of_the_receiver() -> None:
    assert drawn_there(random.random).__self__ is vars(random)["_inst"]


def test_numpys_generators_and_references_to_them_arrive_as_the_receivers_own() -> None:
    numpy_random = pytest.importorskip("numpy.random")
    hidden = numpy_random.mtrand._rand
    assert drawn_there(numpy_random.normal).__self__ is hidden
    assert drawn_there(functools.partial(numpy_random.rand, 2)).func.__self__ is hidden


def test_a_frozen_distribution_draws_from_the_receiver_s_generator() -> None:
    stats = pytest.importorskip("scipy.stats")
    hidden = sys.modules["numpy.random.mtrand"]._rand
    assert drawn_there(stats.norm(0, 1).rvs).__self__.dist.random_state is hidden


def test_the_generator_of_torch_travels_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    one = object()
    module: Any = types.ModuleType("torch")
    module.default_generator = one
    monkeypatch.setitem(sys.modules, "torch", module)
    assert hidden_place(one) == (module, "default_generator")
    assert hidden_place(object()) is None


def test_the_choice_of_secrets_can_be_pickled() -> None:
    assert drawn_there(functools.partial(secrets.choice, [1]))() == 1


def test_other_generators_mark_the_function_that_takes_them_along() -> None:
    one = random.Random(1)
    assert is_marked(one.random)
    assert is_marked(functools.partial(print, one))
    assert is_marked(lambda: one)


def test_a_generator_of_numpy_marks_the_function_that_takes_it_along() -> None:
    numpy_random = pytest.importorskip("numpy.random")
    for one in (numpy_random.default_rng(1), numpy_random.RandomState(1)):
        assert is_marked(functools.partial(print, one))
        assert not isinstance(pickling.dump_calls([one]), types.NoneType)


def test_arguments_and_results_are_not_marked() -> None:
    for payload in (pickling.dump_calls([random.Random(1)]), pickling.dump(random.Random(1))):
        assert not getattr(payload, "copies_generator", False)
    assert pickle.loads(pickling.dump(random.Random(1))[0]).random() == random.Random(1).random()


def test_each_module_of_generators_has_recipes() -> None:
    assert set(GENERATORS) <= MORE_RECIPES.keys()
