"""What a run knows of calls that are handed in again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gridengine.journal.call_keys import CallKeys, FunctionKey
from gridengine.journal.known_calls import KnownCalls, Piece, digest_of
from gridengine.journal.run_file import RunFile, StoredBlock
from gridengine.serialize.payload import SINGLE

FUNCTION = FunctionKey("f", b"1" * 16, {"f:": "1"})
CHANGED = FunctionKey("f", b"2" * 16, {"f:": "2", "SCALE": "1"})

PYTHONS = (b"1", "3.11"), (b"2", "3.14")


class Kept:
    """A run's file, written as clients do and read anew for each look."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(
        self,
        calls: Sequence[Any],
        results: Sequence[Any] = (),
        *,
        start: int = 0,
        keyed: bool = False,
        function: FunctionKey = FUNCTION,
        anew: bool = False,
    ) -> None:
        """Keep calls, with results of those from `start` on."""
        run = RunFile("run", self.path)
        run.begin(anew=anew)
        KnownCalls(run, function, resume=True, retry_failed=True)  # or it counted as new
        arguments = pickle.dumps(list(calls), 5)
        keys = b"".join(CallKeys().of_calls(calls, SINGLE)) if keyed else None
        number = run.function(function, [pickle.dumps(abs, 5)])
        digest = b"" if keyed else digest_of(arguments, SINGLE)
        block = run.add_block(StoredBlock(number, SINGLE, len(calls), digest, keys), [arguments])
        run.add_order(0, block, 0, len(calls))
        if results:
            self._add_result(run, block, start, results)
        run.close()

    def _add_result(self, run: RunFile, block: int, start: int, results: Sequence[Any]) -> None:
        failed = isinstance(results[0], Exception)
        payload = None if failed else [pickle.dumps(list(results), 5)]
        place = block, start, start + len(results), 0
        run.add_result(place, payload, results[0] if failed else None, raised=False)

    def look(
        self, calls: Sequence[Any], function: FunctionKey = FUNCTION, **how: Any
    ) -> tuple[list[Any], KnownCalls]:
        """Return the values of calls, None for those that are to be made, and what is known."""
        run = RunFile("run", self.path)
        known = KnownCalls(run, function, **{"resume": True, "retry_failed": True, **how})
        pieces = known.take_block(calls, SINGLE)
        if pieces is None:
            pieces = known.take_keys(known.keys_of(calls, SINGLE))
        values = [one for piece in pieces for one in self._values(known, piece)]
        run.close()
        return values, known

    def _values(self, known: KnownCalls, piece: Piece) -> Iterator[Any]:
        count = piece.stop - piece.start
        if not piece.row:
            return iter([None] * count)
        values, _, error = known.outcome(piece)
        return iter(values) if error is None else iter([error] * count)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "run.sqlite")


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("start", "results", "asked", "found"),
    [
        (0, [10, 20, 30], [1, 2, 3], [10, 20, 30]),
        (0, [10, 20, 30], [5, 3, 2, 6], [None, 30, 20, None]),
        (1, [20], [1, 2, 3], [None, 20, None]),
    ],
    ids=["as they were", "in any order", "some have not ended"],
)
def test_calls_that_have_ended_are_found(
    kept: Kept,
    keyed: bool,
    start: int,
    results: list[int],
    asked: list[int],
    found: list[int | None],
) -> None:
    kept.add([1, 2, 3], results, start=start, keyed=keyed)
    assert kept.look(asked)[0] == found


def test_the_same_call_is_found_as_often_as_it_was_made(kept: Kept) -> None:
    kept.add([7, 7, 8], [1, 2, 3])
    values, _ = kept.look([8, 7, 7, 7])
    assert (values[0], {*values[1:]}) == (3, {1, 2, None})


def test_blocks_that_are_alike_are_found_one_after_the_other(kept: Kept) -> None:
    kept.add([7, 7], [1, 2])
    kept.add([7, 7], [3, 4])
    run = RunFile("run", kept.path)
    known = KnownCalls(run, FUNCTION, resume=True, retry_failed=True)
    found = [known.take_block([7, 7], SINGLE) for _ in range(2)]
    assert [known.outcome(pieces[0])[0] for pieces in found if pieces] == [[1, 2], [3, 4]]
    run.close()


def test_a_failure_is_to_be_made_again_unless_it_is_kept(kept: Kept) -> None:
    kept.add([1, 2], [MemoryError("much")])
    values, known = kept.look([1, 2])
    assert (values, known.failed) == ([None, None], 1)
    values, _ = kept.look([1, 2], retry_failed=False)
    assert repr(values) == "[MemoryError('much'), None]"


def test_calls_of_changed_code_are_to_be_made(kept: Kept) -> None:
    kept.add([1], [10])
    values, known = kept.look([1], CHANGED)
    assert (values, known.changes) == ([None], ["SCALE", "f"])
    assert kept.look([1], CHANGED, resume="anyway")[0] == [10]


def test_calls_made_anew_name_the_python_that_made_them(kept: Kept) -> None:
    old, new = (FunctionKey("f", one * 16, {"f:": "1", "Python": p}) for one, p in PYTHONS)
    kept.add([1], [10], function=old)
    values, known = kept.look([1], new)
    assert (values, known.made_by) == ([None], "3.11")
    kept.add([1], [10], function=new)
    values, known = kept.look([1], new)
    assert (values, known.made_by) == ([10], "")


def test_the_present_function_comes_before_its_earlier_versions(kept: Kept) -> None:
    kept.add([1], [10])
    kept.add([1], [11], function=CHANGED)
    assert kept.look([1], CHANGED, resume="anyway")[0] == [11]
    assert kept.look([1])[0] == [10]
    assert kept.look([1], resume="anyway")[0] == [10]


def test_a_function_with_other_arguments_given_before_is_no_older_code(kept: Kept) -> None:
    kept.add([1], [10])
    other = FunctionKey("f", b"3" * 16, {"f:": "1", "itself": "other"})
    values, known = kept.look([1], other, resume="anyway")
    assert (values, known.changes) == ([None], ())


def test_code_from_before_a_run_began_anew_is_not_the_last_code_of_its_calls(
    kept: Kept,
) -> None:
    kept.add([1], [10])
    kept.add([1], [11], function=CHANGED, anew=True)
    values, known = kept.look([1])
    assert (values, known.changes) == ([None], ["SCALE", "f"])
    values, known = kept.look([1], CHANGED)
    assert (values, known.changes) == ([11], ())


def test_a_run_that_begins_anew_knows_no_calls(kept: Kept) -> None:
    kept.add([1], [10])
    assert kept.look([1], resume=False)[0] == [None]
    run = RunFile("run", kept.path)
    run.begin(anew=True)
    run.close()
    assert kept.look([1])[0] == [None]
