"""Which dispatchers answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.errors import ClusterError
from gridengine.status.rows import Status
from gridengine.watching import connections as module
from gridengine.watching.connections import answers


def identity(name: str, pid: int, since: float = 0.0) -> Identity:
    run = f"20261123-09300{pid}-node7-{pid}-0a1b2c"
    return Identity(name, run, pid, "node7", f"/s/{name}", "/s", since, "Slurm", "1.2", "3.11")


SILENT = 99
"""The process of one that does not answer."""


class Asked:
    """A connection to a dispatcher, which answers unless it is silent."""

    def __init__(self, who: Identity | None) -> None:
        self.who = who

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def ask(self, *, most: int) -> WatchAnswer:
        if self.who is None:
            raise ClusterError(f"process {SILENT}: it does not answer", hint="is it stopped?")
        return WatchAnswer(self.who, Status())


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[Identity | None]:
    """The dispatchers of this machine; None is one that is silent."""
    found: list[Identity | None] = []

    paths = [Path("/run", f"{number}-0a.sock") for number in range(9)]
    monkeypatch.setattr(module, "sockets", lambda: paths[: len(found)])
    monkeypatch.setattr(module, "Watched", lambda path, seconds: Asked(found[paths.index(path)]))
    return found


def test_all_answers_are_told_the_last_begun_first_beside_the_words_of_the_silent(
    there: list[Identity | None],
) -> None:
    there += [identity("a.py", 1, since=1.0), None, identity("b.py", 2, since=2.0)]
    found, silent = answers()
    assert [one.identity.name for one in found] == ["b.py", "a.py"]
    assert silent == ["process 99: it does not answer"]
