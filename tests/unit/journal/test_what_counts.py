"""What users say of keys: what else counts, and which arguments do not."""

from __future__ import annotations

import functools
import os
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gridengine.call_context.random_streams import Seed, Seeded
from gridengine.errors import ConfigurationError
from gridengine.journal.call_keys import CallKeys
from gridengine.journal.what_counts import IgnoredArguments, check_ignored, dependencies
from gridengine.serialize.payload import FULL, SINGLE, STAR


def train(rate: float, steps: int = 10, *, verbose: bool = False, jobs: int = 1) -> float:
    return rate * steps


def key(call: Any, form: int, *ignored: str) -> bytes:
    return CallKeys(IgnoredArguments(train, ignored)).of_call(call, form)


@pytest.mark.parametrize(
    ("one", "other", "form"),
    [
        (((1,), {"verbose": True}), ((1,), {}), FULL),
        (((1,), {"verbose": True, "jobs": 2}), ((1,), {"jobs": 3}), FULL),
        (((1,), {"steps": 4}), ((1, 5), {}), FULL),
        ((1, 5), (1, 6), STAR),
        ((1, 5), (1,), STAR),
    ],
)
def test_calls_that_differ_in_ignored_arguments_are_the_same(
    one: Any, other: Any, form: int
) -> None:
    ignored = "verbose", "jobs", "steps"
    assert key(one, form, *ignored) == key(other, form, *ignored)
    assert key(one, form, "rate") != key(other, form, "rate")


@pytest.mark.parametrize(
    ("one", "other", "form"),
    [
        (((1, 5, 0), {"verbose": True}), ((1, 0), {}), FULL),
        ((1, 5, 0), (1, 6, 0), STAR),
        ((1, 5, 0), (1, 0), STAR),
    ],
)
def test_with_a_seed_the_ignored_do_not_count_and_the_number_does(
    one: Any, other: Any, form: int
) -> None:
    ignored = IgnoredArguments(Seeded(train, Seed(1)), ["steps", "verbose"])
    assert ignored.counted(one, form) == ignored.counted(other, form)
    later = ((*one[0][:-1], 1), one[1]) if form == FULL else (*one[:-1], 1)
    assert ignored.counted(one, form) != ignored.counted(later, form)


def test_with_a_seed_the_number_of_a_call_without_arguments_counts() -> None:
    ignored = IgnoredArguments(Seeded(train, Seed(1)), ["rate"])
    assert (ignored.counted(7, SINGLE), ignored.counted((7,), STAR)) == (7, (7,))


def test_the_other_arguments_count() -> None:
    assert key((1, 5), STAR, "steps") != key((2, 5), STAR, "steps")
    assert key(1, SINGLE, "steps") != key(2, SINGLE, "steps")
    assert key(1, SINGLE, "rate") == key(2, SINGLE, "rate")


@pytest.mark.parametrize("prepare", [lambda f: f, lambda f: Seeded(f, Seed(1))])
def test_an_ignored_argument_that_a_partial_gives_does_not_count(prepare: Any) -> None:
    def digest(*ignored: str, **given: Any) -> bytes:
        f = prepare(functools.partial(train, **given))
        return CallKeys().of_function(f, (), ignored).digest

    assert digest("jobs", jobs=1) == digest("jobs", jobs=2)
    assert digest("jobs", steps=1) != digest("jobs", steps=2)
    assert digest(jobs=1) != digest(jobs=2)


def test_the_name_of_no_parameter_is_an_error_that_lists_them() -> None:
    check_ignored(train, ["rate", "jobs"])
    check_ignored(lambda **more: more, ["anything"])
    for f in train, Seeded(train, Seed(1)):
        with pytest.raises(
            ConfigurationError, match="'verbos', which is no parameter of train"
        ) as it:
            check_ignored(f, ["verbos"])
        assert "it has: rate, steps, verbose, jobs" in str(it.value)

    async def wait(seconds: float) -> None:
        """Do nothing."""

    check_ignored(Seeded(wait, Seed(1)), ["seconds"])
    with pytest.raises(ConfigurationError, match="parameters of max cannot be known"):
        check_ignored(max, ["rate"])


def digest(*depends: Any) -> bytes:
    return CallKeys().of_function(train, [*dependencies(depends)]).digest


def test_a_file_counts_by_its_content_and_a_folder_by_its_files(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("1")
    one, folder = digest(file), digest(tmp_path)
    assert one != digest()
    os.utime(file, (1, 1))
    assert (digest(str(file)), digest(tmp_path)) == (one, folder)
    file.write_text("2")
    assert digest(file) != one
    assert digest(tmp_path) != folder
    file.rename(tmp_path / "other.csv")
    file.write_text("1")
    assert digest(tmp_path) != folder


def test_a_file_that_does_not_exist_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"names the file 'nothing\.csv'") as it:
        digest("nothing.csv")
    assert "give another value in a tuple or dict" in str(it.value)


def test_a_package_counts_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(np)
    monkeypatch.setattr(np, "__version__", "0.1")
    assert digest(np) != before
    with pytest.raises(ConfigurationError, match="tells no __version__"):
        digest(types.ModuleType("bare"))


def test_an_object_that_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="depends= has a lock, which cannot be pickled"):
        digest(threading.Lock())


def test_other_objects_count_as_arguments_do() -> None:
    assert digest(("version", "1")) == digest(("version", "1")) != digest(("version", "2"))
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest(lambda: 1) == digest(lambda: 1) != digest(lambda: 2)
