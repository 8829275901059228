"""Calls that need the results of others, on a batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_a_workflow_loads_fits_and_picks_and_says_how_it_fails(cluster: Cluster) -> None:
    told = play(
        cluster,
        """
import dataclasses

import numpy
import psutil

@dataclasses.dataclass
class Table:
    rows: object

def load(size):
    return Table(numpy.arange(size))

def fit(table, alpha):
    assert type(table) is Table
    table.rows[0] += 1  # an array of its own
    return abs(float(table.rows.sum()) - alpha), alpha, int(table.rows[0])

def fit_after_a_loss(table, mark):
    if not Path(mark).exists():
        Path(mark).touch()
        runner = psutil.Process()
        server = runner.parent()
        server.parent().kill()  # the worker
        server.kill()
        runner.kill()
        time.sleep(60)
    return int(table.rows.sum())

def pick(fits):
    return min(fits)[1:]

def fail(name):
    raise OSError("no " + name)

SIZE = 200_000
TOTAL = SIZE * (SIZE - 1) // 2

with CLUSTER(max_workers=2) as scheduler:
    with gridengine.Executor(scheduler=scheduler) as executor:
        table = executor.submit(load, SIZE)
        fits = [executor.submit(fit, table, TOTAL + alpha) for alpha in range(8)]
        best = executor.submit(pick, fits)
        bad = executor.submit(pick, [fits[0], executor.submit(fit, executor.submit(fail, "x"), 1)])
        mapped = gridengine.map(fit, [table] * 3, range(3), scheduler=scheduler)
        error = bad.exception()
        facts = dict(kind=type(error).__name__, args=error.args, notes=error.__notes__)
        again = executor.submit(fit_after_a_loss, table, str(FOLDER / "mark"))
        job = Job(target=fit, args=(table,), kwargs={"alpha": again}, scheduler=scheduler)
        job.start()
        facts.update(again=again.result() - TOTAL, of_job=job.result()[1] - TOTAL)
        tell(best=best.result(), mapped=[one[1] for one in mapped], **facts)
""",
    ).result()
    assert told["best"][1] == 1
    assert told["mapped"] == [0, 1, 2]
    assert (told["kind"], told["args"]) == ("OSError", ["no x"])
    assert told["notes"] == ["the call of fail, argument 'x', failed, and with it fit, pick"]
    assert (told["again"], told["of_job"]) == (0, 0)
