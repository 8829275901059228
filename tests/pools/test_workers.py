"""Calls on the HTCondor and the OAR that `schedulers/*/up` bring up, and what goes wrong there:
what no other place has. What every place promises is in `tests/contract`.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.support.clusters import OAR, HTCondor
from tests.support.launching import run
from tests.support.pools import processes
from tests.support.scenario import QUICK, Scenario, bring_up, play
from tests.support.waiting import wait_until

GetPlace = Callable[[str], Any]


@pytest.fixture
def htcondor(_get_place: GetPlace) -> HTCondor:
    """The HTCondor of this machine."""
    found: HTCondor = _get_place("htcondor")
    found.wait_until_ready()
    return found


@pytest.fixture
def oar(_get_place: GetPlace) -> OAR:
    """The OAR of this machine."""
    found: OAR = _get_place("oar")
    found.wait_until_ready()
    return found


HOLD = """
scheduler = CLUSTER(max_workers=1)
results = gridengine.map(hold, [0], scheduler=scheduler, retries=1)
tell(results=results)
"""


def again(scenario: Scenario) -> dict[str, Any]:
    """Wait until the call runs a second time, let it go on, and return what the script told."""
    scenario.began(2)
    scenario.go()
    return scenario.result()


@pytest.mark.htcondor
@pytest.mark.parametrize("command", ["condor_vacate_job", "condor_hold"])
def test_a_call_of_an_evicted_or_held_job_runs_again_elsewhere_and_the_job_goes(
    htcondor: HTCondor, command: str
) -> None:
    scenario = play(htcondor, HOLD)
    [call] = scenario.began(1)
    htcondor.command(command, call.job)
    assert again(scenario)["results"] == [0]
    wait_until(lambda: not htcondor.knows(call.job))
    assert len({one.job for one in scenario.begun()}) == 2


FAULTS = """
launcher = make_launcher(WORKER, **GIVEN)
handles = launcher.launch(1)
[report] = wait_for(launcher, handles, seconds=200).values()
launcher.close()
tell(fault=report.fault and report.fault.__name__, reason=report.reason, deleted=report.deleted)
"""
HUNGRY = "exec /usr/bin/python3 -c 'import time; x = b\"x\" * 500_000_000; time.sleep(600)'"


def fault(place: Any, worker: str, given: str) -> dict[str, Any]:
    return run(place, f"WORKER, GIVEN = {worker!r}, dict({given})\n{FAULTS}", seconds=300)


@pytest.mark.htcondor
@pytest.mark.parametrize(
    ("worker", "given", "kind", "words"),
    [
        (HUNGRY, "request_memory=100", "OutOfMemory", "memory usage exceeded"),
        ("exec sleep 600", "allowed_job_duration=3", "TimeoutError", "allowed job duration"),
    ],
)
def test_a_job_of_htcondor_over_its_limits_says_over_which(
    htcondor: HTCondor, worker: str, given: str, kind: str, words: str
) -> None:
    told = fault(htcondor, worker, given)
    assert (told["fault"], told["deleted"]) == (kind, False)
    assert words in told["reason"]


@pytest.mark.oar
def test_a_job_of_oar_over_its_walltime_says_so(oar: OAR) -> None:
    told = fault(oar, "trap '' TERM; sleep 600 & wait; wait", "walltime='0:0:20'")
    assert (told["fault"], told["deleted"]) == ("TimeoutError", False)
    assert "it reached its walltime" in told["reason"]


@pytest.mark.htcondor
def test_an_impossible_request_is_an_error_that_names_the_condition(htcondor: HTCondor) -> None:
    script = """
scheduler = CLUSTER()
tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=scheduler,
    resources=gridengine.GPUs(5))))
"""
    told = play(htcondor, script).result()
    assert told["kind"] == "SubmissionRefused"
    assert "no slot has TARGET.GPUs >= RequestGPUs" in told["text"]
    assert "request_gpus=5" in told["text"]


@pytest.mark.htcondor
def test_a_run_outlives_a_schedd_that_is_killed(htcondor: HTCondor) -> None:
    scenario = play(htcondor, HOLD)
    scenario.began(1)
    names = {pid: psutil.Process(pid).name() for pid in processes("htcondor")}
    [schedd] = [pid for pid, name in names.items() if name == "condor_schedd"]
    os.kill(schedd, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(schedd))
    htcondor.wait_until_ready()
    scenario.go()
    assert scenario.result()["results"] == [0]


@pytest.mark.oar
def test_a_run_outlives_a_server_that_is_killed(oar: OAR) -> None:
    scenario = play(oar, HOLD)
    scenario.began(1)
    for pid in processes("oar"):
        if psutil.pid_exists(pid) and "Almighty" in " ".join(psutil.Process(pid).cmdline()):
            os.kill(pid, signal.SIGKILL)
    bring_up("oar")
    scenario.go()
    assert scenario.result()["results"] == [0]


IN_A_JOB = """
import gridengine, json, sys
scheduler = gridengine.current_scheduler()
told = {"kind": type(scheduler).__name__, "slots": scheduler.slots}
told["results"] = gridengine.map(abs, [-1, -2])
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    "place",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("htcondor", "oar")],
)
def test_inside_a_job_calls_run_on_its_cores(place: str, request: pytest.FixtureRequest) -> None:
    cluster = request.getfixturevalue(place)
    asked = "request_cpus=1" if place == "htcondor" else "resource='nodes=1/core=1'"
    worker = f"exec {shlex.quote(cluster.python)} -c {shlex.quote(IN_A_JOB)}"
    told = run(
        cluster,
        f"""
launcher = make_launcher({worker!r}, {asked})
handles = launcher.launch(1)
wait_for(launcher, handles)
launcher.close()
tell(**json.loads(Path(handles[0].log).read_text().splitlines()[-1]))
""",
        environment=QUICK,
    )
    assert told == {"kind": "ProcessScheduler", "slots": 1, "results": [1, 2]}
