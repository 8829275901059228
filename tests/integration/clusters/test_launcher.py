"""Workers that a batch system cannot start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.launching import run

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


def test_a_task_whose_script_is_gone_is_an_error_with_the_cluster_s_own_words(
    cluster: Cluster,
) -> None:
    told = run(
        cluster,
        """
launcher = make_launcher()
launcher.prepare()
launcher.script.unlink()
state = "refused"
try:
    handles = launcher.launch(1)
    report = wait_for(launcher, handles)[handles[0]]
    state, error = report.state.value, report.error
except Exception as refusal:
    error = refusal
launcher.close()
tell(state=state, kind=type(error).__name__, text=str(error))
""",
        environment={"GRIDENGINE_SLURM_SRUN": "no"},
    )
    words = {"grid_engine": "worker.sh", "slurm": "unable to open"}
    assert words[cluster.name] in told["text"].lower()
    if cluster.name == "grid_engine":
        assert (told["state"], told["kind"]) == ("failed", "WorkerNotStarted")
        assert "No such file or directory" in told["text"]
