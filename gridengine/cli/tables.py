"""What commands that show dispatchers have in common: tables, and JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import click
import msgspec

from gridengine.cli.console import text

if TYPE_CHECKING:
    from rich.table import Table


NOTHING = ("", "-")


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
