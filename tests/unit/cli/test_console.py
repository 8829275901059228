"""What the command line writes for people."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import pytest

from gridengine.cli.console import folded, shown, text, write_file

WORDS = "no dispatcher runs here\n  try: say which of them, by its process"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_lines_that_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert folded(WORDS, Terminal()).splitlines() == [
        *("no dispatcher runs", "here", "  try: say which of", "  them, by its", "  process"),
    ]


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


def test_what_is_in_brackets_is_no_style() -> None:
    assert text("[bold]x").plain == "[bold]x"


def test_a_file_that_cannot_be_written_is_named() -> None:
    with pytest.raises(click.ClickException, match=r"/dev/full: No space left on device"):
        write_file(Path("/dev/full"), b"x")
