"""Calls that make calls on a batch system: on the workers that there are, to any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_calls_of_another_request_have_workers_of_their_own_though_all_others_wait(
    cluster: Cluster,
) -> None:
    told = play(
        cluster,
        """
def outer(x):
    return gridengine.map(inner, [x, x + 1], resources=gridengine.WTime(600))

def inner(x):
    return x, first_of(JOB)

def own(x):
    return first_of(JOB)

with CLUSTER(max_workers=1) as scheduler:
    [mine] = gridengine.map(own, [0], scheduler=scheduler)
    told = gridengine.map(outer, range(4), scheduler=scheduler)
tell(values=[[x for x, _ in one] for one in told], mine=mine,
     jobs=sorted({job for one in told for _, job in one}))
""",
    ).result()
    assert told["values"] == [[x, x + 1] for x in range(4)]
    assert told["mine"] not in told["jobs"]
