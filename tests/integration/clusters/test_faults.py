"""What goes wrong on a batch system every day, and what must come of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.scenario import QUICK, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


# ------------------------------------------------------------------ deleted jobs


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


def test_calls_that_wait_longer_than_start_timeout_fail_with_the_cluster_s_reason(
    cluster: Cluster,
) -> None:
    # Grid Engine says what a job waits for after its scheduler's next rounds.
    seconds, words = {
        "grid_engine": (40, 'queue instance "closed.q@'),
        "slurm": (14, "PartitionDown: its partition is down"),
    }[cluster.name]
    scenario = play(
        cluster,
        f"""
scheduler = CLUSTER({cluster.closed}, start_timeout={seconds})
tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=scheduler)))
""",
    )
    told = scenario.result()
    assert told["kind"] == "WorkerNotStarted"
    reason = f"no worker has started within {seconds} s (start_timeout)"
    assert reason in told["text"]
    assert words in told["text"].partition(reason)[2]
    job = told["job"].partition(".")[0].partition("_")[0]
    wait_until(lambda: not cluster.knows(job))
