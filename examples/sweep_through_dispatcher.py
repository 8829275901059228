"""A sweep through a dispatcher of its own: kill this script, run it again, and it goes on.

With a dispatcher that stands on its own, and stays when this script has ended:

    gridengine dispatcher start sweeps --scheduler slurm --max-workers 200
    python examples/sweep_through_dispatcher.py sweeps

Without a name one is started on this machine for as long as this takes. The run has a name: its
results are kept, and a second time only what has changed is simulated.
"""

import argparse
import contextlib
import random

import gridengine


def simulate(rate: float, seed: int) -> float:
    """Return where a random walk that is drawn back at this rate is after 10,000 steps."""
    dice, place = random.Random(seed), 0.0
    for _ in range(10_000):
        place += dice.gauss(0, 1) - rate * place
    return place


def spread(places: list[float]) -> float:
    """Return the mean square."""
    return sum(place * place for place in places) / len(places)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sweep through a dispatcher of its own.")
    parser.add_argument("dispatcher", nargs="?", help="its name (default: one for this script)")
    parser.add_argument("--journal", help="the folder for the results (default: the run directory)")
    options = parser.parse_args()
    rates, seeds = [0.01, 0.1, 1.0], range(20)
    with contextlib.ExitStack() as stack:
        address = options.dispatcher
        if address is None:
            address = stack.enter_context(gridengine.LocalDispatcher()).address
        client = stack.enter_context(gridengine.Client(address))
        calls = [(rate, seed) for rate in rates for seed in seeds]
        places = gridengine.starmap(
            simulate, calls, scheduler=client, name="walks", journal=options.journal
        )
    for number, rate in enumerate(rates):
        some = places[number * len(seeds) : (number + 1) * len(seeds)]
        print(f"rate {rate}: mean square {spread(some):.2f}")


if __name__ == "__main__":
    main()
