"""What calls ask for, as a real Grid Engine understood it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.launching import run

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine

SETTINGS = """
Path("gridengine.toml").write_text('''
[grid_engine]
gpus = "-l gpu={per_slot}"
tokens.ours = "-q *@@allhosts"
''')
from gridengine.resources import Cores, GPUs, Memory, Token, WTime
from gridengine.resources.demand import Demand
"""
ASKING = """
handles = launcher.launch(1, demand)
wait_for(launcher, handles)
launcher.close()
tell(job=handles[0].id, log=Path(handles[0].log).read_text())
"""


def test_a_demand_reaches_the_cluster_task(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        f"""{SETTINGS}
launcher = make_launcher('echo $NSLOTS $(ulimit -v); qstat -j $JOB_ID')
demand = Demand(Cores(2) & Memory(1) & WTime(600, softT=300) & GPUs(2) & Token("ours"))
{ASKING}""",
    )
    slots, kilobytes, rest = told["log"].split(maxsplit=2)
    assert (slots, kilobytes) == ("2", str(2**20))
    asked = re.search(r"^hard resource_list: +(\S+)", rest, flags=re.MULTILINE)
    assert asked is not None
    assert set(asked[1].split(",")) == {"h_vmem=512M", "h_rt=660", "s_rt=360", "gpu=1"}
    assert re.search(r"^parallel environment: +smp range: 2$", rest, flags=re.MULTILINE)
    assert re.search(r"^hard_queue_list: +\*@@allhosts", rest, flags=re.MULTILINE)


def test_an_option_in_quotes_arrives_whole(grid_engine: GridEngine) -> None:
    told = run(
        grid_engine,
        f"""{SETTINGS}
native = '-ac note="two words",path=a\\\\b'
launcher = make_launcher('qstat -j $JOB_ID', native=native)
demand = Demand()
{ASKING}""",
    )
    context = re.search(r"^context: +(.+)$", told["log"], flags=re.MULTILINE)
    assert context is not None
    assert {"note=two words", "path=a\\b"} <= set(context[1].split(","))


def test_a_shell_that_runs_the_command_finds_it_in_a_folder_with_blanks(
    grid_engine: GridEngine,
) -> None:
    folder = grid_engine.folder / "it's my home"
    script = """
import gridengine
with gridengine.GridEngineScheduler(native="-shell y", max_workers=1) as scheduler:
    print(gridengine.map(abs, [-1], scheduler=scheduler))
"""
    environment = {"GRIDENGINE_RUN_DIRECTORY": str(folder)}
    assert grid_engine.run(script, environment=environment).stdout == "[1]\n"


def test_calls_whose_jobs_grid_engine_does_not_have_are_an_error(grid_engine: GridEngine) -> None:
    """As with an option, or a rule of the site, by which jobs are checked only."""
    script = """
import gridengine
from gridengine.schedulers.grid_engine import launcher, options
options.check_submits = lambda words: None
launcher.UNKNOWN_SECONDS = 0.5
with gridengine.GridEngineScheduler(native="-w v", max_workers=3) as scheduler:
    try:
        gridengine.map(abs, range(3), scheduler=scheduler, chunksize=1)
    except gridengine.WorkerNotStarted as error:
        print(error)
"""
    told = grid_engine.run(script, environment={"GRIDENGINE_POLL_SECONDS": "0.5"}).stdout
    assert "Grid Engine does not have this job, to which it gave the number " in told
    assert "`qstat -j " in told


def test_the_limits_of_a_task_that_was_killed_are_those_that_its_demand_made(
    grid_engine: GridEngine,
) -> None:
    told = run(
        grid_engine,
        f"""{SETTINGS}
crash = "import os; os.kill(os.getpid(), 11)"
launcher = make_launcher(f'exec {{sys.executable}} -c "{{crash}}"')
handles = launcher.launch(1, Demand(Cores(2) & Memory(8)))
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
tell(reason=report.reason, fault=report.fault and report.fault.__name__)
""",
    )
    assert "its limits: h_vmem=4G" in told["reason"]
    assert told["fault"] is None


def test_a_call_goes_on_after_its_soft_limit_is_announced(grid_engine: GridEngine) -> None:
    """Grid Engine signals each process of the job."""
    script = """
import signal, gridengine

def wait_for_announcement(x):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    return signal.sigtimedwait([signal.SIGUSR1], 100) is not None

with gridengine.GridEngineScheduler(s_rt="00:00:15", max_workers=1) as scheduler:
    announced = gridengine.map(wait_for_announcement, [0], scheduler=scheduler, retries=0)
    print(announced, gridengine.map(abs, [-1], scheduler=scheduler))
"""
    assert grid_engine.run(script, seconds=150).stdout == "[True] [1]\n"
