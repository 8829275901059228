"""Large data that many calls of a map are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_data_that_many_calls_are_given_is_sent_to_a_worker_once_and_may_be_filled_anew(
    cluster: Cluster,
) -> None:
    told = play(
        cluster,
        f"""
import array
import pickle

class Big:
    def __init__(self, data):
        self.data = data
    def __reduce__(self):
        return Big, (pickle.PickleBuffer(self.data),)

def look(big):
    data = memoryview(big.data).cast("B").cast("d")
    before, data[0] = data[0], -1.0
    return before, "gridengine-block" in Path("/proc/self/maps").read_text()

def refilled(big):
    for number in range(6):
        big.data[0] = number // 2
        yield big

with {cluster.scheduler}(max_workers=2) as scheduler:
    big = Big(array.array("d", [1.5]) * 1_000_000)
    same = gridengine.map(look, [big] * 8, scheduler=scheduler)
    others = gridengine.map(look, refilled(big), scheduler=scheduler)
tell(same=same, others=[value for value, _ in others])
""",
    ).result()
    assert [value for value, _ in told["same"]] == [1.5] * 8
    assert [is_mapped for _, is_mapped in told["same"]].count(False) <= 1
    assert told["others"] == [0, 0, 1, 1, 2, 2]
