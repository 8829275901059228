"""What keeps calls from running on a real cluster, brought about; what `gridengine explain` and
`top` say of it to the user: the cause, the place, the next step.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.command_line import command
from tests.support.reports import explanations_in
from tests.support.scenario import QUICK, Scenario, play
from tests.support.small_disk import small_disk, without_more_files
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

HOLD = "gridengine.map(hold, range(3), scheduler=CLUSTER({arguments}), chunksize=1)"
QUEUED = {
    ("grid_engine", "queue='closed.q'"): ("disabled", "qmod -e"),
    ("grid_engine", "native='-h'"): ("hold", "qrls"),
    ("slurm", "partition='closed'"): ("PartitionDown", "sinfo"),
    ("slurm", "native='--hold'"): ("JobHeldUser", "scontrol release"),
}
"""What the batch system says and a word of the next step, by the scheduler's arguments."""


def ask(cluster: Cluster, scenario: Scenario, *words: str) -> Any:
    """Return what a command says of a script's run, as JSON."""
    name, *others = words
    status, told = command(cluster, name, str(scenario.process.pid), *others, "--json")
    assert status == 0, told
    return json.loads(told)


def explained(cluster: Cluster, scenario: Scenario, cause: str, words: str = "") -> dict[str, str]:
    """Wait until `explain` tells of this cause in these words; return what it says."""
    told = ""
    # Process ids come again: no earlier run is meant.
    alone = {"XDG_STATE_HOME": str(cluster.folder / "state")}

    def look() -> dict[str, str] | None:
        nonlocal told
        pid = str(scenario.process.pid)
        status, told = command(cluster, "explain", pid, "--json", environment=alone)
        found = json.loads(told) if status == 0 else []
        return next((one for one in found if one["cause"] == cause and words in one["text"]), None)

    try:
        return dict(wait_until(look))
    except AssertionError as error:
        raise AssertionError(f"{told}\n{scenario.errors}") from error


def told_everywhere(cluster: Cluster, scenario: Scenario, told: dict[str, str]) -> None:
    """Wait until `top` and `report` tell of a cause too, with the next step: its figures change."""
    path = scenario.folder / "report.html"

    def are_told() -> bool:
        shown = ask(cluster, scenario, "top", "--once")["explanations"]
        steps = [one["next_step"] for one in shown if one["cause"] == told["cause"]]
        status, words = command(cluster, "report", str(scenario.process.pid), "-o", str(path))
        assert status == 0, words
        found = explanations_in(path.read_text())
        return bool(steps) and all(step in found for step in steps)

    wait_until(are_told)


def end(scenario: Scenario) -> None:
    scenario.go()
    scenario.process.terminate()
    scenario.end()


@pytest.mark.parametrize(
    ("cluster", "arguments"),
    [pytest.param(*one, marks=getattr(pytest.mark, one[0])) for one in QUEUED],
    indirect=["cluster"],
)
def test_the_reason_why_a_job_is_queued_is_told(cluster: Cluster, arguments: str) -> None:
    words, step = QUEUED[cluster.name, arguments]
    scenario = play(cluster, HOLD.format(arguments=arguments))
    try:
        told = explained(cluster, scenario, "queued", words)
        assert re.match(r"[23] calls wait: ", told["text"])
        assert told["place"].split(".")[0].split("_")[0] in cluster.jobs()
        assert step in told["next_step"]
        told_everywhere(cluster, scenario, told)
        launches = ask(cluster, scenario, "top", "--once")["status"]["launches"]
        assert sum(one["queued"] for one in launches) > 0
    finally:
        end(scenario)


NO_LOGS = """
def call(index):
    Path(FOLDER, "there").touch()
    while not Path(FOLDER, "full").exists():
        time.sleep(0.02)

SCHEDULER = CLUSTER(max_workers=2)
gridengine.map(call, range(1), scheduler=SCHEDULER)
others = gridengine.Memory(0.3)
gridengine.map(abs, range(1), scheduler=SCHEDULER, resources=others, reraise=False)
hold(0)
"""


def test_workers_whose_logs_cannot_be_made_are_told(cluster: Cluster) -> None:
    with small_disk(cluster.folder / "small", owner=cluster.user.pw_uid) as small:
        scenario = play(
            cluster, NO_LOGS, environment={**QUICK, "GRIDENGINE_RUN_DIRECTORY": str(small)}
        )
        try:
            wait_until((scenario.folder / "there").exists)
            with without_more_files(small):
                (scenario.folder / "full").touch()
                told = explained(cluster, scenario, "failures", "WorkerNotStarted")
                assert "`quota`" in told["next_step"]
                explained(cluster, scenario, "disk", "no more files can be made")
                told_everywhere(cluster, scenario, told)
        finally:
            end(scenario)
