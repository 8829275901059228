"""Times, amounts and options as batch systems write them."""

from __future__ import annotations

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers.batch_words import (
    check_not_ours,
    clock_seconds,
    clock_time,
    memory_bytes,
    split_words,
)


@pytest.mark.parametrize(
    ("options", "words"),
    [("", []), ("  -l  x ", ["-l", "x"]), ("-N 'a b' ''", ["-N", "a b", ""])],
)
def test_options_are_cut_into_words_as_in_a_shell(options: str, words: list[str]) -> None:
    assert split_words(options) == words


@pytest.mark.parametrize("options", ["-N 'a", 'x "', "x\\"])
def test_a_quote_that_is_not_closed_is_refused(options: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        split_words(options)


def test_options_that_workers_need_are_not_for_users() -> None:
    check_not_ours(["-l"], {"-o"})
    with pytest.raises(ConfigurationError, match="-o is not for users to set"):
        check_not_ours(["-l", "-o"], {"-o"})


@pytest.mark.parametrize(
    ("text", "size"), [("10G", 10 * 2**30), ("10g", 10**10), ("512", 512), ("INFINITY", 0), ("", 0)]
)
def test_amounts_of_memory_are_read_as_grid_engine_does(text: str, size: float) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("02:00:00", 7200), ("7200", 7200), ("::30", 30), ("1:30", 90), ("INFINITY", 0)],
)
def test_times_are_read_as_grid_engine_does(text: str, seconds: float) -> None:
    assert clock_seconds(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.5, "00:01:00"), (7260, "02:01:00"), (400_000, "111:06:40")]
)
def test_a_time_is_written_in_hours_without_end_and_read_back(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text
    assert clock_seconds(text) == pytest.approx(seconds, abs=1)
