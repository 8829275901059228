"""Searches for near misses of Fermat's last theorem, with the interface of `concurrent.futures`.

Shows `submit` and `as_completed`, stopping when enough is known (`cancel` for calls that wait,
`kill` for those that run), and options for some calls:

    python examples/executor.py
    python examples/executor.py --scheduler grid_engine
"""

import argparse
from concurrent.futures import as_completed

import gridengine

LARGEST = 120


def nearest_miss(x: int, power: int = 3) -> tuple[float, str]:
    """Return how close x**n + y**n comes to a whole number's power, over all y up to x; and the
    numbers.
    """
    best = 1.0, ""
    for y in range(2, x + 1):
        total = x**power + y**power
        z = round(total ** (1 / power))
        miss = abs(total - z**power) / total
        if miss and miss < best[0]:
            best = miss, f"{x}^{power} + {y}^{power} = {total}, and {z}^{power} = {z**power}"
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", help="processes, grid_engine, slurm or inline")
    with gridengine.Executor(scheduler=parser.parse_args().scheduler) as executor:
        futures = [executor.submit(nearest_miss, x) for x in range(2, LARGEST)]
        found = sorted(future.result() for future in as_completed(futures))
        print(f"the nearest of {len(found)}: {found[0][1]}")

        patient = executor.with_options(timeout=600, retries=0)
        fourth_powers = [patient.submit(nearest_miss, x, power=4) for x in range(2, LARGEST)]
        for future in as_completed(fourth_powers):
            miss, words = future.result()
            if miss < 1e-3:
                print(f"near enough: {words}")
                break
        for future in fourth_powers:
            if not future.cancel() and not future.done():
                executor.kill(future)
        print("of the fourth powers all are done, cancelled or killed")


if __name__ == "__main__":
    main()
