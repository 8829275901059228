"""How a runner's process is set up for calls, and how those end that user code forked from it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gridengine.errors import ConfigurationError
from gridengine.serialize.payload import SINGLE
from gridengine.wire.messages import Assignment
from gridengine.worker.process_setup import (
    Controller,
    exit_forked,
    exit_process,
    flush_output,
    seed_by_chance,
    set_path_and_directory,
    with_controller,
)

ASSIGNMENT = Assignment(5, 7, b"f", 0, 1, 2, SINGLE)


class Ended(BaseException):
    """In the place of the end of this process."""


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(status: int) -> NoReturn:
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(Path.cwd())


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (None, 0, ""),
        (SystemExit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit(-1), 255, ""),
        (SystemExit(2**40 + 1), 1, ""),
        (SystemExit("no such file"), 1, "no such file\n"),
        (ValueError("wrong"), 1, "ValueError: wrong\n"),
    ],
)
def test_a_forked_process_ends_as_a_script_would(
    capsys: pytest.CaptureFixture[str], error: BaseException | None, status: int, told: str
) -> None:
    with pytest.raises(Ended) as ended:
        exit_forked(error)
    assert ended.value.args == (status,)
    assert capsys.readouterr().err == told


def test_a_forked_process_ends_whatever_user_code_has_made_of_its_hooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "excepthook", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(Ended):
        exit_forked(ValueError())
    with pytest.raises(Ended):
        exit_forked(SystemExit("no"))


def test_a_process_calls_its_exit_handlers_and_one_that_was_forked_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: called.append("handlers"))
    with pytest.raises(Ended, match="0"):
        exit_forked(None)
    assert called == []
    with pytest.raises(Ended, match="1"):
        exit_process(1)
    assert called == ["handlers"]


def test_one_stream_that_is_closed_keeps_nothing_of_the_other_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        err.write("said")
        out.close()
        flush_output()
        assert (tmp_path / "err").read_text() == "said"


def test_a_call_with_a_controller_is_asked_to_end_and_not_killed() -> None:
    pushed: list[tuple[int, object]] = []

    def call(number: int, controller: Controller) -> tuple[int, int, bool]:
        controller.push(number)
        assert not controller.cancelled
        signal.raise_signal(signal.SIGTERM)
        return controller.job_id, controller.attempt, controller.cancelled

    def push(run: int, value: Any) -> None:
        pushed.append((run, value))

    before = signal.getsignal(signal.SIGTERM)
    assert with_controller(call, ASSIGNMENT, push)(3) == (7, 2, True)
    assert pushed == [(5, 3)]
    assert signal.getsignal(signal.SIGTERM) == before


def test_path_and_directory_become_the_callers(tmp_path: Path) -> None:
    path = sys.path
    set_path_and_directory(["/elsewhere"], str(tmp_path))
    assert sys.path is path  # which others may hold
    assert path == ["/elsewhere"]
    assert Path.cwd() == tmp_path


def test_a_directory_that_a_call_has_removed_is_left(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    set_path_and_directory(sys.path, str(tmp_path))
    assert Path.cwd() == tmp_path


def test_a_directory_that_is_not_here_is_said_with_the_machine(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be entered on ") as raised:
        set_path_and_directory(sys.path, str(tmp_path / "none"))
    assert "No such file" in str(raised.value)


def test_a_forked_process_does_not_draw_the_numbers_of_its_fork_server() -> None:
    numpy = pytest.importorskip("numpy")
    before = numpy.random.get_state()
    try:
        numpy.random.seed(0)
        expected = numpy.random.random()
        numpy.random.seed(0)
        seed_by_chance()
        assert numpy.random.random() != expected
    finally:
        numpy.random.set_state(before)
