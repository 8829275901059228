"""`gridengine page` on a run on a cluster: what browsers are fed, as the plain user."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psutil

from tests.support.command_line import command, start_command
from tests.support.page_server import PageServer
from tests.support.scenario import QUICK, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

SCRIPT = """
def call(index):
    print(f"call {index} prints this", flush=True)
    if index == 3:
        raise ValueError("three is bad")
    return hold(index) if index == 5 else index

gridengine.map(call, range(6), scheduler=CLUSTER(max_workers=1), chunksize=1, reraise=False)
"""


def test_the_page_is_fed_with_a_run_on_a_cluster(cluster: Cluster) -> None:
    scenario = play(cluster, SCRIPT, environment={**QUICK, "GRIDENGINE_BEAT_SECONDS": "0.2"})
    [call] = scenario.began(1)
    job = cluster.worker_id(call)
    name = str(scenario.process.pid)
    wait_until(lambda: command(cluster, "explain", name)[0] == 0)  # it is watched a little later
    server = PageServer(start_command(cluster, "page", name))
    assert psutil.Process(server.process.pid).uids().real == cluster.user.pw_uid

    def told(path: str) -> Any:
        status, text = server.ask(path)
        assert status == 200, text
        return json.loads(text.removeprefix("data: "))

    def cells(view: str) -> list[list[str]]:
        return [row["cells"] for row in told(f"/rows/{view}")["rows"]]

    ended = {"done": 4, "failed": 1, "running": 1, "waiting": 0}
    overview = wait_until(lambda: (found := told("/events"))["calls"] == ended and found)
    assert overview["workers"]["busy"] == 1
    causes = {one["cause"]: one["text"] for one in overview["explanations"]}
    assert f"(cluster job {job})" in causes["running"]
    [worker] = cells("workers")
    assert job in worker
    [running] = cells("calls")
    assert {"call 5 of call", job} <= set(running)
    [failure] = cells("failures")
    assert "ValueError: three is bad" in failure
    assert cells("causes")[0][:3] == ["1", "ValueError: three is bad", "call 3 of call"]
    [log] = told("/logs")
    assert "call 5 prints this" in server.ask(f"/logs/{log}")[1]
    assert server.ask("/rows/workers", Authorization="Bearer wrong")[0] == 403
    assert server.ask("/drain", {"hosts": [worker[0]]}, Origin=server.origin)[0] == 404
    assert server.end() == 130
    scenario.go()
    assert scenario.end() == 0
