"""Find calls of one function that a named run has made before, and their outcomes.

Calls that are handed in as before are found by the digest of their whole block. If they are not,
such as when calls were added, each call from there on is looked up by its own key. A call that was
made several times has as many results, since functions may draw random numbers.

Why whole blocks: keys for 100,000 numbers take 100 ms, twice as long as running the calls; the
digest of their pickle takes 0.3 ms. Keys of single calls are made from the stored arguments only
when a block is not found as a whole. Arguments beyond numbers and text get keys from the beginning,
because an unpickled object may pickle to other bytes.
"""

from __future__ import annotations

import functools
import itertools
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from gridengine.errors import GridEngineError
from gridengine.journal.call_keys import KEY_BYTES, CallKeys, FunctionKey, changed_parts
from gridengine.journal.run_file import (
    RAISED,
    RETURNED,
    RunFile,
    explained,
    payload_of,
    read_outcome,
)
from gridengine.serialize import pickling
from gridengine.serialize.payload import Buffer, Payload


class Piece(Struct, frozen=True):
    """Consecutive calls among those that are handed in, from `start` to `stop`. They are the calls
    of a block from `offset` on (block 0: unknown calls). `row` is the row of their outcome; with 0
    they must be made.
    """

    start: int
    stop: int
    block: int = 0
    offset: int = 0
    row: int = 0


class _KnownBlock(Struct):
    """A block in the file: digest, number of calls, and the row of each call's result (0: none)."""

    form: int
    calls: int
    digest: bytes
    has_keys: bool
    rows: list[int]


class _ResultRow(Struct, frozen=True):
    """A row of results: the range of calls in the block, the place of the first in the payload, and
    the state.
    """

    start: int
    stop: int
    item: int
    state: int


_BEGIN = "(SELECT ifnull(max(id), 0) FROM sessions WHERE anew)"
"""The session in which the run last began anew: no earlier call counts."""
_LEFT_BEHIND = (
    f"SELECT function FROM blocks WHERE {_BEGIN} GROUP BY function HAVING max(session) < {_BEGIN}"
)
"""Functions whose calls are all earlier. `WHERE` saves a run that never began anew the sorting."""


class KnownCalls:
    """The calls of one function that are in a run's file.

    Args:
        resume: True counts results of the present version of the function; "anyway" also counts
            results of its earlier versions; False counts none.
        retry_failed: whether calls that have failed are made again.
        since: outcomes of before that time (seconds since 1970) do not count.
    """

    def __init__(
        self,
        run: RunFile,
        function: FunctionKey,
        *,
        resume: bool | str,
        retry_failed: bool,
        since: float = 0.0,
    ) -> None:
        self._run = run
        self._keys = CallKeys(function.ignored)
        self._since = since
        self._retry_failed = retry_failed
        self._blocks: dict[int, _KnownBlock] = {}
        self._rows: dict[int, _ResultRow] = {}
        self._by_digest: dict[bytes, list[int]] = {}
        self._by_key: dict[bytes, list[int]] | None = None
        self.changes: Sequence[str] = ()
        """The parts of the function that have changed since its calls were last made; empty if
        there are no such calls, or no changes.
        """
        self.made_by = ""
        """The other version of Python that last made its calls; empty if it was this one."""
        self.is_other = False
        """Whether the run has only functions of this name that were given other arguments before,
        as by a partial.
        """
        self.pickled = 0
        """The size in bytes of the calls that were last found as a block."""
        self.earlier = 0
        """How many calls of a function of this name there were when the run had some last."""
        self.is_old = False
        """Whether the run has outcomes of before `since`."""
        self.failed = 0
        """How many calls are to be made again because they had failed."""
        self._connection = None if resume is False else run.read()
        if self._connection is not None:
            with explained(run.name, run.path):
                self._read(self._connection, function, anyway=resume == "anyway")

    def _read(self, reader: sqlite3.Connection, function: FunctionKey, *, anyway: bool) -> None:
        found = reader.execute(
            "SELECT id, digest, parts FROM functions WHERE name = ? ORDER BY id", (function.name,)
        ).fetchall()
        for id, digest, _ in found:
            if digest == function.digest:
                self._run.note_function(digest, id)
        left = {id for [id] in reader.execute(_LEFT_BEHIND)}
        found = [one for one in found if one[0] not in left]
        same = [id for id, digest, _ in found if digest == function.digest]
        # A partial with other arguments is another function, not an older version of this one.
        given = function.parts.get("itself")
        older = [
            (id, parts)
            for id, digest, text in found
            if digest != function.digest and (parts := json.loads(text)).get("itself") == given
        ]
        self.is_other = bool(found) and not (older or same)
        if older and not same:
            before = older[-1][1]
            self.changes = [*changed_parts(before, function.parts)]
            self.made_by = before["Python"] if "Python" in self.changes else ""
        self.earlier = _latest(reader, [id for id, *_ in found])
        self._read_blocks(reader, same, [id for id, _ in older] if anyway else [])

    def _read_blocks(
        self, reader: sqlite3.Connection, same: Sequence[int], older: Sequence[int]
    ) -> None:
        chosen = f"function IN ({_listed([*same, *older])}) AND session >= {_BEGIN}"
        for id, form, calls, digest, has_keys in reader.execute(
            f"SELECT id, form, calls, digest, keys IS NOT NULL FROM blocks WHERE {chosen} "
            f"ORDER BY function IN ({_listed(same)}) DESC, function DESC, id"
        ):
            self._blocks[id] = _KnownBlock(form, calls, digest, bool(has_keys), [0] * calls)
            self._by_digest.setdefault(digest, []).append(id)
        # In order, so that the latest outcome of a call counts.
        for block, id, ended, *row in reader.execute(
            "SELECT block, id, ended, start, stop, item, state FROM results WHERE block IN "
            f"(SELECT id FROM blocks WHERE {chosen}) ORDER BY id"
        ):
            if ended < self._since:
                self.is_old = True
                continue
            made = self._rows[id] = _ResultRow(*row)
            self._blocks[block].rows[made.start : made.stop] = [id] * (made.stop - made.start)
        for numbers in self._by_digest.values():
            self._put_last(numbers, lambda number: -self._blocks[number].rows.count(0))

    @property
    def has_no_results(self) -> bool:
        """Whether the run has calls of the function, and no outcome of any."""
        return bool(self._blocks) and not self._rows

    def difference(self, call: Any, form: int) -> str:
        """Return a text that says how a call differs from the first one of the last session that
        has made some; empty if no argument differs, or none are stored.
        """
        found = self._reader.execute(
            f"SELECT arguments FROM blocks WHERE id IN ({_listed([*self._blocks])}) AND form = ? "
            "AND arguments IS NOT NULL ORDER BY session DESC, id LIMIT 1",
            (form,),
        ).fetchone()
        if found is None:
            return ""
        from gridengine.journal.differences import difference  # few ask

        both = pickling.load(payload_of(found[0]))[0], call
        if self._keys.ignored is not None:
            both = tuple(self._keys.ignored.counted(one, form) for one in both)
        return difference(*both, form)

    def are_plain(self, calls: Sequence[Any]) -> bool:
        """Return whether the keys of calls follow from their arguments' pickles alone."""
        return self._keys.are_plain(calls)

    def keys_of(self, calls: Sequence[Any], form: int) -> list[bytes]:
        """Return the keys of calls.

        Raises:
            Exception: a call cannot be pickled, or waits for the result of another.
        """
        return self._keys.of_calls(calls, form)

    def take_block(self, calls: Sequence[Any], form: int) -> list[Piece] | None:
        """Return the pieces of calls that are handed in. Each stored outcome is returned only once.
        Return None when the calls must be looked up by key, with `take_keys`.
        """
        self.pickled = 0
        if not self._blocks:
            return [Piece(0, len(calls))]
        if self._by_key is None and self.are_plain(calls):
            arguments = pickle.dumps(list(calls), 5)
            if numbers := self._by_digest.get(digest_of(arguments, form)):
                self.pickled = len(arguments)
                return [*self._outcomes(Piece(0, len(calls), numbers.pop()))]
        return None

    def take_keys(self, keys: Sequence[bytes]) -> list[Piece]:
        """Return the pieces as `take_block` does, but for calls with these keys."""
        if self._by_key is None:
            with explained(self._run.name, self._run.path):
                self._by_key = self._positions()
        # Each call is found only once; 0 where there is none.
        positions = [found.pop() if (found := self._by_key.get(key)) else 0 for key in keys]
        pieces: list[Piece] = []
        start = 0
        while start < len(positions):
            stop, position = start + 1, positions[start]
            while stop < len(positions) and positions[stop] == (
                position + stop - start if position else 0
            ):
                stop += 1
            block, offset = divmod(position, 1 << 32)
            pieces += self._outcomes(Piece(start, stop, block, offset))
            start = stop
        return pieces

    def _positions(self) -> dict[bytes, list[int]]:
        """Return, by key, the positions of the calls that have not been taken. A position has the
        number of the block in the upper half and the place in the block in the lower half.
        """
        left = {number for numbers in self._by_digest.values() for number in numbers}
        found: dict[bytes, list[int]] = {}
        for number, known in self._blocks.items():
            if number in left:
                for position, key in enumerate(self._keys_of_block(number, known), number << 32):
                    found.setdefault(key, []).append(position)
        for positions in found.values():
            self._put_last(positions, self._has_values)
        return found

    @staticmethod
    def _put_last(found: list[int], best: Callable[[int], int]) -> None:
        """Sort positions, which are taken from the end, best last; of equals the earliest last."""
        if len(found) > 1:
            found.reverse()
            found.sort(key=best)

    def _has_values(self, position: int) -> bool:
        block, offset = divmod(position, 1 << 32)
        row = self._blocks[block].rows[offset]
        return bool(row) and self._rows[row].state == RETURNED

    def _keys_of_block(self, number: int, known: _KnownBlock) -> list[bytes]:
        column = "keys" if known.has_keys else "arguments"
        [[blob]] = self._reader.execute(f"SELECT {column} FROM blocks WHERE id = ?", (number,))
        if blob is None:
            return []
        if known.has_keys:
            return [blob[at : at + KEY_BYTES] for at in range(0, len(blob), KEY_BYTES)]
        return self._keys.of_calls(pickle.loads(blob), known.form)

    @property
    def _reader(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _outcomes(self, piece: Piece) -> Iterator[Piece]:
        """Split calls into pieces with an outcome, one for each row, and pieces to be made."""
        if not piece.block:
            yield piece
            return
        offset, start = piece.offset, piece.start
        rows = self._blocks[piece.block].rows[offset : offset + piece.stop - start]
        for row, same in itertools.groupby(rows, self._row_that_counts):
            stop = start + sum(1 for _ in same)
            yield Piece(start, stop, piece.block, offset, row)
            offset, start = offset + stop - start, stop

    def _row_that_counts(self, row: int) -> int:
        if row and self._retry_failed and self._rows[row].state != RETURNED:
            self.failed += 1
            return 0
        return row

    def outcome(self, piece: Piece) -> tuple[Sequence[Any], Payload | None, GridEngineError | None]:
        """Return the outcome of a piece that has one: its values, or the pickled exception, or an
        error of the package.

        Raises:
            JournalError: the file is damaged.
            Exception: the outcome cannot be rebuilt here.
        """
        row, count = self._rows[piece.row], piece.stop - piece.start
        content = self._content(piece.row)
        if row.state == RETURNED:
            first = row.item + piece.offset - row.start
            return content[first : first + count], None, None
        return (), *((content, None) if row.state == RAISED else (None, content))

    @functools.lru_cache(maxsize=4)  # noqa: B019 - it lives as long as what is found by it is used
    def _content(self, row: int) -> Any:
        with explained(self._run.name, self._run.path):
            return read_outcome(self._reader, row, self._rows[row].state)


def digest_of(arguments: Buffer, form: int) -> bytes:
    """Return the digest of the arguments of a block."""
    return blake2b(arguments, digest_size=KEY_BYTES, salt=bytes([form])).digest()


def _latest(reader: sqlite3.Connection, functions: Sequence[int]) -> int:
    """Return how many calls of these functions the last session had that had any."""
    row = reader.execute(
        "SELECT sum(stop - start) FROM orders JOIN blocks ON blocks.id = block WHERE function IN "
        f"({_listed(functions)}) GROUP BY orders.session ORDER BY orders.session DESC LIMIT 1"
    ).fetchone()
    return row[0] if row else 0


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
