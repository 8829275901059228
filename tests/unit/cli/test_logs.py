"""`gridengine logs`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import logs as module
from gridengine.cli.main import main
from gridengine.errors import ConfigurationError
from gridengine.watching.worker_logs import FoundLogs


def logs(
    monkeypatch: pytest.MonkeyPatch, told: list[str], paths: list[Path], *words: str
) -> Result:
    found = FoundLogs(told, paths, may_come=False)
    monkeypatch.setattr(module, "find_logs", lambda name, which, *, failed: found)
    return CliRunner().invoke(main, ["logs", "sweep", *words])


def test_the_last_lines_of_each_are_shown_behind_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, empty = tmp_path / "1.log", tmp_path / "2.log"
    one.write_text("a\nb\nc\n")
    empty.touch()
    result = logs(monkeypatch, ["it begins"], [one, empty], "--lines", "2")
    assert result.output == f"it begins\n==> {one} <==\nb\nc\n==> {empty} <==\n"
    assert result.exit_code == 0


@pytest.mark.parametrize(("lines", "shown"), [("0", ""), ("1", "c\n"), ("9", "a\nb\nc\n")])
def test_no_more_lines_are_shown_than_there_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, shown: str
) -> None:
    one = tmp_path / "1.log"
    one.write_text("a\nb\nc\n")
    assert logs(monkeypatch, [], [one], "--lines", lines).output == f"==> {one} <==\n{shown}"
    assert logs(monkeypatch, [], [one], "--lines", f"-{lines}1").exit_code == 2


def test_output_that_no_log_has_is_shown_with_its_last_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = FoundLogs([], [], may_come=False, printed="a\nb\nc\n")
    monkeypatch.setattr(module, "find_logs", lambda name, which, *, failed: found)
    result = CliRunner().invoke(main, ["logs", "sweep", "--lines", "2"])
    assert result.output == "==> output of calls <==\nb\nc\n"
    assert result.exit_code == 0


def test_a_run_without_logs_has_an_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    result = logs(monkeypatch, [], [])
    assert result.exit_code == 1
    assert "no such log" in result.output
    followed = logs(monkeypatch, ["it begins"], [], "--follow")
    assert followed.exit_code == 0
    assert "no worker has a log to follow" in followed.output


def test_a_ctrl_c_is_told_by_the_status_that_shells_have_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(name: str, which: str, *, failed: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "find_logs", interrupted)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "1.log"
    answers = iter([FoundLogs([], [], may_come=True), FoundLogs([], [first], may_come=True)])

    def find(name: str, which: str, *, failed: bool) -> FoundLogs:
        found = next(answers, None)
        if found is None:
            raise KeyboardInterrupt
        return found

    first.write_text("a\n")
    monkeypatch.setattr(module, "find_logs", find)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    result = CliRunner().invoke(main, ["logs", "--follow"])
    assert result.exit_code == 130
    words = "no worker has a log to follow; waiting for the first\n"
    assert result.output == f"{words}==> {first} <==\na\n\n"
