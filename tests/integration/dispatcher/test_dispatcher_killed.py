"""A stand-alone dispatcher that is killed and started again, with clients that stay."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import gridengine
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until


def count() -> list[int]:
    """Save one number more in each attempt; only the first one never ends by itself."""
    attempts: list[int] = gridengine.saved() or []
    gridengine.save([*attempts, len(attempts)])
    while not attempts:
        time.sleep(0.01)
    return attempts


def _rows(journal: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(journal)) as file:
        [(count,)] = file.execute(f"SELECT count(*) FROM {table}")
    return int(count)


def test_a_call_goes_on_from_the_state_that_it_has_saved_before(tmp_path: Path) -> None:
    first = Standalone(tmp_path)
    journal = first.folder / "journal.sqlite"
    with gridengine.Client(first.path) as client:
        future = client.submit(count)
        wait_until(lambda: _rows(journal, "states") == 1)
        first.kill()
        again = Standalone(tmp_path)
        assert future.result(60) == [0]
        wait_until(lambda: _rows(journal, "states") == 0)
    again.end()
