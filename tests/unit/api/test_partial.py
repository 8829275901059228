"""`partial`: a functools.partial with a name."""

from __future__ import annotations

import functools
import pickle

import gridengine


def train(rate: float, optimiser: str = "SGD", *, steps: int = 1) -> tuple[float, str, int]:
    """Train."""
    return rate, optimiser, steps


def test_a_partial_is_a_functools_partial() -> None:
    made = gridengine.partial(train, 0.1, steps=5)
    assert isinstance(made, functools.partial)
    assert made("Adam") == (0.1, "Adam", 5)


def test_its_name_shows_the_values_closed_over() -> None:
    assert gridengine.partial(train, 0.1, optimiser="Adam").__name__ == "train_0.1_Adam"


def test_it_keeps_the_docstring_and_the_module() -> None:
    made = gridengine.partial(train, 0.1)
    assert (made.__doc__, made.__module__) == ("Train.", __name__)


def test_a_partial_of_a_partial_shows_the_values_of_both() -> None:
    made = gridengine.partial(gridengine.partial(train, 0.1), "Adam")
    assert made.__name__ == "train_0.1_Adam"
    assert made() == (0.1, "Adam", 1)


def test_it_survives_pickling_with_its_name() -> None:
    made = pickle.loads(pickle.dumps(gridengine.partial(train, 0.1, "Adam")))
    assert (made.__name__, made.__doc__, made()) == ("train_0.1_Adam", "Train.", (0.1, "Adam", 1))


def test_its_name_is_short_and_safe_in_a_file_name() -> None:
    made = gridengine.partial(train, "../a b/" * 100, [1, 2], train)
    assert "/" not in made.__name__
    assert " " not in made.__name__
    assert made.__name__.endswith("_list_train")
    assert len(made.__name__) <= 100


def test_a_callable_without_a_name_goes_by_its_type() -> None:
    assert gridengine.partial(functools.partial(train), 0.1).__name__ == "partial_0.1"
