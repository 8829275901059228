"""Square numbers: in a loop, on this machine's processes, on a cluster. The same function, the same
line.

python examples/square.py
python examples/square.py --scheduler grid_engine
"""

import argparse

import gridengine


def square(x: int) -> int:
    return x * x


def main() -> None:
    parser = argparse.ArgumentParser(description="Square numbers, serially and mapped.")
    parser.add_argument(
        "--scheduler",
        help="where the calls run: processes, grid_engine, slurm or inline (default: the best)",
    )
    parser.add_argument("--count", type=int, default=1000, help="how many numbers (default: 1000)")
    options = parser.parse_args()

    serial = list(map(square, range(options.count)))
    mapped = gridengine.map(square, range(options.count), scheduler=options.scheduler)

    print(f"the first squares: {mapped[:10]}")
    print(f"the sum of all {len(mapped)}: {sum(mapped)}")
    if mapped != serial:
        raise SystemExit("the mapped squares are not the serial ones")


if __name__ == "__main__":
    main()
