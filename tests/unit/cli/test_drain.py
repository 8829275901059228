"""`gridengine drain`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import DRAIN, Answer
from gridengine.status.rows import Status
from gridengine.watching import connections
from tests.support.watched import WHO, FakeWatched, silent


def drain(monkeypatch: pytest.MonkeyPatch, *found: FakeWatched) -> Result:
    monkeypatch.setattr(connections, "sockets", lambda: [Path(str(n)) for n in range(len(found))])
    monkeypatch.setattr(connections, "Watched", lambda path, seconds: found[int(str(path))])
    return CliRunner().invoke(main, ["drain", "node7", "node8"])


def leaving(count: int) -> FakeWatched:
    """Return a dispatcher that has so many workers there."""
    return FakeWatched(lambda ask: Answer(WHO, Status(), count=count))


def test_the_workers_of_all_dispatchers_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = leaving(1), leaving(2)
    result = drain(monkeypatch, one, other)
    assert (result.exit_code, result.output) == (0, "3 workers will leave\n")
    assert one.asked == other.asked == [(DRAIN, ("node7", "node8"))]


def test_one_that_does_not_answer_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = leaving(1)
    result = drain(monkeypatch, FakeWatched(silent), one)
    assert result.exit_code == 1
    assert "1 worker will leave" in result.output
    assert "it does not answer" in result.output


@pytest.mark.parametrize("found", [(), (0,)])
def test_the_exit_status_says_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, found: tuple[int, ...]
) -> None:
    result = drain(monkeypatch, *map(leaving, found))
    assert (result.exit_code, result.output) == (
        1,
        "no worker is on node7, node8; `gridengine top` shows where they are\n",
    )
