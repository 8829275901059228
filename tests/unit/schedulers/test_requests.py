"""What the translations of requests share."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources.kinds import Capacity, Cores
from gridengine.schedulers.requests import (
    check_no_conflict,
    fill_template,
    native_options,
)


class Seats(Capacity):
    """A kind of a user's, with these options."""

    words: Any = ()

    def _native(self, system: str) -> Any:
        return self.words


def test_what_is_said_twice_is_refused_with_both_places() -> None:
    own = {"-pe": ("smp 4", "parallel_environment=")}
    check_no_conflict(Cores(2), ["h_vmem"], own)
    with pytest.raises(ConfigurationError, match=r"Cores\(2\) of a call and parallel_environment="):
        check_no_conflict(Cores(2), ["h_vmem", "-pe"], own)


def seats(words: Any) -> Seats:
    made = Seats(1)
    object.__setattr__(made, "words", words)
    return made


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        *((words, TypeError, "a list of texts") for words in ("-l", None, [3], {"-l": 1})),
        *(
            (["-l", word], ConfigurationError, "empty or holds a blank or a quote")
            for word in ("", "a b", "a\nb", "it's", 'a"', "a\0")
        ),
    ],
)
def test_what_is_no_list_of_words_of_a_shell_is_refused(
    words: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        native_options(seats(words), "slurm")


def test_a_template_is_filled() -> None:
    assert fill_template("slurm.gpus", "-l gpu={count} {{x}}", count=2) == "-l gpu=2 {x}"


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{0}", "{other}", "{count.x}", "{count[a]}", "{count:q}"]
)
def test_a_template_with_other_places_is_refused_with_the_setting(template: str) -> None:
    with pytest.raises(ConfigurationError, match=r"slurm.gpus = .* may hold {count} and no other"):
        fill_template("slurm.gpus", template, count=2)
