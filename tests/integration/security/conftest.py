"""A run under way, for those who attack it."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import gridengine
from gridengine.settings.values import settings
from gridengine.wire.connection_file import Connection
from tests.support.tcp_scheduler import TcpScheduler


class Bomb:
    """Whoever unpickles it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def square(x: int) -> int:
    return x * x


@dataclass(frozen=True, slots=True)
class Site:
    """A run that is under way, and what an attacker may try at it."""

    scheduler: gridengine.ProcessScheduler
    folder: Path
    connection: Connection
    mark: Path
    agent: psutil.Process

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.connection.addresses[-1].rpartition(":")[2])

    @property
    def bomb(self) -> bytes:
        return pickle.dumps(Bomb(self.mark))

    def check(self) -> None:
        """Honest work goes on, and nothing of an attacker's has run."""
        assert gridengine.map(square, range(50), scheduler=self.scheduler) == [
            x * x for x in range(50)
        ]
        assert not self.mark.exists()


def agents() -> set[psutil.Process]:
    found = set()
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended
            if "gridengine.worker" in one.cmdline():
                found.add(one)
    return found


@contextlib.contextmanager
def site(scheduler: gridengine.ProcessScheduler, runs: Path, mark: Path) -> Iterator[Site]:
    with scheduler, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRIDENGINE_RUN_DIRECTORY", str(runs))
        settings.cache_clear()
        others = agents()
        gridengine.map(square, range(3), scheduler=scheduler)
        [agent] = agents() - others
        path = Path(agent.cmdline()[-1])
        yield Site(scheduler, path.parent, Connection.load(path), mark, agent)
    settings.cache_clear()


@pytest.fixture(scope="module")
def over_tcp() -> Iterator[Site]:
    # Everybody may read what is above the run directory, which therefore has to be closed itself.
    with tempfile.TemporaryDirectory(prefix="gridengine-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with site(TcpScheduler(2), folder, folder / "mark") as one:
            yield one


@pytest.fixture
def target(over_tcp: Site) -> Iterator[Site]:
    """The run over TCP. After each test honest work must still go on."""
    yield over_tcp
    over_tcp.check()
