"""How many workers a scheduler of a real batch system keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

from tests.support.scenario import play

KEPT = """
import time
from gridengine.client.connect import dispatcher_of

def settled(workers):
    while dispatcher.snapshot().workers != workers:
        time.sleep(0.1)

with CLUSTER(min_workers=2, max_workers=3) as scheduler:
    first = gridengine.map(abs, [-1], scheduler=scheduler)
    dispatcher = dispatcher_of(scheduler)
    settled(2)
    dispatcher.scale(1, 1)
    settled(1)
    dispatcher.scale(None, None)
    settled(2)
    last = gridengine.map(abs, [-2], scheduler=scheduler)
tell(first=first, last=last)
"""


def test_the_least_workers_come_without_calls_and_leave_when_there_are_to_be_fewer(
    cluster: Cluster,
) -> None:
    assert play(cluster, KEPT).result(300) == {"first": [1], "last": [2]}
