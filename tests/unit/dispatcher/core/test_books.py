"""Counts are changed in one module, and a worker's phase only as its table says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gridengine.dispatcher.core import books
from gridengine.dispatcher.core.workers_and_queues import WorkerPhase
from tests.support.core_play import Play

COUNTS = {
    *("load", "share", "unsettled", "running", "submitters", "open", "batches", "calls", "waiting"),
    *("failed", "retried", "workers", "active_clients", "phases", "slots_by_phase"),
}
OTHERS = {
    "calls": {"workers_and_queues", "figures", "worker_messages"},
    "open": {"objects", "dependencies", "clients"},
}
"""Counts of the same names that other things have, by the modules that count those."""


def changed_in(path: Path) -> set[str]:
    """Return the attributes to which a module adds, or from which it takes; and `share`, which is
    set.
    """
    nodes = list(ast.walk(ast.parse(path.read_text())))
    added = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    put = [one for node in nodes if isinstance(node, ast.Assign) for one in node.targets]
    names = {one.attr for one in added if isinstance(one, ast.Attribute)}
    return names | ({one.attr for one in put if isinstance(one, ast.Attribute)} & {"share"})


def test_only_the_books_change_counts() -> None:
    modules = Path(books.__file__).parent.glob("*.py")
    found = {
        (path.stem, name)
        for path in modules
        if path.stem != "books"
        for name in changed_in(path) & COUNTS
        if path.stem not in OTHERS.get(name, ())
    }
    assert not found


def test_an_illegal_change_of_phase_is_a_fault() -> None:
    play = Play()
    play.hello()
    [worker] = play.core.state.workers.values()
    books.enter(play.core.state, worker, WorkerPhase.STOPPING)
    with pytest.raises(AssertionError, match="cannot go from"):
        books.enter(play.core.state, worker, WorkerPhase.READY)
