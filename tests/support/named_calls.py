"""Calls of runs with a name, made in this process, that note which of them were made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gridengine
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.errors import Cancelled
from gridengine.journal.handed_calls import origin
from gridengine.journal.run_file import RunFile, path_of
from tests.support.fake_dispatcher import FakeDispatcher, FakeScheduler

NOTES, BAD = "GRIDENGINE_TEST_NOTES", "GRIDENGINE_TEST_BAD"
"""Variables of the environment: what calls see of it does not belong to their code."""


def square(x: Any) -> Any:
    """Return a square; raise ValueError for a number that is bad now."""
    with open(os.environ[NOTES], "a") as file:
        print(x, file=file)
    if str(x) in os.environ[BAD].split():
        raise ValueError(f"{x} is bad")
    return x * x


def square_and_ignore(x: Any, by: Any) -> Any:
    """Return a square, whatever `by` is."""
    return square(x)


def store_run(name: str, *numbers: Any, left: int = 0) -> Path:
    """Make the squares of these numbers in a run, which is left so many more calls; return its
    file. A number may be bad, as `Notes` say.
    """

    def run(dispatcher: FakeDispatcher) -> None:
        last = dispatcher.entries[-1]
        if len(dispatcher.entries) > len(numbers):
            dispatcher.fail(last, Cancelled("it was taken back"))
        else:
            dispatcher.run(last)

    scheduler = FakeScheduler(FakeDispatcher(on_submit=run))
    calls = [*numbers, *range(100, 100 + left)]
    gridengine.map(square, calls, scheduler=scheduler, chunksize=1, reraise=False, name=name)
    return path_of(name)


def hand_over(run: str, dispatcher: str) -> DispatcherFolder:
    """Have a run be one whose calls a dispatcher has, and return the dispatcher's folder."""
    folder = DispatcherFolder.of(dispatcher)
    folder.make()
    (folder.path / "options.json").write_text('{"scheduler": "none"}')
    parts = {"clients": {"public": f"key of {dispatcher}"}}
    (folder.path / "server.json").write_bytes(msgspec.json.encode(parts))
    file = RunFile(run, path_of(run))
    origin(file)
    file.add_handed((1, 0, 1, 1, 0), folder.server_key())
    file.close()
    file.writer.close()
    return folder


class Notes:
    """What was made since this was asked last; and a run's file, which is new."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal = folder / "run.sqlite"
        self._path = folder / "made"
        self._monkeypatch = monkeypatch
        monkeypatch.setenv(NOTES, str(self._path))
        self.bad()

    def bad(self, *numbers: int) -> None:
        """Have these numbers be bad from now on, and no others."""
        self._monkeypatch.setenv(BAD, " ".join(map(str, numbers)))

    @property
    def options(self) -> dict[str, Any]:
        """What a run is told."""
        return {"name": "run", "journal": self.journal}

    def made(self) -> list[int]:
        """Return the numbers of the calls that were made."""
        found = self._path.read_text().split() if self._path.exists() else []
        self._path.unlink(missing_ok=True)
        return sorted(map(int, found))
