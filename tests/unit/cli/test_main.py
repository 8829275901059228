"""The command line: what its words mean, and what it answers."""

from __future__ import annotations

import errno
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner, Result

from gridengine.cli.main import main
from gridengine.wire.connection_file import write_private
from tests.support.processes import completed


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def context_of(words: Sequence[str]) -> click.Context:
    """Return where the first of these words lead: to a command, with the others left."""
    context, left = click.Context(main, info_name="gridengine"), list(words)
    while left and isinstance(context.command, click.Group):
        command = context.command.get_command(context, left[0])
        if command is None:
            break
        context = click.Context(command, context, left.pop(0))
    context.args = left
    return context


def all_commands(*words: str) -> Iterator[tuple[str, ...]]:
    """Yield these words, and those of all commands below."""
    yield words
    context = context_of(words)
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            yield from all_commands(*words, name)


@pytest.mark.parametrize("command", list(all_commands()), ids=" ".join)
def test_help_tells_the_exit_status_and_has_examples_that_are_understood(
    command: tuple[str, ...],
) -> None:
    result = call(*command, "--help")
    assert result.exit_code == 0
    told, _, examples = result.output.partition("Examples:\n")
    assert "The exit status is " in " ".join(told.split())
    assert examples
    for line in examples.rstrip().splitlines():
        # What a shell does with the output, and remarks, are no words of the command.
        example, *_ = re.split(r"\s{2,}|\s[|>]", line.strip())
        words = shlex.split(example)
        words = words[words.index("gridengine") + 1 :]
        assert tuple(words[: len(command)]) == command
        context = context_of(words)
        parser = context.command.make_parser(context)
        _, left, _ = parser.parse_args(context.args)
        assert left == [], line


def test_settings_tells_the_source_of_each_value(
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


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("tpo", "'top' is one."),
        ("qwxz", "'qwxz'."),
        ("stop", "Did you mean `gridengine cancel NAME`?"),
        ("status", "Did you mean `gridengine top`?"),
    ],
)
def test_a_misspelt_command_is_told_with_the_nearest(typed: str, words: str) -> None:
    told = CliRunner().invoke(main, [typed])
    assert told.exit_code == 2
    assert told.output.strip().endswith(words)


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
    assert call("up", "nosuch").exit_code == 1
    write_private(Path("connection.json"), b"{}")
    result = call("up", "connection.json")
    assert result.exit_code == 1
    assert "connection.json is not a connection file" in result.output


def test_neither_the_package_nor_a_worker_loads_the_command_line() -> None:
    code = (
        "import sys, gridengine, gridengine.worker; print([name for name in ('click', 'rich', "
        "'tomllib') if name in sys.modules])"
    )
    done = completed([sys.executable, "-c", code], check=True)
    assert done.stdout == "[]\n"


def test_without_its_extra_the_page_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("gridengine.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = call("page")
    assert result.exit_code == 1
    assert "the page needs uvicorn, which is not installed" in result.output
    assert "pip install '.[page]', in the clone" in result.output


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "runs"), "Error: runs: No such file\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
        (OSError(errno.EIO, "Input/output error"), ""),
    ],
)
def test_an_error_of_a_file_is_told_with_its_name_and_another_is_left_to_click(
    monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def fail() -> NoReturn:
        raise error

    monkeypatch.setattr("gridengine.cli.main.sources", fail)
    result = call("settings")
    assert (result.exit_code, result.output) == (1, words)


def test_a_ctrl_c_is_the_status_that_shells_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("gridengine.cli.main.sources", interrupt)
    assert call("settings").exit_code == 130
