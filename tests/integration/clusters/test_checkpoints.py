"""Calls that outlive the jobs of a batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.scenario import Scenario, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine, Slurm
    from tests.support.places import Place

COUNTS = """
def counts(index, folder=str(FOLDER)):
    '''Count until there is `go`; return where each attempt began.'''
    done, attempts = gridengine.saved() or (0, [])
    attempts.append(done)
    where = f"{index} {os.getpid()} {first_of(JOB)} {first_of(TASK)}"
    Path(folder, f"began {where}").touch()
    while not Path(folder, "go").exists():
        done += 1
        if gridengine.checkpoint(5):
            gridengine.save((done, attempts))
            raise gridengine.Interrupted
        time.sleep(0.02)
    return attempts

"""


def begin(place: Place, options: str) -> Scenario:
    """Have one call count, which is never retried, and has asked whether it must stop."""
    text = f"scheduler=CLUSTER(max_workers=1{options})"
    scenario = play(place, f"{COUNTS}tell(results=gridengine.map(counts, [0], {text}, retries=0))")
    scenario.began(1)
    return scenario


def check(scenario: Scenario, count: int) -> None:
    """The call has begun so often, and each time where it had stopped."""
    scenario.began(count)
    scenario.go()
    [attempts] = scenario.result()["results"]
    assert len(attempts) == count
    assert attempts == sorted(set(attempts))
    assert len({one.id for one in scenario.begun()}) == count


@pytest.mark.slurm
def test_a_call_goes_on_where_another_job_has_taken_the_place_of_its_own(slurm: Slurm) -> None:
    scenario = begin(slurm, ", partition='low', mem='6000M'")
    with slurm.preempting(scenario.begun()[-1]):
        scenario.began(2)
    check(scenario, 2)


@pytest.mark.slurm
def test_a_call_goes_on_when_slurm_signals_requeues_and_cancels_its_job(slurm: Slurm) -> None:
    scenario = begin(slurm, ", requeue=True")
    slurm.administer("scancel", "--full", "--signal=TERM", scenario.begun()[-1].id)
    scenario.began(2)
    slurm.administer("scontrol", "requeue", scenario.begun()[-1].id)
    scenario.began(3)
    slurm.administer("scancel", scenario.begun()[-1].id)
    check(scenario, 4)


@pytest.mark.grid_engine
def test_a_call_goes_on_when_grid_engine_gives_notice_of_its_job_s_end(
    grid_engine: GridEngine,
) -> None:
    scenario = begin(grid_engine, ", native='-notify'")
    for count in (2, 3):
        grid_engine.delete_worker(scenario.begun()[-1])
        scenario.began(count)
    check(scenario, 3)
    wait_until(lambda: not grid_engine.knows(scenario.begun()[-1].job), 100)


@pytest.mark.grid_engine
def test_a_call_outlives_jobs_of_grid_engine_whose_time_is_over(grid_engine: GridEngine) -> None:
    check(begin(grid_engine, ", h_rt=20"), 3)
