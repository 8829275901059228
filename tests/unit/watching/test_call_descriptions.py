"""Arguments and exceptions in words, without any code of the user's."""

from __future__ import annotations

import pickle

from msgspec.structs import replace

from gridengine.serialize import pickling
from gridengine.serialize.argument_snapshot import HiddenArguments
from gridengine.serialize.payload import FULL, SINGLE, STAR
from gridengine.serialize.shared_objects import find
from gridengine.status.figures import FailureStatus
from gridengine.watching.call_descriptions import (
    MOST_IN_ERRORS,
    MOST_SHOWN,
    arguments_of,
    call_arguments,
    causes,
    exception_texts,
    exception_words,
)


class Mine:
    def __reduce__(self) -> tuple[object, ...]:
        return (eval, ("1 / 0",))


def test_each_form_of_call_is_shown_as_it_was_written() -> None:
    assert call_arguments(pickle.dumps([1, 2.5]), 1, SINGLE) == "2.5"
    assert call_arguments(pickle.dumps([(1, "a")]), 0, STAR) == "1, 'a'"
    assert call_arguments(pickle.dumps([((1,), {"rate": 0.1})]), 0, FULL) == "1, rate=0.1"


def test_objects_of_other_classes_are_shown_by_their_names_and_nothing_of_theirs_runs() -> None:
    assert call_arguments(pickle.dumps([Mine()]), 0, SINGLE) == "<eval>"


def test_results_of_other_calls_are_called_that() -> None:
    class Result:
        def __reduce__(self) -> tuple[object, ...]:
            return (find, (b"name",))

    shown = call_arguments(pickle.dumps([Result()]), 0, SINGLE)
    assert shown == "<result or shared object>"


def test_calls_that_are_made_together_are_called_that() -> None:
    shown = call_arguments(pickle.dumps([HiddenArguments([abs])]), 0, SINGLE)
    assert shown == "<several calls>"


def test_long_arguments_are_shortened() -> None:
    shown = call_arguments(pickle.dumps([("x" * 1000, list(range(1000)), "y" * 1000)]), 0, STAR)
    assert len(shown) == MOST_SHOWN
    assert shown.startswith("'xxx")


def test_a_long_argument_leaves_room_for_the_others() -> None:
    path = "/scratch/projects/climate/input/2026/temperature.nc"
    calls = pickle.dumps([(path, 0.25, list(range(100)))])
    assert ", rate=0.25, " in call_arguments(calls, 0, STAR, ("path", "rate", "levels"))
    shown = call_arguments(calls, 0, STAR, ("path", "rate"), most=MOST_IN_ERRORS)
    assert shown == f"path={path!r}, rate=0.25, [0, 1, 2, 3, ...]"


def test_a_number_too_long_to_be_written_hides_no_other_argument() -> None:
    shown = call_arguments(pickle.dumps([(1 << 20_000, 2)]), 0, STAR)
    assert shown == "a number of 20001 bits, 2"


def test_an_unreadable_argument_is_left_out() -> None:
    assert call_arguments(b"", 0, SINGLE) == ""
    assert call_arguments(b"no pickle", 0, SINGLE) == ""
    assert call_arguments(pickle.dumps([1]), 7, SINGLE) == ""


def raised(arguments: str = "argument 3") -> bytes:
    try:
        raise ValueError("three is bad")
    except ValueError as error:
        return bytes(pickling.dump_exception(error, arguments)[0])


def test_arguments_have_the_names_of_the_parameters() -> None:
    one = FailureStatus("1.0", "call 0 of f", "f", 1, 0.0, parameters=("x", "rate"))
    many = replace(one, arguments=pickle.dumps([((1, 2, 3), {"c": 4})]), form=FULL)
    assert arguments_of(many) == "x=1, rate=2, 3, c=4"
    assert arguments_of(replace(many, parameters=())) == "1, 2, 3, c=4"
    # The last argument of a call with a seed is its number.
    assert arguments_of(replace(many, parameters=("x", ""))) == "x=1, 2, c=4"
    # Where the pickled calls are too long to be kept, the exception tells.
    assert arguments_of(replace(one, exception=raised())) == "x=3"
    assert arguments_of(replace(one, exception=raised("arguments 1, 2"), form=STAR)) == "1, 2"
    assert arguments_of(replace(one, exception=raised("no argument"), form=STAR)) == ""
    assert arguments_of(replace(one, exception=raised()[:40])) == ""


def test_an_exception_is_told_by_the_last_line_of_its_traceback() -> None:
    assert exception_words(raised()) == "ValueError: three is bad"
    assert exception_texts(raised())[-1] == "argument 3"


def test_a_cut_off_exception_is_told_by_its_type() -> None:
    assert exception_words(raised()[:40]) == "ValueError"


def failure(number: int, error: str, *, calls: int = 1) -> FailureStatus:
    return FailureStatus(f"1.{number}", f"call {number} of f", "f", calls, 0.0, error=error)


def test_errors_that_differ_in_numbers_are_one_cause() -> None:
    found = causes(
        [failure(0, "no file 17"), failure(1, "disk full"), failure(2, "no file 2026, really")]
        + [failure(number, f"no file {number}") for number in (3, 4)]
    )
    assert [(one.count, one.words, one.last.id) for one in found] == [
        (3, "no file 4", "1.4"),
        (1, "disk full", "1.1"),
        (1, "no file 2026, really", "1.2"),
    ]


def test_calls_that_failed_together_are_counted_each() -> None:
    found = causes([failure(0, "small"), failure(1, "killed", calls=100), failure(101, "small")])
    assert [(one.count, one.words) for one in found] == [(100, "killed"), (2, "small")]


def test_without_failures_there_are_no_causes() -> None:
    assert causes([]) == []
