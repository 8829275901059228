"""Display for people: counts with their nouns, and the HTML tables that notebooks show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logging import Logger

STYLE = "padding: 0 1em 0 0; text-align: left"


def log() -> Logger:
    """Return the package's logger. `logging` is imported here, since workers connect 3 ms sooner
    without.
    """
    import logging

    return logging.getLogger("gridengine")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 call`, `1,200 calls`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def function_name(f: Callable[..., Any]) -> str:
    """Return the name by which people know the calls of a function."""
    name = getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or type(f).__name__
    return str(name).encode(errors="backslashreplace").decode()  # one that can travel


def printable(words: str) -> str:
    """Return words with blanks in place of control characters, except ends of lines: names and
    errors come from calls, and a terminal would obey what they hold.
    """
    if words.isprintable():
        return words
    return "".join(one if one.isprintable() or one == "\n" else " " for one in words)


def html_table(
    title: str, facts: Iterable[tuple[str, object]], *others: Sequence[Sequence[object]]
) -> str:
    """Return an HTML table without colours of its own, readable on dark and light pages: a title,
    facts with their names, and other tables below. The first row of each other table is its head.
    """
    rows = [[name, value] for name, value in facts if value not in (None, "")]
    tables = [_rows(rows, "th", "td")]
    tables += [
        f"{_rows(one[:1], 'th', 'th')}{_rows(one[1:], 'td', 'td')}"
        for one in others
        if len(one) > 1
    ]
    parts = (f"<table>{one}</table>" for one in tables if one)
    return f"<div><b>{_escaped(title)}</b>{''.join(parts)}</div>"


def _rows(rows: Sequence[Sequence[object]], first: str, others: str) -> str:
    return "".join(
        "<tr>"
        + "".join(_cell(first if place == 0 else others, value) for place, value in enumerate(row))
        + "</tr>"
        for row in rows
    )


def _cell(tag: str, value: object) -> str:
    words = f"{value:,}" if isinstance(value, int) else str(value)
    return f'<{tag} style="{STYLE}">{_escaped(words)}</{tag}>'


def _escaped(words: str) -> str:
    import html  # here: few need it, and everybody would wait for it

    return html.escape(words)
