"""A parameter sweep: fit a line by gradient descent at several learning rates.

Shows `partial`, which fixes parameters and names the fit after them; `controller.push`, by which a
job tells of its progress while it runs; and `reraise=False`, which keeps the good results when some
diverge:

    python examples/sweep.py
    python examples/sweep.py --scheduler grid_engine
"""

import argparse
from typing import Any, NamedTuple

import gridengine

POINTS = [(x / 10, 3 * x / 10 - 1) for x in range(-20, 21)]


class Fit(NamedTuple):
    slope: float
    offset: float
    loss: float


class Diverged(Exception):
    def __init__(self, rate: float, step: int) -> None:
        super().__init__(f"at rate {rate} the loss had grown without bound by step {step}")
        self.rate = rate
        self.step = step


def fit(rate: float, momentum: float, steps: int = 200, controller: Any = None) -> Fit:
    """Fit a line to `POINTS`; with a controller, push the loss every 50 steps."""
    slope = offset = slope_change = offset_change = loss = 0.0
    for step in range(1, steps + 1):
        errors = [(slope * x + offset - y, x) for x, y in POINTS]
        loss = sum(error * error for error, _ in errors) / len(errors)
        if loss > 1e6:
            raise Diverged(rate, step)
        slope_change = momentum * slope_change - rate * 2 * sum(
            error * x for error, x in errors
        ) / len(errors)
        offset_change = momentum * offset_change - rate * 2 * sum(
            error for error, _ in errors
        ) / len(errors)
        slope, offset = slope + slope_change, offset + offset_change
        if controller is not None and step % 50 == 0:
            controller.push((step, loss))
    return Fit(slope, offset, loss)


def sweep(scheduler: Any) -> None:
    """Fit at many rates; those that diverge have their exception in their place."""
    rates = [0.001, 0.01, 0.1, 0.3, 3.0]
    for rate, result in zip(
        rates,
        gridengine.map(
            gridengine.partial(fit, momentum=0.5), rates, scheduler=scheduler, reraise=False
        ),
        strict=True,
    ):
        if isinstance(result, Diverged):
            print(f"rate {rate}: {result}")
        else:
            print(
                f"rate {rate}: y = {result.slope:.3f} x + {result.offset:.3f}, loss "
                f"{result.loss:.2g}"
            )


def watch(scheduler: Any) -> None:
    """Run two fits as jobs, and tell how each goes while it runs."""
    fits = [gridengine.partial(fit, 0.1, momentum) for momentum in (0.0, 0.9)]
    jobs = [gridengine.Job(target=each, name=each.__name__, scheduler=scheduler) for each in fits]  # type: ignore[attr-defined]
    for job in jobs:
        job.start()
    for job in jobs:
        for step, loss in job.messages():
            print(f"{job.name}: loss {loss:.2g} after {step} steps")
        print(f"{job.name}: {job.result()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Sweep over learning rates.")
    parser.add_argument(
        "--scheduler",
        help="where the fits run: processes, grid_engine, slurm or inline (default: the best)",
    )
    options = parser.parse_args()
    sweep(options.scheduler)
    watch(options.scheduler)


if __name__ == "__main__":
    main()
