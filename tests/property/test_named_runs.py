"""Runs with a name: whatever is handed in, in whichever order, what has a result is found once."""

from __future__ import annotations

import collections
import itertools
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gridengine.journal.call_keys import CallKeys, FunctionKey
from gridengine.journal.known_calls import KnownCalls, Piece, digest_of
from gridengine.journal.run_file import RunFile, StoredBlock
from gridengine.serialize.payload import SINGLE
from tests.support.hypothesis_profiles import examples

VERSIONS = [FunctionKey("f", bytes([number]) * 16, {"f:": str(number)}) for number in (1, 2)]
CALLS = st.lists(st.one_of(st.integers(0, 4), st.sampled_from(["a", 2.5, (1, "b")])), max_size=12)
SESSIONS = st.lists(
    st.tuples(
        st.sampled_from(VERSIONS),
        CALLS,
        st.lists(st.integers(1, 5), min_size=1, max_size=4),
        st.lists(st.sampled_from(["done", "failed", "left"]), min_size=12, max_size=12),
        st.booleans(),
    ),
    max_size=5,
)


class Session:
    """One process that hands in calls, in blocks, of which it sees some end."""

    def __init__(self, path: Path, function: FunctionKey, values: Iterator[int]) -> None:
        self._run = RunFile("run", path)
        self._run.begin()
        self._known = KnownCalls(self._run, function, resume=True, retry_failed=True)
        self._function = self._run.function(function, [pickle.dumps(abs, 5)])
        self._values = values
        self.found: list[tuple[Any, int]] = []
        self.made: list[tuple[Any, int]] = []

    def hand_in(self, calls: list[Any], fates: list[str], *, keyed: bool) -> None:
        pieces = self._known.take_block(calls, SINGLE)
        if pieces is None:
            pieces = self._known.take_keys(self._known.keys_of(calls, SINGLE))
        for piece in pieces:
            chosen = calls[piece.start : piece.stop]
            if piece.row:
                values, _, error = self._known.outcome(piece)
                assert error is None
                self.found += zip(chosen, values, strict=True)
            else:
                self._make(piece, chosen, fates[piece.start : piece.stop], keyed=keyed)

    def _make(self, piece: Piece, calls: list[Any], fates: list[str], *, keyed: bool) -> None:
        block, offset = piece.block, piece.offset
        if not block:
            arguments = pickle.dumps(calls, 5)
            keys = b"".join(CallKeys().of_calls(calls, SINGLE)) if keyed else None
            digest = b"" if keyed else digest_of(arguments, SINGLE)
            new = StoredBlock(self._function, SINGLE, len(calls), digest, keys)
            block = self._run.add_block(new, [arguments])
        for place, (call, fate) in enumerate(zip(calls, fates, strict=True), offset):
            if fate == "done":
                value = next(self._values)
                self.made.append((call, value))
                self._run.add_result(
                    (block, place, place + 1, 0), [pickle.dumps([value], 5)], None, raised=False
                )
            elif fate == "failed":
                error = MemoryError("much")
                self._run.add_result((block, place, place + 1, 0), None, error, raised=False)

    def close(self) -> None:
        self._run.close()


def counted(calls: list[Any]) -> collections.Counter[str]:
    return collections.Counter(map(repr, calls))


@examples(25)
@given(SESSIONS)
def test_each_result_is_found_once_in_each_session(sessions: list[Any]) -> None:
    kept: dict[bytes, list[tuple[Any, int]]] = {one.digest: [] for one in VERSIONS}
    values, is_simple = itertools.count(), True
    with tempfile.TemporaryDirectory() as folder:
        for function, calls, sizes, fates, keyed in sessions:
            session = Session(Path(folder, "run.sqlite"), function, values)
            start = 0
            for size in itertools.cycle(sizes):
                if start >= len(calls):
                    break
                stop = start + size
                session.hand_in(calls[start:stop], fates[start:stop], keyed=keyed)
                start = stop
            session.close()
            before = kept[function.digest]
            wanted = counted(calls) & counted([call for call, _ in before])
            found = counted([call for call, _ in session.found])
            assert found <= wanted
            is_simple = is_simple and len(counted(calls)) == len(calls)
            if is_simple:  # else a call may be found where it has not ended, beside one that has
                assert found == wanted
            assert len({value for _, value in session.found}) == len(session.found)
            assert {(repr(call), value) for call, value in session.found} <= {
                (repr(call), value) for call, value in before
            }
            before += session.made
