"""How the command line writes to a terminal or a pipe: words, tables, and JSON for scripts."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NOTHING = ("", "-")


def console() -> Console:
    """Return what writes to standard output."""
    from rich.console import Console

    # Whoever reads this through a pipe wants whole lines.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 1000)


def write_file(path: Path, content: bytes) -> None:
    """Write the file that a command was asked for; an error names it, that of a full disk too."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error


def folded(words: str, stream: TextIO) -> str:
    """Return words for people, broken at blanks into lines for which the terminal is wide enough;
    as they are where the stream is none.
    """
    if not stream.isatty():
        return words
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in words.splitlines()
    )


def text(words: str, style: str = "") -> Any:
    """Return words as they are: rich would take what is in brackets for its own."""
    from rich.text import Text

    return Text(words, style=style)


def shown(value: object) -> str:
    """Return a value as people have it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} = {one!r}" for name, one in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value == Path() else str(value) or "none"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table; columns whose names begin with `>` are flush right, and have the room that
    they need. At a terminal those are left out that tell nothing.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[str(cell) for cell in row] for row in rows]
    told = [
        not (cells and sys.stdout.isatty()) or any(row[place] not in NOTHING for row in cells)
        for place in range(len(columns))
    ]
    for column in compress(columns, told):
        right = column.startswith(">")
        title = column.removeprefix(">")
        made.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in cells:
        made.add_row(*map(text, compress(row, told)))
    return made


def print_json(value: object) -> None:
    """Print what scripts read."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=1))
