"""What calls on a batch system log and warn of comes to their caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.clusters import SLOW

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

SCRIPT = """
import logging, sys, warnings
import gridengine

def speak(number):
    logging.getLogger("model").info("number %d", number)
    warnings.warn("beware")

if __name__ == "__main__":
    form = "%(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stdout)
    logging.getLogger("gridengine").setLevel(logging.WARNING)
    gridengine.map(speak, range(5), forward_logging=True)
"""


def test_a_map_has_said_all_when_it_returns(cluster: Cluster) -> None:
    done = cluster.run(SCRIPT)
    lines = [line for line in done.stdout.splitlines() if not SLOW.search(line)]
    assert sorted(line.partition(" on ")[0] for line in lines) == [
        f"INFO model number {n} [call {n} of speak" for n in range(5)
    ]
    assert "UserWarning: beware [call " in done.stderr
