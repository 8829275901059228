"""`gridengine logs`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from gridengine.cli import logs as module
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import REPORT, Line, WatchAnswer
from gridengine.errors import ConfigurationError
from gridengine.watching.worker_logs import FoundLogs
from tests.support.watched import WHO, FakeWatched, Machine


def log(folder: Path, number: int, content: str = "") -> Path:
    """Return the log of a worker."""
    path = folder / "logs" / f"{number}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture
def logs(tmp_path: Path, machine: Machine) -> Callable[..., Result]:
    """The command for a run, which is under way or has ended, with logs in the folder."""
    answer = WatchAnswer(replace(WHO, folder=str(tmp_path)))

    def logs(*words: str, ended: bool = True, **facts: object) -> Result:
        (machine.ended if ended else machine.says)(replace(answer, **facts))
        return CliRunner().invoke(main, ["logs", "sweep", *words])

    return logs


BEGUN = [Line(0.0, "it begins")]


def test_the_last_lines_of_each_are_shown_behind_its_name(
    tmp_path: Path, logs: Callable[..., Result]
) -> None:
    one, empty = log(tmp_path, 1, "a\nb\nc\n"), log(tmp_path, 2)
    result = logs("--lines", "2", lines=BEGUN)
    assert result.stdout.endswith(f" it begins\n==> {one} <==\nb\nc\n==> {empty} <==\n")
    assert result.exit_code == 0


@pytest.mark.parametrize(("lines", "shown"), [("0", ""), ("1", "c\n"), ("9", "a\nb\nc\n")])
def test_no_more_lines_are_shown_than_there_may_be(
    tmp_path: Path, logs: Callable[..., Result], lines: str, shown: str
) -> None:
    one = log(tmp_path, 1, "a\nb\nc\n")
    assert logs("--lines", lines).stdout == f"==> {one} <==\n{shown}"
    assert logs("--lines", f"-{lines}1").exit_code == 2


def test_output_that_no_log_has_is_shown_with_its_last_lines(logs: Callable[..., Result]) -> None:
    result = logs("--lines", "2", printed="a\nb\nc\n")
    assert result.stdout == "==> output of calls <==\nb\nc\n"
    assert result.exit_code == 0


def test_a_run_without_logs_has_an_exit_status(logs: Callable[..., Result]) -> None:
    result = logs()
    assert result.exit_code == 1
    assert "no worker has written a log" in result.output
    followed = logs("--follow", lines=BEGUN)
    assert followed.exit_code == 0
    assert "no worker has a log to follow" in followed.output


def test_a_ctrl_c_is_told_by_the_status_that_shells_have_for_it(machine: Machine) -> None:
    def interrupted(ask: str) -> WatchAnswer:
        signal.raise_signal(signal.SIGINT)
        return WatchAnswer(WHO)

    machine.add(FakeWatched(interrupted))
    result = CliRunner().invoke(main, ["logs"])
    assert (result.exit_code, result.output) == (130, "\n")


def follow(
    monkeypatch: pytest.MonkeyPatch,
    paths: list[Path],
    *acts: Callable[[], object],
    find: Callable[[], FoundLogs] = lambda: FoundLogs([], [], may_come=True),
) -> None:
    """Follow files, and have these things done in the meantime, up to a Ctrl-C."""
    left = iter(acts)

    def sleep(seconds: float) -> None:
        act = next(left, None)
        if act is None:
            raise KeyboardInterrupt
        act()

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        module._follow(paths, find)


def test_appended_lines_name_their_file_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "1.log", tmp_path / "2.log"
    one.write_text("before\n")
    other.touch()

    def append(path: Path, words: str) -> Callable[[], object]:
        return lambda: path.write_text(path.read_text() + words)

    follow(
        monkeypatch,
        [one, other],
        append(one, "a\n"),
        append(one, "b\n"),
        append(other, "c\n"),
        lambda: one.write_text("x\n"),  # its middle was taken out
        append(one, "d\n"),
        other.unlink,
        append(one, "e\n"),
    )
    assert capsys.readouterr().out == (
        f"==> {one} <==\na\nb\n==> {other} <==\nc\n==> {one} <==\nd\ne\n"
    )


def test_logs_that_are_found_later_are_followed_from_their_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, later = tmp_path / "1.log", tmp_path / "2.log"
    one.write_text("before\n")

    def find() -> FoundLogs:
        if not later.exists():
            raise ConfigurationError("it has ended")
        return FoundLogs([], [one, later], may_come=True)

    acts = [lambda: None] * module.LOOKS
    monkeypatch.setattr(module, "LOOKS", 1)
    follow(monkeypatch, [tmp_path / "gone.log"], *acts, find=find)
    follow(monkeypatch, [one], *acts, lambda: later.write_text("a\n"), *acts, find=find)
    assert capsys.readouterr().out == f"==> {later} <==\na\n"


def test_a_first_log_that_may_come_is_waited_for(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()

    def answer(ask: str) -> WatchAnswer:
        reports = [one for one, _ in watched.asked].count(REPORT)
        if reports == 2:
            log(tmp_path, 1, "a\n")
        elif reports == 3:
            signal.raise_signal(signal.SIGINT)
        return WatchAnswer(replace(WHO, folder=str(tmp_path)))

    watched = machine.add(FakeWatched(answer))
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    result = CliRunner().invoke(main, ["logs", "--follow"])
    assert result.exit_code == 130
    words = "no worker has a log to follow; waiting for the first\n"
    assert result.output == f"{words}==> {tmp_path / 'logs' / '1.log'} <==\na\n\n"
