"""Tables, and JSON for scripts."""

from __future__ import annotations

import io
import json

import pytest
from msgspec import Struct

from gridengine.cli.console import console
from gridengine.cli.ls import COLUMNS
from gridengine.cli.tables import print_json, table


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


def test_scripts_have_json_of_what_is_told_in_any_language(
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
    Console(width=80, file=file).print(table(COLUMNS[:-1], [row]))
    titles, cells = file.getvalue().splitlines()
    assert titles.split() == [one.removeprefix(">") for one in COLUMNS[:-1]]
    assert cells.split() == [*map(str, row[:3]), "3.9", "s", *map(str, row[4:])]
