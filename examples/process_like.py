"""A script for `multiprocessing.Process`, with one line changed.

Estimates pi by several processes and tells how each of them ended. The line that was

    from multiprocessing import Process

is now

    from gridengine import Job as Process

and `scheduler=` says where, if not where it is best:

    python examples/process_like.py --scheduler grid_engine
"""

import argparse
import os
import random
import sys

from gridengine import Job as Process


def throw_darts(seed: int, count: int = 200_000) -> None:
    dice = random.Random(seed)
    inside = sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(count))
    print(f"process {os.getpid()} finds pi to be {4 * inside / count:.4f}")


def give_up(code: int) -> None:
    sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description="Estimate pi by processes that may run elsewhere.")
    parser.add_argument(
        "--scheduler",
        help="where they run: processes, grid_engine, slurm or inline (default: the best)",
    )
    scheduler = parser.parse_args().scheduler

    processes = [
        Process(target=throw_darts, args=(seed,), scheduler=scheduler) for seed in range(4)
    ]
    processes.append(Process(target=give_up, args=(3,), name="quitter", scheduler=scheduler))
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        # What a process prints on another machine is with its job; here it comes to the
        # terminal as well.
        print(
            f"{process.name} ended with exit code {process.exitcode}, having printed: "
            f"{process.stdout().strip() or 'nothing'}"
        )


if __name__ == "__main__":
    main()
