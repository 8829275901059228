"""What an executor on a batch system does as `ProcessPoolExecutor` does, and says of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_an_exception_says_which_call_raised_it_and_in_which_cluster_job(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
import traceback

def risky(x):
    if x < 0:
        raise ValueError(os.uname().nodename, first_of(JOB))
    return x

with CLUSTER(max_workers=1) as scheduler:
    try:
        gridengine.map(risky, [2.0] * 190 + [-1.5, 3.0], scheduler=scheduler)
    except ValueError as error:
        shown, (host, job) = "".join(traceback.format_exception(error)), error.args
        done = [one for one in error.results if isinstance(one, float)]
        tell(notes=error.__notes__, shown=shown, host=host, job=job, done=done[:190])
""",
    ).result()
    [note] = told["notes"]
    words = f"call 190 of risky, argument -1.5, on {told['host']}, cluster job {told['job']}"
    assert note.startswith(words)
    assert told["shown"].count(note) == 1
    assert "RemoteTraceback" in told["shown"]
    assert told["done"] == [2.0] * 190


def test_a_process_makes_as_many_calls_as_it_may(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
def pid(_):
    return os.getpid()

def fail():
    raise OSError("no scratch")

with CLUSTER(max_workers=1) as scheduler:
    with gridengine.Executor(scheduler=scheduler, max_tasks_per_child=2) as executor:
        pids = list(executor.map(pid, range(12)))
    with gridengine.Executor(scheduler=scheduler, initializer=fail) as broken:
        first = facts_of(lambda: broken.submit(pid, 1).result())
        second = facts_of(lambda: broken.submit(pid, 1))
tell(pids=pids, kinds=[first["kind"], second["kind"]], text=second["text"])
""",
    ).result()
    assert max(told["pids"].count(pid) for pid in told["pids"]) == 2
    assert told["kinds"] == ["BrokenProcessPool"] * 2
    assert "no scratch" in told["text"]
