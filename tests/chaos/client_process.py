"""A client of a stand-alone dispatcher as chaos runs have it: its calls, of one kind, and what came
of them, as JSON: python client_process.py FILE KIND CALLS SEED NAME

CALLS is a file with the calls; it ends when its standard input does, and so when whoever started it
is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import graphs
import maps
import nested
import singles
from call_log import RETRIES, Tally

import gridengine


def make_named(
    scheduler: Any, calls: list[tuple[int, float, str]], tally: Tally, name: str
) -> None:
    """Make them all by a map with a name: those before had a part of the results."""
    tally.expected.update(index for index, *_ in calls)
    given = gridengine.starmap(
        maps.work, calls, scheduler=scheduler, retries=RETRIES, progress=False, name=name
    )
    for (index, *_), result in zip(calls, given, strict=True):
        tally.count(index)
        if result != (index, maps.result_of(index)):
            tally.wrong.append(f"call {index} returned {result!r:.80}")


def watch() -> None:
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    threading.Thread(target=watch, daemon=True).start()
    file, kind, given, seed, name = sys.argv[1:]
    calls = [tuple(call) for call in json.loads(Path(given).read_text())]
    tally = Tally()
    with gridengine.Client(file) as client:
        if kind == "named":
            make_named(client, calls, tally, name)
        else:
            modules = {"graphs": graphs, "maps": maps, "nested": nested, "singles": singles}
            modules[kind].make_calls(client, calls, tally, int(seed))
    print(
        json.dumps(
            {
                "cancelled": tally.cancelled,
                "failed": tally.failed,
                "lost": sorted(tally.expected - tally.given.keys()),
                "doubled": sorted(one for one, count in tally.given.items() if count > 1),
                "wrong": tally.wrong,
            }
        )
    )


if __name__ == "__main__":
    main()
