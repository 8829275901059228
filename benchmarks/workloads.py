"""What the workers are given to do. NumPy is imported where it is used: the start of an interpreter
is measured too.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

GATE = "GRIDENGINE_BENCH_GATE"
ARRAY_BYTES = 100_000_000
BLOCK_BYTES = 10_000_000
SHARES = 20
PARTS = 100


def noop(x: object) -> object:
    return x


def inc(x: int) -> int:
    return x + 1


def add(x: int, y: int) -> int:
    return x + y


def add_three(x: int, y: int, z: int) -> int:
    return x + y + z


def gated(x: object) -> object:
    """Return when the file named by `GATE` exists."""
    while not os.path.exists(os.environ[GATE]):  # noqa: PTH110  (pathlib is slow to import)
        time.sleep(0.005)
    return x


def lasting(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def timed_sleep(seconds: float) -> float:
    """Sleep for so long, and return how long it was: the system adds its own."""
    began = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - began


def skewed() -> list[float]:
    """Return the seconds of 200 calls: 190 of 5 ms and ten neighbours of 500 ms, which equal chunks
    of the calls do not part.
    """
    return [0.005] * 50 + [0.5] * 10 + [0.005] * 140


def share_of(array: NDArray[Any], number: int) -> float:
    """Read a twentieth of the array."""
    size = len(array) // SHARES
    return float(array[number * size : (number + 1) * size].sum())


def small_array(x: object) -> NDArray[Any]:
    """Have NumPy imported where this is called, and where its result arrives."""
    import numpy

    return numpy.full(1, x)


def block(number: int) -> NDArray[Any]:
    import numpy

    return numpy.full(BLOCK_BYTES // 8, number)


def double_block(number: int) -> NDArray[Any]:
    import numpy

    return numpy.full(BLOCK_BYTES // 4, number)


def last_of(array: NDArray[Any]) -> int:
    return int(array[-1])


def large_array(number: int) -> NDArray[Any]:
    import numpy

    return numpy.full(ARRAY_BYTES // 8, float(number))


def doubled(array: NDArray[Any]) -> NDArray[Any]:
    return array * 2


def mean_of(array: NDArray[Any]) -> float:
    return float(array.mean())


def sum_of(*numbers: float) -> float:
    return sum(numbers)


def random_array() -> NDArray[Any]:
    """Return an array unlike any before, so that nothing that was kept of another serves. Its sum
    is exact: it holds whole numbers.
    """
    import numpy

    generator = numpy.random.default_rng()
    array = numpy.empty(ARRAY_BYTES // 8)
    for part in numpy.split(
        array, PARTS
    ):  # at once, it would need twice the memory, and that would be the peak that is seen
        part[:] = generator.integers(0, 1000, len(part))
    return array
