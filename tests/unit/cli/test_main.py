"""The command line: what its words mean, and what it answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.wire.connection_file import write_private


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("command", [(), ("settings",), ("up",), ("doctor",)])
def test_help_has_examples(command: tuple[str, ...]) -> None:
    result = call(*command, "--help")
    assert result.exit_code == 0
    assert "Examples:\n" in result.output
    assert f"  gridengine {' '.join(command)}".rstrip() in result.output


def test_settings_says_of_each_value_who_said_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gridengine.toml").write_text(
        'max_workers = 5\n\n[grid_engine.tokens]\nbig = "-q [big].q"\n'
    )
    monkeypatch.setenv("GRIDENGINE_HOST", "node1")
    lines = {line.split()[0]: line for line in call("settings").output.splitlines()}
    assert lines["max_workers"].split()[1:] == ["5", f"{tmp_path}/gridengine.toml:1"]
    assert lines["host"].split()[1:] == ["node1", "GRIDENGINE_HOST"]
    assert lines["beat_seconds"].split()[1:] == ["2.0", "default"]
    assert "big = '-q [big].q'" in lines["grid_engine.tokens"]


def test_scripts_read_settings_as_json(tmp_path: Path) -> None:
    Path("gridengine.toml").write_text("max_workers = 5")
    told = json.loads(call("settings", "--json").output)
    assert told["max_workers"] == {"value": 5, "by": f"{tmp_path}/gridengine.toml:1"}
    assert told["run_directory"] == {"value": "~/.gridengine/runs", "by": "default"}
    assert told["start_timeout"] == {"value": None, "by": "default"}


def test_a_wrong_setting_is_one_line_and_status_1(tmp_path: Path) -> None:
    Path("gridengine.toml").write_text("max_worker = 5")
    result = call("settings")
    assert result.exit_code == 1
    assert (
        result.output
        == f"Error: {tmp_path}/gridengine.toml:1: there is no setting 'max_worker'\n  try: "
        "'max_workers' is one\n"
    )


def test_workers_want_a_connection_file() -> None:
    assert call("up", "nosuch").exit_code == 2
    write_private(Path("connection.json"), b"{}")
    result = call("up", "connection.json")
    assert result.exit_code == 1
    assert "connection.json is not a connection file" in result.output


def test_neither_the_package_nor_a_worker_loads_the_command_line() -> None:
    code = (
        "import sys, gridengine, gridengine.worker; print([name for name in ('click', 'rich', "
        "'tomllib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
