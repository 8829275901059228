"""Calls that ask for different things: a table that all of them use, quick look-ups on one core,
and a few sums on two.

Shows `resources=`, by which calls are packed on this machine and asked for on a cluster;
`GVAR.res`, what a call was given; and `share`, by which a large object is sent to each worker once:

    python examples/mixed_resources.py
    python examples/mixed_resources.py --scheduler slurm
"""

import argparse
import os
from concurrent.futures import as_completed

import gridengine
from gridengine import GVAR, Cores, Memory, WTime


def look_up(table: bytes, place: int) -> str:
    return f"{place}: {table[place]}"


def add_up(table: bytes, parts: int) -> str:
    """Add up the table in as many parts as there are threads to use."""
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    total = sum(sum(table[part::threads]) for part in range(threads))
    return f"{parts} parts on {GVAR.res!r}: {total}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", help="processes, grid_engine, slurm or inline")
    scheduler = parser.parse_args().scheduler
    with (
        gridengine.share(bytes(range(256)) * 10_000) as table,
        gridengine.Executor(scheduler=scheduler) as quick,
    ):
        try:
            wide = quick.with_options(resources=Cores(2) & Memory(1) & WTime("00:10:00"))
        except gridengine.ConfigurationError as error:  # this machine has one core, say
            raise SystemExit(f"the sums of this example cannot run here: {error}") from None
        futures = [wide.submit(add_up, table, parts) for parts in range(2)]
        futures += [quick.submit(look_up, table, place) for place in range(1000, 1004)]
        for future in as_completed(futures):
            print(future.result())


if __name__ == "__main__":
    main()
