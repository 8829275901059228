"""Load a table, fit models to it, pick the best: in three forms that do the same.

`futures` hands in calls whose arguments are the results of others, `delayed` calculates with what
is not there yet, `program` is an `async def` that starts calls as it goes:

    python examples/workflow.py
    python examples/workflow.py --form program --scheduler grid_engine
"""

import argparse

import gridengine
from gridengine import delayed, each

DEGREES = range(1, 8)
Fit = tuple[float, int]


def load(rows: int) -> list[tuple[float, float]]:
    """Return points of a cubic."""
    return [(x / rows, (x / rows) ** 3 - x / rows) for x in range(-rows, rows)]


def fit(table: list[tuple[float, float]], degree: int) -> Fit:
    """Return how far the points are from a power of this degree that is fitted to them."""
    powers = sum(x ** (2 * degree) for x, _ in table)
    factor = sum(y * x**degree for x, y in table) / powers
    return sum((y - factor * x**degree) ** 2 for x, y in table), degree


def pick(fits: list[Fit]) -> int:
    """Return the degree of the best."""
    return min(fits)[1]


def futures(rows: int, scheduler: str | None) -> int:
    with gridengine.Executor(scheduler=scheduler) as executor:
        table = executor.submit(load, rows)
        fits = [executor.submit(fit, table, degree) for degree in DEGREES]
        return executor.submit(pick, fits).result()


def delayed_calls(rows: int, scheduler: str | None) -> int:
    async def main() -> int:
        table = delayed(load)(rows)
        best: int = await delayed(pick)([delayed(fit)(table, degree) for degree in DEGREES])
        return best

    return gridengine.run(main, scheduler=scheduler)  # type: ignore[no-any-return]


def program(rows: int, scheduler: str | None) -> int:
    async def main() -> int:
        table = delayed(load)(rows)
        coarse = await each(*(delayed(fit)(table, degree) for degree in list(DEGREES)[::2]))
        best = pick(coarse)
        fine = await each(*(delayed(fit)(table, degree) for degree in (best - 1, best + 1)))
        return pick([*coarse, *fine])

    return gridengine.run(main, scheduler=scheduler)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scheduler", help="processes, grid_engine, slurm or inline")
    parser.add_argument("--form", choices=["futures", "delayed", "program"], default="futures")
    arguments = parser.parse_args()
    forms = {"futures": futures, "delayed": delayed_calls, "program": program}
    best = forms[arguments.form](5_000, arguments.scheduler)
    print(f"the best degree, by {arguments.form}: {best}")


if __name__ == "__main__":
    main()
