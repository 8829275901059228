"""Which tests of `make test-all` a change runs: `.ci/parts.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("parts", ROOT / ".ci" / "parts.py")
assert SPEC is not None
assert SPEC.loader is not None
parts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(parts)
NO_FOLDERS = {parts.NEWEST_PYTHON}


def test_each_row_names_tests_that_are_there() -> None:
    named = {part for row in parts.PARTS.values() for part in row} - NO_FOLDERS
    assert {part for part in named if not (ROOT / parts.folder_of(part)).exists()} == set()


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ([], []),
        (["docs/runs.md", "tests/unit/test_docs.py"], ["tests/integration/command_line"]),
        (["tests/integration/map/test_map.py"], ["tests/integration/map"]),
        (
            ["gridengine/journal/writer.py", "gridengine/page/web_server.py"],
            [f"tests/integration/{name}" for name in ("dispatcher", "runs", "watching")],
        ),
        (["tests/hosts/test_power.py"], ["tests/hosts"]),
        (["docs/runs.md", "setup.cfg"], ["all"]),
        (["gridengine/dispatcher/io_loop.py"], ["all"]),
        (["tests/integration/conftest.py"], ["all"]),
    ],
)
def test_a_change_runs_the_tests_that_it_can_break(changed: list[str], wanted: list[str]) -> None:
    assert parts.parts_of(changed) == wanted


def test_the_newest_python_comes_last() -> None:
    assert parts.parts_of(["gridengine/worker/runner.py"])[-1] == parts.NEWEST_PYTHON


@pytest.mark.parametrize("text", ["0" * 40, "no commit"])
def test_all_is_run_where_the_tested_commit_is_not_known(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tested").write_text(text)
    monkeypatch.setattr(parts, "TESTED", tmp_path / "tested")
    parts.main()
    assert capsys.readouterr().out == "all\n"
