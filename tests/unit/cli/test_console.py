"""What the command line writes for people, and JSON for scripts."""

from __future__ import annotations

import io
import json
import logging
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from msgspec import Struct

from gridengine import cli
from gridengine.cli.console import (
    LogFormatter,
    console,
    echo,
    folded,
    print_json,
    shown,
    table,
    text,
    write_file,
)
from gridengine.cli.ls import COLUMNS
from gridengine.cli.main import main

WORDS = "no dispatcher runs here\n  try: say which of them, by its process"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_lines_that_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert folded(WORDS, Terminal()).splitlines() == [
        *("no dispatcher runs", "here", "  try: say which of", "  them, by its", "  process"),
    ]


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_errors_say_nothing_to_a_terminal(stream: Any) -> None:
    assert "\x1b" not in folded("no run \x1b[2J is there", stream)


def test_a_pipe_has_them_as_they_are() -> None:
    assert folded(WORDS, io.StringIO()) == WORDS


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((True, "yes"), (False, "no"), (0, "0"), (0.0, "0.0"), ("", "none"), ({}, "none")),
        *(({"a": "b"}, "a = 'b'"), (None, "None"), (Path(), "none"), (Path("/a"), "/a")),
    ],
)
def test_a_value_is_shown_as_people_have_it(value: Any, words: str) -> None:
    assert shown(value) == words


def test_text_in_brackets_is_no_style() -> None:
    assert text("[bold]x").plain == "[bold]x"


def test_a_file_that_cannot_be_written_is_named() -> None:
    with pytest.raises(click.ClickException, match=r"/dev/full: No space left on device"):
        write_file(Path("/dev/full"), b"x")


class Point(Struct):
    x: int
    name: str


def test_a_pipe_has_whole_lines_and_words_in_brackets_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "x" * 300
    console().print(table(("name", ">count"), [("[red]a[/red]", 1), (long, 1000)]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["name", "count"],
        ["[red]a[/red]", "1"],
        [long, "1000"],
    ]
    assert len({line.rindex(line.split()[1]) + len(line.split()[1]) for line in lines}) == 1


def test_scripts_get_json_in_any_language(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json([Point(1, "ä\udc80"), {"a": None}])
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == [{"x": 1, "name": "ä\udc80"}, {"a": None}]


def test_numbers_are_whole_where_there_is_little_room() -> None:
    from rich.console import Console

    row = ("long.py", 26485, "vm", "3.9 s", 1005, 2, "193,000", 0, 2, "01:50")
    file = io.StringIO()
    columns = [one for one in COLUMNS[:-1] if one != "?>cancelled"]
    Console(width=80, file=file).print(table(columns, [row]))
    titles, cells = file.getvalue().splitlines()
    assert titles.split() == [one.removeprefix(">") for one in columns]
    assert cells.split() == [*map(str, row[:3]), "3.9", "s", *map(str, row[4:])]


OUTSIDE = "call\x1b]0;title\x07\x9b2J"
BLANKS = "call ]0;title  2J"


def test_words_names_in_tables_and_lines_of_the_log_have_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo(f"{OUTSIDE}\nnext")
    console().print(text(OUTSIDE))
    console().print(table(["name"], [[OUTSIDE]]))
    written = capsys.readouterr().out
    assert written.split("\n")[:3] == [BLANKS, "next", BLANKS]
    assert written.count(BLANKS) == 3
    record = logging.LogRecord("gridengine", logging.WARNING, "", 1, "%s", (OUTSIDE,), None)
    assert LogFormatter("%(message)s").format(record) == BLANKS


RAW = {
    "console.py": ["click.echo(printable(", "click.echo(json."],
    "doctor.py": ["print(json."],
    "top.py": ["click.echo(msgspec.json."],
    "calls.py": ["csv.writer(sys.stdout)"],
    "results.py": ["sys.stdout.buffer.write("],
    "far_end.py": ["sys.stdout.buffer.write("],
    "logs.py": ["click.echo(line)", "click.echo(tail("],
}
"""The other writes: for programs, and the output of calls that `logs` shows unchanged."""
WRITES = re.compile(
    r"(?<![.\w])(?:click\.s?echo|print|csv\.writer(?=\(sys)|sys\.std(?:out|err)[.\w]*write)\(\s*[^)]*.?"
)


@pytest.mark.parametrize(
    "path", sorted(Path(cli.__file__).parent.glob("*.py")), ids=attrgetter("name")
)
def test_a_module_of_the_command_line_writes_words_for_people_by_echo(path: Path) -> None:
    found = ["".join(one.split()) for one in WRITES.findall(path.read_text())]
    allowed = RAW.get(path.name, ())
    assert [one for one in found if not one.startswith(tuple(allowed))] == []
    assert len(found) >= len(allowed)


@pytest.mark.parametrize("words", [("doctor", "--wait", "0"), ("top", "--interval", "0.1")])
def test_a_time_that_is_too_short_is_refused(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "Error: Invalid value" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "option"), [("doctor", "--wait"), ("top", "--interval"), ("results", "--timeout")]
)
def test_the_help_says_which_options_are_times(command: str, option: str) -> None:
    assert f"{option} TIME" in CliRunner().invoke(main, [command, "--help"]).output
