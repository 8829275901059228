"""Which dispatcher is meant by a name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gridengine.dispatcher.core.status import Status
from gridengine.dispatcher.watch_messages import Answer, Identity
from gridengine.errors import ClusterError, ConfigurationError
from gridengine.watching import dispatchers as module
from gridengine.watching.dispatchers import SeveralMeant, answers, connect, matches


def identity(name: str, pid: int, since: float = 0.0) -> Identity:
    run = f"20261123-09300{pid}-node7-{pid}-0a1b2c"
    return Identity(name, run, pid, "node7", f"/s/{name}", "/s", since, "Slurm", "1.2", "3.11")


SILENT = 99
"""The process of one that does not answer."""


class Asked:
    """A connection to a dispatcher, which answers unless it is silent."""

    def __init__(self, who: Identity | None) -> None:
        self.who = who
        self.path = Path("/run") / (str(who.pid) if who is not None else f"{SILENT}-0a.sock")

    def ask(self, *, most: int) -> Answer:
        if self.who is None:
            raise ClusterError(f"process {SILENT}: it does not answer", hint="is it stopped?")
        return Answer(self.who, Status())


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[Identity | None]:
    """The dispatchers of this machine; None is one that is silent. Elsewhere there are none."""
    found: list[Identity | None] = []

    def connect_all(seconds: float = 5.0) -> Iterator[Any]:
        yield from map(Asked, found)

    monkeypatch.setattr(module, "connect_all", connect_all)
    monkeypatch.setattr(module, "Watched", lambda path: path.name)
    monkeypatch.setattr(module, "_elsewhere", lambda name: None)
    return found


@pytest.mark.parametrize("name", ["sweep.py", "sweep", "7", "20261123-093007", "20261123"])
def test_a_dispatcher_has_its_scripts_name_its_number_and_its_runs_name(name: str) -> None:
    assert matches(identity("sweep.py", 7), name)


@pytest.mark.parametrize("name", ["swee", "py", "77", "/s", "node7", "2026", "2"])
def test_it_has_no_parts_of_other_names(name: str) -> None:
    assert not matches(identity("sweep.py", 7), name)


def test_without_a_name_it_is_the_only_one(there: list[Identity | None]) -> None:
    there += [identity("a.py", 1)]
    assert str(connect()) == "1"
    there += [identity("a.py", 2)]
    with pytest.raises(SeveralMeant, match=r"a.py \(process 1, .*\), a.py \(process 2, "):
        connect()
    with pytest.raises(SeveralMeant):
        connect("a")
    assert str(connect("2")) == "2"


def test_one_that_is_silent_is_told_of_only_where_no_other_is_found(
    there: list[Identity | None],
) -> None:
    there += [None, identity("a.py", 1)]
    assert str(connect("a")) == "1"
    with pytest.raises(ClusterError, match=r"called 'b', .*: process 99: it does not answer") as it:
        connect("b")
    assert it.value.hint == "is it stopped?"
    for words in (str(SILENT), ""):
        there[:] = [None]
        with pytest.raises(ClusterError, match=r"^process 99: it does not answer"):
            connect(words)


def test_one_that_is_silent_hides_none_of_the_name_that_is_elsewhere(
    there: list[Identity | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    there += [None]
    monkeypatch.setattr(module, "_elsewhere", lambda name: name if name == "far" else None)
    assert str(connect("far")) == "far"


def test_none_is_told_with_its_name(there: list[Identity | None]) -> None:
    with pytest.raises(ConfigurationError, match="no dispatcher of yours"):
        connect()
    there += [identity("a.py", 1)]
    with pytest.raises(ConfigurationError, match="no dispatcher 'b' runs"):
        connect("b")


def test_one_that_ends_meanwhile_is_told_so(
    there: list[Identity | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> None:
        raise ConnectionRefusedError

    there += [identity("a.py", 1)]
    monkeypatch.setattr(module, "Watched", gone)
    with pytest.raises(ClusterError, match=r"a\.py has just ended"):
        connect("a")


def test_all_answers_are_told_the_last_begun_first_beside_the_words_of_the_silent(
    there: list[Identity | None],
) -> None:
    there += [identity("a.py", 1, since=1.0), None, identity("b.py", 2, since=2.0)]
    found, silent = answers()
    assert [one.identity.name for one in found] == ["b.py", "a.py"]
    assert silent == ["process 99: it does not answer"]
