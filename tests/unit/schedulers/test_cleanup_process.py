"""What cleans up after a process that is gone. That it outlives this: `tests/integration/slurm`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gridengine.schedulers import cleanup_process as module
from gridengine.schedulers.cleanup_process import CLEAN_SECONDS, DONE, RETRY_SECONDS, clean


class System:
    """A batch system that takes a command after so many refusals, and the time."""

    def __init__(self, *refusals: Any) -> None:
        self.now = 0.0
        self.ran: list[list[str]] = []
        self._answers: Iterator[Any] = iter(refusals)

    def run(self, command: list[str], **options: Any) -> Any:
        self.ran.append(command)
        answer = next(self._answers, 0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(returncode=answer)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def played(monkeypatch: pytest.MonkeyPatch, *refusals: Any) -> System:
    system = System(*refusals)
    expired = subprocess.TimeoutExpired
    names = {"run": system.run, "DEVNULL": subprocess.DEVNULL, "TimeoutExpired": expired}
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(**names))
    monkeypatch.setattr(module, "time", system)
    return system


def test_files_go_though_some_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = played(monkeypatch)
    file = tmp_path / "key"
    file.touch()
    assert clean(["scancel"], [str(tmp_path / "nosuch"), str(file), str(tmp_path)]) == 0
    assert not file.exists()
    assert system.ran == [["scancel"]]


def test_the_command_is_tried_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = OSError(2, "No such file"), subprocess.TimeoutExpired("scancel", 60)
    system = played(monkeypatch, 1, *lost, 1)
    assert clean(["scancel"], []) == 0
    assert len(system.ran) == 5
    assert system.now == 4 * RETRY_SECONDS


def test_cleaning_up_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    system = played(monkeypatch, *[3] * 1000)
    assert clean(["scancel"], []) == 3
    assert CLEAN_SECONDS <= system.now < CLEAN_SECONDS + 2 * RETRY_SECONDS


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (DONE, None),
        (b"17.3\ndone\n", None),
        (b"", []),
        (b"do", []),
        (b"17.3\n17.40\n17.", ["17.3", "17.40"]),
    ],
)
def test_named_jobs_are_cleaned_up_unless_the_parent_has_done_so(
    said: bytes, words: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "key").touch()
    command = [sys.executable, "-I", "-S", module.__file__, str(os.getpid())]
    words_of_it = ["mkdir", "own", "--", "key"]
    subprocess.run([*command, *words_of_it], input=said, cwd=tmp_path, check=True)
    left = ["key"] if words is None else sorted(["own", *words])
    assert sorted(one.name for one in tmp_path.iterdir()) == left
