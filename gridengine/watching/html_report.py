"""A run as a self-contained page of HTML; and its timeline: which worker ran which call when. The
page of `gridengine page` draws the same timeline.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape

from msgspec import Struct
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import Answer
from gridengine.display import plural
from gridengine.status.rows import FunctionStatus
from gridengine.watching.call_descriptions import causes
from gridengine.watching.explanation import explain
from gridengine.watching.phrases import clock, memory_to_ask_for, seconds, size

LABEL, WIDTH, ROW = 200, 1000, 14
MOST_LABEL = 40
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#bbbbbb")
"""Colours of functions that everybody can tell apart (Paul Tol's "bright" scheme); red is for
failures.
"""
FAILED = "#ee6677"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1040px; margin: 2em auto; padding: 0 1em;
  color: #222; background: #fff }
table { border-collapse: collapse } th, td { padding: .2em .8em .2em 0; text-align: left;
  border-bottom: 1px solid #ddd; vertical-align: top }
td.n, th.n { text-align: right } td.n { white-space: nowrap }
.wide { overflow-x: auto } .wide svg { min-width: 720px }
ul.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2em 1.2em }
ul.key span { display: inline-block; width: .9em; height: .9em; margin-right: .4em }
svg { width: 100%; height: auto } svg text { font: 10px sans-serif; fill: currentColor }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 }
  th, td { border-color: #444 } }
"""


def page(answer: Answer) -> str:
    """Return the page of a run."""
    who, status = answer.identity, answer.status
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who.since))
    title = f"{who.name}, {began}"
    functions = [[told(one) for told in FUNCTIONS.values()] for one in status.functions]
    parts = [
        f"<h1>{escape(title)}</h1>",
        _paragraph(
            f"Process {who.pid} on {who.host}, {who.scheduler}, {seconds(status.elapsed_seconds)}: "
            f"{status.done:,} calls done, {status.failed:,} failed or cancelled, "
            f"{status.retried:,} attempts followed by another; "
            f"{plural(status.connected_workers, 'worker')} connected, {status.lost_workers:,} lost."
        ),
        *_section("Findings", _list(map(str, explain(answer)))),
        *_section("Timeline", _timeline(answer)),
        *_section("Functions", _table(list(FUNCTIONS), functions)),
        *_section("Failures, by cause", _failures(answer)),
        *_section(
            "Log",
            _list(f"{clock(answer, one.seconds_ago)}: {one.text}" for one in answer.lines),
        ),
        *_section("Settings and versions", _settings(answer)),
    ]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"{''.join(parts)}</body></html>"
    )


def _section(title: str, content: str) -> list[str]:
    return [f"<h2>{escape(title)}</h2>", content] if content else []


def _paragraph(words: str) -> str:
    return f"<p>{escape(words)}</p>"


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table. Columns whose titles begin with `>` are flush right."""
    kinds = [' class="n"' if title.startswith(">") else "" for title in titles]
    head = "".join(
        f"<th{kind}>{escape(title.removeprefix('>'))}</th>"
        for kind, title in zip(kinds, titles, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape(str(cell))}</td>" for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return _wide(f"<table><tr>{head}</tr>{body}</table>") if body else ""


def _wide(content: str) -> str:
    """Return the content in a box that scrolls sideways when it is too wide."""
    return f'<div class="wide" tabindex="0">{content}</div>'


def _timeline(answer: Answer) -> str:
    """Return the chart. A worker has as many rows as it ran calls at a time; each call of the
    sample is a bar.
    """
    drawn = timeline_of(answer)
    if not drawn.bars:
        return ""
    names = [one.name for one in answer.status.functions]
    bars = "".join(_bar(one, drawn, _colour(one, names)) for one in drawn.bars)
    labels = "".join(
        f'<text x="0" y="{ROW * row + 11}">{escape(worker[:MOST_LABEL])}</text>'
        for row, worker in enumerate(drawn.rows)
    )
    legend = "".join(
        _key(COLOURS[place % len(COLOURS)], name)
        for place, name in enumerate(names[: len(COLOURS)])
    )
    told = (
        f"{len(drawn.bars):,} calls are drawn; {answer.status.done + answer.status.failed:,} have "
        f"ended, {answer.status.running:,} run."
    )
    chart = (
        f'<svg viewBox="0 0 {WIDTH + LABEL} {ROW * (len(drawn.rows) + 2)}" role="img" '
        f'aria-label="timeline of workers">{bars}{labels}{_axis(drawn.seconds, len(drawn.rows))}'
        "</svg>"
    )
    keys = f'<ul class="key">{legend}{_key(FAILED, "failed")}</ul>'
    return f"{_wide(chart)}{keys}{_paragraph(told)}"


def _key(colour: str, name: str) -> str:
    return f'<li><span style="background:{colour}"></span>{escape(name)}</li>'


def _bar(one: Bar, drawn: Timeline, colour: str) -> str:
    left = LABEL + WIDTH * one.start / drawn.seconds
    wide = max(WIDTH * one.seconds / drawn.seconds, 0.5)
    title = f"{one.function}: {one.state}, {seconds(one.seconds)}"
    opacity = ".35" if one.state == "running" else ".85"
    return (
        f'<rect x="{left:.1f}" y="{ROW * one.row + 2}" width="{wide:.1f}" height="{ROW - 4}" '
        f'fill="{colour}" fill-opacity="{opacity}"><title>{escape(title)}</title></rect>'
    )


def _colour(one: Bar, names: Sequence[str]) -> str:
    if one.state == "failed" or one.function not in names:
        return FAILED
    return COLOURS[names.index(one.function) % len(COLOURS)]


def _axis(total: float, rows: int) -> str:
    return "".join(
        f'<text x="{LABEL + WIDTH * part / 4:.0f}" y="{ROW * (rows + 1)}" text-anchor="'
        f'{"end" if part == 4 else "start"}">{seconds(total * part / 4)}</text>'
        for part in range(5)
    )


FUNCTIONS: Mapping[str, Callable[[FunctionStatus], object]] = {
    "function": lambda one: one.name,
    ">done": lambda one: f"{one.done:,}",
    ">failed": lambda one: f"{one.failed:,}",
    ">retried": lambda one: f"{one.retried:,}",
    ">mean": lambda one: seconds(one.mean_seconds),
    ">p95": lambda one: seconds(one.p95_seconds),
    ">memory used": lambda one: size(one.peak_memory),
    ">memory asked for": lambda one: size(one.asked_memory),
    "suggestion": lambda one: memory_to_ask_for(one.peak_memory),
    "durations": lambda one: "; ".join(_durations(one)),
}


def _durations(one: FunctionStatus) -> Iterator[str]:
    counts = Counter[float]()
    for upto, count in one.histogram:
        power = 0.001
        while power < upto:
            power *= 10
        counts[power] += count
    for power, count in sorted(counts.items()):
        yield f"{count:,} up to {seconds(power)}"


def _failures(answer: Answer) -> str:
    return _table(
        (">of the last", "cause", "for example", "where", "log"),
        [
            (one.count, one.words, one.last.call, one.last.host, one.last.log)
            for one in causes(answer.status.failures)
        ],
    )


def _settings(answer: Answer) -> str:
    who = answer.identity
    rows = [
        ("gridengine", who.version),
        ("Python", who.python),
        ("script", who.script),
        ("folder", who.directory),
        ("max_workers", answer.status.room),
        ("slots of a worker", answer.status.slots),
        ("resources of a worker", answer.status.worker_resources),
        *((f"setting {name}", value) for name, value in answer.settings.items() if value),
    ]
    return _table(("what", "value"), rows)


MOST_ROWS = 100
SLACK = 0.05
"""Calls that overlap by at most this many seconds are drawn in one row."""


class Bar(Struct, frozen=True):
    """One call, or several in a row: the row, the start in seconds after the dispatcher's, the
    duration so far, the function, and the state.
    """

    row: int
    start: float
    seconds: float
    function: str
    state: str = "done"
    """`done`, `failed` or `running`."""


class Timeline(Struct, frozen=True):
    """The drawing of a run of this many `seconds`. Each worker has as many rows as it ran calls at
    a time, the first with its name. `left_out` calls of the sample have no row.
    """

    seconds: float
    rows: Sequence[str] = ()
    bars: Sequence[Bar] = ()
    left_out: int = 0


def timeline_of(answer: Answer) -> Timeline:
    """Return the timeline of a run from its dispatcher's answer for a report."""
    total = max(answer.status.elapsed_seconds, 1e-3)
    calls = sorted(_calls(answer, total), key=lambda one: one[1].start)
    lanes = _lanes(calls)
    rows = {lane: row for row, lane in enumerate(sorted(set(lanes))[:MOST_ROWS])}
    bars = [
        replace(one, row=rows[lane])
        for (_, one), lane in zip(calls, lanes, strict=True)
        if lane in rows
    ]
    names = [worker if not lane else "" for worker, lane in rows]
    return Timeline(total, names, bars, len(calls) - len(bars))


def _calls(answer: Answer, total: float) -> Iterator[tuple[str, Bar]]:
    """Yield the ended calls of the sample, and the running calls, each with its worker and without
    a row yet.
    """
    for one in answer.timeline:
        begun, state = total - one.seconds_ago - one.seconds, "failed" if one.failed else "done"
        yield one.worker, Bar(0, max(0.0, begun), one.seconds, one.function, state)
    workers = {one.id: f"{one.host} {one.job or one.pid}" for one in answer.status.workers}
    for run in answer.status.runs:
        worker = workers.get(run.worker, f"{run.host} {run.job}")
        yield worker, Bar(0, max(0.0, total - run.seconds), run.seconds, run.function, "running")


def _lanes(calls: Sequence[tuple[str, Bar]]) -> list[tuple[str, int]]:
    """Return for each call, sorted by start, its worker and a lane: a number that no overlapping
    call of that worker has.
    """
    lanes: list[tuple[str, int]] = []
    ends: dict[str, list[float]] = {}
    for worker, one in calls:
        taken = ends.setdefault(worker, [])
        free = (place for place, end in enumerate(taken) if end <= one.start + SLACK)
        lane = next(free, len(taken))
        taken[lane : lane + 1] = [one.start + one.seconds]
        lanes.append((worker, lane))
    return lanes
