"""The common part of commands: their help and options; and output as words, tables, and JSON for
scripts.
"""

from __future__ import annotations

import inspect
import json
import logging
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from gridengine.arguments import parse_seconds
from gridengine.display import printable
from gridengine.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NOTHING = ("", "-")


class Command(click.Command):
    """A command whose docstring ends with examples, which `--help` shows below the options."""

    def __init__(self, name: str | None, *, help: str | None = None, **given: Any) -> None:
        text, _, examples = inspect.cleandoc(help or "").partition("\nExamples:\n")
        super().__init__(name, help=text, epilog=f"\b\nExamples:\n{examples}", **given)


class Group(Command, click.Group):
    """A command with commands below it."""

    command_class = Command


def command(name: str, *, short_help: str) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a command of a function."""
    return click.command(name, cls=Command, short_help=short_help)


def json_option(told: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Return the option `--json`; `holds` describes its output."""
    return click.option("--json", "as_json", is_flag=True, help=f"For scripts{told}.")


def time_of(least: float = 0.0) -> Callable[[str], float]:
    """Return the type of an option with a time: seconds, or a text such as `30 min`; at least
    `least` seconds.
    """

    def time(value: str) -> float:  # click shows the name in --help
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = parse_seconds("time", value)
            except ConfigurationError as error:
                raise click.BadParameter(f"{value!r} is not a time: {error.hint}") from None
        if not seconds >= least:
            raise click.BadParameter(f"{value!r} is too little: say {least:g} s, or more")
        return seconds

    return time


def exit_on_signals(status: Callable[[int], int] = lambda number: 128 + number) -> None:
    """Have SIGTERM and SIGHUP end the command in order, with this exit status by the signal."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, lambda number, frame: sys.exit(status(number)))


def console() -> Console:
    """Return a console for standard output."""
    from rich.console import Console

    # Lines in a pipe are not folded.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 1000)


def write_file(path: Path, content: bytes) -> None:
    """Write the output file of a command. An error, such as a full disk, names the file."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error


def echo(words: object, *, err: bool = False) -> None:
    """Print words for people. Control characters become blanks; only `logs` prints them."""
    click.echo(printable(str(words)), err=err)


class LogFormatter(logging.Formatter):
    """Formats lines of the log without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def begin_logging(form: str) -> None:
    """Print warnings to standard error in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(form))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def folded(words: str, stream: TextIO) -> str:
    """Return words for people without control characters, folded at blanks to the width of the
    terminal, if the stream is one.
    """
    words = printable(words)
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
    """Return words without control characters for rich, which would take brackets for markup."""
    from rich.text import Text

    return Text(printable(words), style=style)


def shown(value: object) -> str:
    """Return a value as people read it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} = {one!r}" for name, one in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value == Path() else str(value) or "none"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table. Columns whose names begin with `>` are flush right and never folded. At a
    terminal, columns without content are left out; those that begin with `?` also elsewhere.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[str(cell) for cell in row] for row in rows]
    told = [
        not (cells and (column.startswith("?") or sys.stdout.isatty()))
        or any(row[place] not in NOTHING for row in cells)
        for place, column in enumerate(columns)
    ]
    for column in compress(columns, told):
        title = column.lstrip("?>")
        right = ">" in column
        made.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in cells:
        made.add_row(*map(text, compress(row, told)))
    return made


def print_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=1))
