"""The arguments of a SlurmScheduler."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers import SlurmScheduler


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"array": "1-3"}, ConfigurationError, "--array is not for users to set"),
        ({"native": "-J name"}, ConfigurationError, "-J is not for users to set"),
        ({"native": "--wait"}, ConfigurationError, "--wait is not for users to set"),
        ({"native": "'"}, ConfigurationError, "cannot be read"),
        ({"native": 3}, TypeError, "native must be a string"),
        ({"partition": "a\nb"}, ConfigurationError, "partition must be one line"),
        ({"time": ["1"]}, TypeError, "time must be a string, a number or True"),
        ({"max_workers": 0}, ConfigurationError, "max_workers must be at least 1"),
        (
            {"start_timeout": 0},
            ConfigurationError,
            "start_timeout must be above zero, and finite, not 0",
        ),
        (
            {"start_timeout": float("nan")},
            ConfigurationError,
            "start_timeout must be above zero, and finite, not nan",
        ),
        ({"start_timeout": "5"}, TypeError, "start_timeout must be a number"),
        ({"strict": "no"}, TypeError, "strict must be True or False"),
    ],
)
def test_a_wrong_argument_is_named_at_once(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        SlurmScheduler(**given)


def test_a_scheduler_shows_what_it_asks_for() -> None:
    assert repr(SlurmScheduler()) == "SlurmScheduler()"
    assert (
        repr(SlurmScheduler(partition="main", time="1:00:00"))
        == "SlurmScheduler(native='--partition=main --time=1:00:00')"
    )
