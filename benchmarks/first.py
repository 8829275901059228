"""From the interpreter's start to the first results: `python -m benchmarks.first PLACE WORKERS
CALLS BEGAN OUT`.

BEGAN is the monotonic clock, one for the whole machine, at the moment before this process was
started. As little as can be is imported.
"""

import sys
import time
from importlib import import_module

from benchmarks.workloads import noop


def main() -> None:
    place, workers, calls, began, out = sys.argv[1:]
    module, kind = place.split(":")
    peer = getattr(import_module(f"benchmarks.peers.{module}"), kind)(int(workers))
    numbers = range(int(calls))
    got = peer.map(noop, numbers)
    seconds = time.monotonic() - float(began)
    assert list(got) == list(numbers), "wrong results"
    with open(out, "w") as file:
        file.write(f'{{"figures": [{{"seconds": {seconds}}}]}}')
    peer.close()


if __name__ == "__main__":
    main()
