"""Calls of runs with a name, made in this process, that note which of them were made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

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
