"""Workers of a cluster that exchange files with the dispatcher, in place of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import QUICK, play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

SOCKETS = """
import psutil

def tcp_sockets(process):
    return [str(one) for one in process.net_connections("tcp")]

def work(number):
    import psutil
    agent = psutil.Process().parent().parent()
    nested = gridengine.map(abs, [-number])
    return nested, tcp_sockets(agent) + tcp_sockets(psutil.Process())

scheduler = CLUSTER(max_workers=2, transport="files")
with scheduler:
    results = gridengine.map(work, range(3), scheduler=scheduler)
    squares = gridengine.map(pow, range(1000), [2] * 1000, scheduler=scheduler)
    own = tcp_sockets(psutil.Process())
    folders = [str(one) for one in Path(os.environ["GRIDENGINE_RUN_DIRECTORY"]).glob("*/exchange")]
left = [one for one in folders if Path(one).exists()]
tell(results=results, squares=sum(squares), own=own, left=left, folders=len(folders))
"""


def test_calls_run_and_make_calls_and_no_process_has_a_connection(cluster: Cluster) -> None:
    own = {"GRIDENGINE_RUN_DIRECTORY": str(cluster.folder / "runs_by_files")}
    told = play(cluster, SOCKETS, environment={**QUICK, **own}).result()
    assert told["results"] == [[[number], []] for number in range(3)]
    assert told["squares"] == sum(number * number for number in range(1000))
    assert told["own"] == []
    assert told["folders"] >= 1
    assert told["left"] == []
