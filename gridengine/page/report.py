"""A run as one HTML file that loads nothing: the page, with the answers to all that it asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.page.overview import overview
from gridengine.page.rows import OPEN_CALLS, TABLES, table
from gridengine.page.timeline import timeline_of
from gridengine.watching.phrases import date
from gridengine.watching.top_tables import View

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MODULES = "dom", "table", "timeline", "graph", "views", "page"
"""The page's modules, each after those that it imports."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_IMPORT = re.compile(r'^import (\{.*?\}) from "\./(\w+)\.js";$', re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def report(answer: WatchAnswer, *, ended: bool) -> str:
    """Return the page of a run, from its dispatcher's answer for a report."""
    answers = msgspec.json.encode(_answers(answer, ended=ended)).decode()
    # A `<` in a name of the user's would be read as markup.
    data = answers.replace("<", r"\u003c")
    parts = {
        '<link rel="icon" href="/static/icon.svg">': (
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            f'<link rel="icon" href="data:image/svg+xml,{quote(_text("icon.svg"))}">'
        ),
        '<link rel="stylesheet" href="/static/page.css">': f"<style>\n{_text('page.css')}</style>",
        '<script type="module" src="/static/page.js"></script>': (
            f'<script type="application/json" id="answers">{data}</script>\n'
            f'<script type="module">\n{"".join(map(_module, MODULES))}</script>'
        ),
    }
    text = _text("index.html")
    for loaded, embedded in parts.items():
        text = text.replace(loaded, embedded)
    return text


def _text(name: str) -> str:
    return static(name).read_text(encoding="utf-8")


def static(name: str) -> Traversable:
    """Return a file of the page."""
    return resources.files("gridengine.page").joinpath("static", name)


def _answers(answer: WatchAnswer, *, ended: bool) -> Mapping[str, object]:
    """Return the answers to the page's requests, by path."""
    told = overview(answer, actions=False, is_report=ended)
    if not ended:
        told = replace(told, seen=date(answer, 0.0))
    output = "the output of calls"
    tables = {f"/rows/{name}": table(answer, View(name)) for name in TABLES if name != OPEN_CALLS}
    return {
        "/overview": told,
        **{path: replace(one, sortable=False) for path, one in tables.items() if one.rows},
        "/timeline": timeline_of(answer),
        "/logs": [output] if answer.printed else [],
        f"/logs/{quote(output)}": answer.printed,
    }


def _module(name: str) -> str:
    """Return a module of the page as an object of what it exports: modules within one file cannot
    import each other.
    """
    text = _text(f"{name}.js")
    names = ", ".join(exported for _, exported in _EXPORT.findall(text))
    text = _IMPORT.sub(r"const \1 = \2;", _EXPORT.sub(r"\1", text))
    return f"const {name} = (() => {{\n{text}\nreturn {{ {names} }};\n}})();\n"
