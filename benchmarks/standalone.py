"""A dispatcher that stands on its own: what its clients wait for."""

from __future__ import annotations

import dataclasses

from benchmarks import data, dispatch
from benchmarks.catalogue import CLIENTS, ENCRYPTED, TEN_WORKERS
from benchmarks.figures import Column, Medians, Row


def best_other(medians: Medians) -> float:
    """Return what the quickest of the others takes."""
    others = [seconds for peer, seconds in medians.items() if peer in CLIENTS[1:]]
    if not others:
        raise KeyError("another")
    return min(others)


def _row(name: str, of: str, rows: tuple[Row, ...], **other: object) -> Row:
    """Return a row as another of this name is, with another name, and all that is given."""
    [like] = [row for row in rows if row.name == of]
    return dataclasses.replace(like, name=name, **other)  # type: ignore[arg-type]


ROWS = (
    _row(
        "client-submit",
        "submit",
        dispatch.ROWS,
        title="100,000 single submits to a dispatcher of its own with ten workers, all gathered",
        columns=(
            Column("seconds", "time", "s", want="at most 1.5 s", limit=lambda _: 1.5, scaled=True),
        ),
        peers=TEN_WORKERS,
    ),
    _row(
        "client-round-trip",
        "round-trip",
        dispatch.ROWS,
        title="round trip of one call from a client over TCP",
        columns=(
            Column(
                "seconds",
                "median",
                "ms",
                1e3,
                want="at most 1.6 x our local round trip",
                limit=dispatch.times(1.6, "round-trip/gridengine"),
            ),
            Column("slow", "19 of 20 within", "ms", 1e3),
        ),
        peers=CLIENTS,
        calls=500,
        warm=100,
        remark="",
    ),
    _row(
        "client-results",
        "results",
        data.ROWS,
        title="20 results of 10 MB to a client on the same machine",
        columns=(
            Column(
                "seconds",
                "time",
                "s",
                want="at most 0.9 x the best other's",
                limit=lambda medians: 0.9 * best_other(medians),
            ),
        ),
        peers=(*CLIENTS, *ENCRYPTED),
    ),
)
