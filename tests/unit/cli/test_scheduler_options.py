"""Which schedulers take which options."""

from __future__ import annotations

import inspect
from typing import Any

import click
import pytest

from gridengine.cli.scheduler_options import _NAMES, _TAKEN_BY, arguments_of, scheduler_options
from gridengine.schedulers.registry import STARTERS, entry_of


def given(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @scheduler_options
    def command(**given: Any) -> None:
        found.update(given)

    command.main(list(words), standalone_mode=False)
    found.pop("scheduler")
    return found


def test_each_option_is_one_that_its_schedulers_take() -> None:
    assert set(given()) == set(_TAKEN_BY)
    for name, takers in _TAKEN_BY.items():
        for taker in takers:
            taken = inspect.signature(entry_of(taker).scheduler_class()).parameters
            assert _NAMES.get(name, name) in taken, (name, taker)


def test_only_what_was_said_is_an_argument() -> None:
    assert arguments_of("slurm", given()) == {}
    said = given("--job-name", "sweep", "--min-workers", "0", "--prologue", "a", "--prologue", "b")
    assert arguments_of("slurm", said) == {
        "name": "sweep",
        "min_workers": 0,
        "prologue": ("a", "b"),
    }


def test_what_another_scheduler_takes_is_refused_with_its_name() -> None:
    with pytest.raises(click.UsageError, match="--parallel-environment is for grid_engine, not"):
        arguments_of("slurm", given("--parallel-environment", "smp"))
    with pytest.raises(click.UsageError, match="--native is for grid_engine and slurm, not for"):
        arguments_of("processes", given("--native", "-V"))


@pytest.mark.parametrize("name", STARTERS)
def test_each_may_have_a_number_of_workers(name: str) -> None:
    assert arguments_of(name, given("--max-workers", "3")) == {"max_workers": 3}
