"""Tables for the terminal and for `README.md`, and the plot."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.catalogue import ALL, BY_TCP, ONE_FILE, OUR_CLIENTS, OURS, WITH_A_NAME, Entry
from benchmarks.cluster import OURS as OURS_ON_CLUSTERS
from benchmarks.figures import Column, Outcome, Table, shown

FOLDER = Path(__file__).parent
README, PLOT = FOLDER / "README.md", FOLDER / "time-over-tasks.png"
BEGIN, END = "<!-- figures: written by `make bench` -->\n", "<!-- end of the figures -->\n"
HEAD = ("measure", "want", "limit", "ours", "best other", "reached")


def document(tables: Sequence[Table], *, core: Sequence[str] = (), remark: str = "") -> str:
    """Return all there is to tell, as markdown."""
    parts = [machine(), remark, "## What was wanted, and what came", wants(tables)]
    for table in tables:
        parts += [
            f"## {table.row.title[0].upper()}{table.row.title[1:]}",
            details(table),
            table.row.remark,
        ]
    if core:
        parts += ["## The core alone, simulated", "```text\n" + "\n".join(core) + "\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def machine() -> str:
    """Return a line on this machine and a table of versions."""
    cores = len(os.sched_getaffinity(0))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    system = (
        f"Linux {platform.release()}; Python {platform.python_version()}; load "
        f"{os.getloadavg()[2]:.2f} over the last 15 minutes"
    )
    named = {entry.distribution: entry for entry in ALL.values() if entry.distribution}
    versions = [
        f"{name} {version(name, entry.prefix)}{pins(entry)}" for name, entry in named.items()
    ]
    versions += [f"{name} {version(name)}" for name in ("pyzmq", "numpy")]
    return f"{now}; {cores} cores ({processor()}); {system}.\n\nVersions: {', '.join(versions)}."


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def version(name: str, prefix: Path = Path(sys.prefix)) -> str:
    """Return the version of what is installed in this environment."""
    folders = [str(folder) for folder in prefix.glob("lib/python*/site-packages")]
    return next(
        (one.version for one in importlib.metadata.distributions(name=name, path=folders)),
        "(not installed)",
    )


def pins(entry: Entry) -> str:
    """Return what a peer with an environment of its own has other than the rest."""
    return f" (with pyzmq {version('pyzmq', entry.prefix)})" if entry.apart else ""


def grid(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a markdown table; all but its first column are aligned right, but for those headed by
    nothing or `want`.
    """
    rule = [
        "---" if not number or title in ("", "want", "best other", "reached", "taken") else "---:"
        for number, title in enumerate(head)
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *lines])


# ---------------------------------------------------------------- each row


def details(table: Table) -> str:
    """Return a row's table: each peer's medians with their spread, or why it has none."""
    columns = table.row.columns
    head = ["", *(f"{column.title}, {column.unit}" for column in columns), ""]
    return grid(
        head,
        (
            [name_of(one.peer), *(cell(one, column) for column in columns), note(one)]
            for one in table.sorted
        ),
    )


def name_of(peer: str) -> str:
    return f"**{peer}**" if peer.startswith(OURS) else peer


def cell(outcome: Outcome, column: Column) -> str:
    """Return the median and, in brackets, the least and the greatest, for which a row of many
    columns has no room.
    """
    values = outcome.values(column)
    if not values:
        return "-"
    median = shown(outcome.median(column) or 0.0, column)
    spread = f" ({shown(min(values), column)} to {shown(max(values), column)})"
    return median if outcome.row.plotted or len(values) == 1 else median + spread


def note(outcome: Outcome) -> str:
    fewer = outcome.figures and outcome.calls < outcome.row.calls and not outcome.row.plotted
    scaled = any(column.scaled for column in outcome.row.columns)
    words = [f"{'scaled up from' if scaled else 'with'} {outcome.calls:,} calls"] if fewer else []
    return "; ".join([*words, *([outcome.failure.replace("|", "/")] if outcome.failure else [])])


# ---------------------------------------------------------------- what was wanted


def wants(tables: Sequence[Table]) -> str:
    """Return a table of what was wanted, ours, and the best of the others."""
    return grid(HEAD, lines_of_wants(tables))


def lines_of_wants(tables: Sequence[Table]) -> list[list[str]]:
    return [
        want(table, column, tables)
        for table in tables
        for column in table.row.columns
        if column.limit
    ]


def want(table: Table, column: Column, tables: Sequence[Table]) -> list[str]:
    assert column.limit is not None
    medians = table.medians(column)
    ours = ours_of(medians)
    elsewhere = {
        f"{other.row.name}/{peer}": value
        for other in tables
        for peer, value in other.medians(other.row.columns[0]).items()
    }
    try:
        limit = column.limit({**elsewhere, **medians})
    except KeyError as missing:
        return [
            measure(table, column),
            column.want,
            "-",
            _shown(ours, column),
            best_other(medians, column),
            f"not told: no {missing}",
        ]
    reached = (
        "-"
        if ours is None
        else "yes"
        if ours <= limit
        else f"**no**, {ours / limit:.2f} x the limit"
    )
    if ours is None:
        reached = next(
            (outcome.failure for outcome in table.outcomes if outcome.peer.startswith(OURS)),
            "not measured",
        )
    return [
        measure(table, column),
        column.want,
        _shown(limit, column),
        _shown(ours, column),
        best_other(medians, column),
        reached,
    ]


def ours_of(medians: dict[str, float]) -> float | None:
    """Return our figure; where several peers are ours, the first one's."""
    peers = (*WITH_A_NAME, OURS, ONE_FILE, *OURS_ON_CLUSTERS, *OUR_CLIENTS, *BY_TCP)
    return next((medians[peer] for peer in peers if peer in medians), None)


def measure(table: Table, column: Column) -> str:
    return table.row.title + (f": {column.title}" if len(table.row.columns) > 1 else "")


def _shown(value: float | None, column: Column) -> str:
    return "-" if value is None else f"{shown(value, column)} {column.unit}"


def best_other(medians: dict[str, float], column: Column) -> str:
    others = {
        peer: value
        for peer, value in medians.items()
        if not peer.startswith((OURS, "serial", "Future"))
    }
    if not others:
        return "-"
    best = min(others, key=lambda peer: others[peer])
    return f"{_shown(others[best], column)} ({best})"


def ratios(tables: Sequence[Table]) -> str:
    """Return ours beside the standard library's, as ratios: less than 1 is faster (or smaller)."""
    rows = [
        (table, column, table.medians(column)) for table in tables for column in table.row.columns
    ]
    peers = list(
        dict.fromkeys(
            peer
            for _, _, medians in rows
            for peer in medians
            if not peer.startswith((OURS, "serial", "Future"))
        )
    )
    lines = [
        [
            measure(table, column),
            _shown(ours, column),
            *(ratio(ours, medians.get(peer)) for peer in peers),
        ]
        for table, column, medians in rows
        if (ours := ours_of(medians)) is not None
    ]
    return grid(["", "ours", *(f"ours / {peer}" for peer in peers)], lines)


def ratio(ours: float, theirs: float | None) -> str:
    return f"{ours / theirs:#.2g}".rstrip(".") if theirs else "-"


# ---------------------------------------------------------------- where it goes


def show(text: str) -> None:
    """Print markdown on the terminal."""
    Console(width=None if os.isatty(1) else 200).print(Markdown(text))


def write(tables: Sequence[Table]) -> None:
    """Update the table of `README.md` with the wants and figures of these rows. The lines of all
    other measures stay.
    """
    before, _, rest = README.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    lines = {cells[0]: cells for cells in kept}
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    lines.update({cells[0]: [*cells, today] for cells in lines_of_wants(tables)})
    text = grid([*HEAD, "taken"], lines.values())
    README.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}")


def draw(table: Table) -> None:
    """Plot time over the number of tasks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    lines = itertools.cycle(
        itertools.product(
            ("-", "--", ":"), pyplot.rcParams["axes.prop_cycle"].by_key()["color"][:7]
        )
    )
    for outcome in table.sorted:
        points = [
            (int(column.key), outcome.median(column))
            for column in table.row.columns
            if outcome.values(column)
        ]
        dashes, color = ("-", "black") if outcome.peer == OURS else next(lines)
        width = 2.5 if outcome.peer == OURS else 1.8 if outcome.peer.startswith(OURS) else 1.0
        if points:
            axes.plot(
                *zip(*points, strict=True),
                dashes,
                color=color,
                linewidth=width,
                marker="o",
                markersize=3,
                label=outcome.peer,
            )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="tasks (noops)",
        ylabel="seconds until all results are there",
        title=table.row.title,
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.savefig(PLOT, dpi=100, bbox_inches="tight")
    pyplot.close(figure)
