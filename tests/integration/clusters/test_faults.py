"""What goes wrong on a batch system every day, and what must come of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.scenario import QUICK, play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


# ------------------------------------------------------------------ workers that do not come


def test_a_host_that_nodes_do_not_reach_is_named_with_the_addresses(cluster: Cluster) -> None:
    scenario = play(
        cluster,
        """
scheduler = lambda: CLUSTER(max_workers=1)
said = facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler))
logs = list(Path(said["log"]).parent.glob("worker.*.log"))
tell(kept=Path(said["log"]).read_text(), workers=len(logs), **said)
""",
        # An address for documentation, which nobody has (RFC 5737).
        environment={**QUICK, "GRIDENGINE_HOST": "192.0.2.1", "GRIDENGINE_START_SECONDS": "24"},
    )
    told = scenario.result(150)
    assert told["kind"] == "WorkerNotStarted"
    assert re.search(r"never connected within 24 s to tcp://192.0.2.1:\d+ \(.+\)", told["text"])
    assert re.search(r"its worker gets no answer at tcp://192.0.2.1:\d+ \(.+\)", scenario.errors)
    assert told["workers"] == 1
    assert "GRIDENGINE_HOST" in told["hint"]
    assert "firewall" in told["hint"]
    assert "gets no answer of its dispatcher: tcp://192.0.2.1:" in told["log_tail"]
    assert told["log_tail"] in told["kept"]
