"""`gridengine logs`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import logs as module
from gridengine.cli.main import main


def logs(
    monkeypatch: pytest.MonkeyPatch, told: list[str], paths: list[Path], *words: str
) -> Result:
    monkeypatch.setattr(module, "find_logs", lambda name, which, *, failed: (told, paths))
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


def test_where_there_is_none_the_status_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
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


def follow(monkeypatch: pytest.MonkeyPatch, paths: list[Path], *acts: Callable[[], object]) -> None:
    """Follow files, and have these things done in the meantime, up to a Ctrl-C."""
    left = iter(acts)

    def sleep(seconds: float) -> None:
        act = next(left, None)
        if act is None:
            raise KeyboardInterrupt
        act()

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        module._follow(paths)


def test_what_is_appended_is_told_with_its_file_where_another_was_before(
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


def test_without_a_file_there_is_nothing_to_follow(tmp_path: Path) -> None:
    module._follow([tmp_path / "nosuch.log"])
