"""Workers as tasks of a batch system: started, watched, explained and deleted, whatever happens to
them.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.launching import files, run
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

AWKWARD = "a röm 'x %j %a {0}"
"""A folder's name with blanks, accents, and what some batch system takes for a placeholder."""


def test_each_task_s_output_goes_to_the_log_of_its_handle(cluster: Cluster) -> None:
    told = run(
        cluster,
        """
launcher = make_launcher('readlink /proc/self/fd/1 /proc/self/fd/2; echo "$@"')
handles = launcher.launch(3)
wait_for(launcher, handles)
launcher.close()
logs = [handle.log for handle in handles]
tell(logs=logs, texts=[Path(log).read_text() for log in logs])
""",
    )
    assert len(set(told["logs"])) == 3
    folder = told["logs"][0].rpartition("/logs/")[0]
    assert told["texts"] == [
        f"{log}\n{log}\n-P -m gridengine.worker {folder}/connection\n" for log in told["logs"]
    ]


def test_a_run_directory_with_blanks_accents_and_placeholders_works(cluster: Cluster) -> None:
    told = run(
        cluster,
        f"""
launcher = make_launcher('echo "$4"', run=make_run({AWKWARD!r}))
handles = launcher.launch(1)
wait_for(launcher, handles)
launcher.close()
tell(folder=str(Path.cwd()), text=Path(handles[0].log).read_text())
""",
    )
    assert told["text"] == f"{told['folder']}/{AWKWARD}/connection\n"


@pytest.mark.parametrize(
    ("ending", "state", "reason"),
    [
        (
            "exit 0",
            "ended",
            {"grid_engine": "exit status 0", "slurm": "it ended by itself (COMPLETED)"},
        ),
        (
            "exit 3",
            "failed",
            {"grid_engine": "exit status 3", "slurm": "it failed (FAILED): exit status 3"},
        ),
        (
            "kill -9 $$",
            "failed",
            {"grid_engine": "killed by SIGKILL", "slurm": "it failed (FAILED): killed by SIGKILL"},
        ),
    ],
    ids=["well", "with a status", "killed"],
)
def test_a_task_waits_runs_and_ends(
    cluster: Cluster, ending: str, state: str, reason: dict[str, str]
) -> None:
    told = run(
        cluster,
        f"""
launcher = make_launcher('while ! [[ -e go ]]; do sleep 0.1; done; {ending}')
handles = launcher.launch(1)
wait_for(launcher, handles, {{WorkerStatus.RUNNING}})
(launcher.run.directory / "go").touch()
report = wait_for(launcher, handles)[handles[0]]
launcher.close()
words = dict(reason=report.reason, error=str(report.error))
tell(state=report.state.value, deleted=report.deleted, **words)
""",
    )
    words = reason[cluster.name]
    assert (told["state"], told["reason"], told["deleted"]) == (state, words, False)
    assert words in told["error"]


def test_an_array_larger_than_the_site_allows_is_split(cluster: Cluster) -> None:
    limit = cluster.largest_array()
    told = run(
        cluster,
        f"""
launcher = make_launcher({cluster.closed})
handles = launcher.launch({limit} + 203)
known = launcher.poll(handles[-1203:])
launcher.close()
jobs = {{number_of(handle) for handle in handles}}
logs = {{handle.log for handle in handles}}
tell(count=len(set(handles)), logs=len(logs), jobs=len(jobs), known=len(known))
""",
    )
    # Slurm tells of all at once; DRMAA is asked for each, and for no longer than a poll may take.
    assert told["known"] == 1203 if cluster.name == "slurm" else told["known"] > 0
    assert (told["count"], told["logs"], told["jobs"]) == (limit + 203, limit + 203, 2)


def test_tasks_that_somebody_deletes_are_reported_as_deleted(cluster: Cluster) -> None:
    told = run(
        cluster,
        f"""
import subprocess
running, waiting = make_launcher(), make_launcher(run=make_run("other"), {cluster.closed})
handles = running.launch(1) + waiting.launch(1)
wait_for(running, handles[:1], {{WorkerStatus.RUNNING}})
jobs = [number_of(handle) for handle in handles]
subprocess.run(["{cluster.delete_command}", *jobs], check=True, stdout=subprocess.DEVNULL)
found = wait_for(running, handles[:1]) | wait_for(waiting, handles[1:])
running.close(); waiting.close()
reports = [found[handle] for handle in handles]
errors = [report.error for report in reports]
words = dict(texts=list(map(str, errors)), hosts=[error.host for error in errors])
kinds = [type(error).__name__ for error in errors]
tell(deleted=[report.deleted for report in reports], kinds=kinds, **words)
""",
    )
    assert (told["deleted"], told["kinds"]) == ([True, True], ["JobDeleted", "JobDeleted"])
    if cluster.name == "slurm":
        assert "it was cancelled (CANCELLED)" in told["texts"][0]
        assert told["hosts"][0].startswith("n")
        assert f"host: {told['hosts'][0]}" in told["texts"][0]


NO_FOLDER = "(launcher.run.directory / 'logs').rmdir()"
NO_SCRIPT = "launcher.script.unlink()"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            NO_FOLDER,
            {
                "grid_engine": "opening input/output file",
                "slurm": "its log file could not be opened",
            },
        ),
        (NO_SCRIPT, {"grid_engine": "worker.sh", "slurm": "unable to open"}),
    ],
    ids=["no folder for logs", "no script"],
)
def test_a_task_that_the_cluster_cannot_start_is_an_error_with_its_own_words(
    cluster: Cluster, spoil: str, words: dict[str, str]
) -> None:
    told = run(
        cluster,
        f"""
launcher = make_launcher()
launcher.prepare()
{spoil}
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
    assert words[cluster.name].lower() in told["text"].lower()
    if cluster.name == "grid_engine":
        assert (told["state"], told["kind"]) == ("failed", "WorkerNotStarted")
        assert "No such file or directory" in told["text"]


REFUSED = {
    "grid_engine": [
        ("nosuch=1", 'unknown resource "nosuch"'),
        ("h_vmem='abc'", "is not a memory value"),
        ("queue='nosuch.q'", 'unknown queue "nosuch.q"'),
        ("parallel_environment='nosuch 2'", 'parallel environment "nosuch" does not exist'),
        ("parallel_environment='smp 64'", "no suitable queues"),
        ("hostname='nosuch'", 'can\'t resolve hostname "nosuch"'),
        ("native='-nosuch 3'", "-nosuch"),
    ],
    "slurm": [
        ("partition='nosuch'", "`sinfo` lists the partitions"),
        ("mem='900G'", "no node has all of this"),
        ("nosuch='1'", "unrecognized option '--nosuch"),
        ("constraint='nosuch'", "lists the nodes' features"),
    ],
}


@pytest.mark.parametrize(
    ("cluster", "given", "words"),
    [
        pytest.param(name, given, words, marks=getattr(pytest.mark, name), id=f"{name}-{given}")
        for name, cases in REFUSED.items()
        for given, words in cases
    ],
    indirect=["cluster"],
)
def test_what_can_never_run_is_refused_at_once_in_the_cluster_s_words(
    cluster: Cluster, given: str, words: str
) -> None:
    told = run(
        cluster,
        f"""
launcher = make_launcher({given})
try:
    launcher.launch(2)
except Exception as error:
    tell(kind=type(error).__name__, text=str(error))
finally:
    launcher.close()
""",
    )
    assert told["kind"] == "SubmissionRefused"
    assert words in told["text"]


def test_nothing_is_left_after_a_close(cluster: Cluster) -> None:
    told = run(
        cluster,
        """
launcher = make_launcher()
handles = launcher.launch(10)
wait_for(launcher, handles[:1], {WorkerStatus.RUNNING})
launcher.close()
launcher.close()
files = sorted(path.name for path in launcher.run.directory.iterdir())
tell(files=files, jobs=list({number_of(handle) for handle in handles}))
""",
    )
    assert told["files"] == ["connection", "logs"]
    wait_until(lambda: not any(map(cluster.knows, told["jobs"])))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_user_s_process_is_killed_its_cluster_tasks_go_and_its_keys_too(
    cluster: Cluster, number: int
) -> None:
    script = f"""
from launching import *
launcher = make_launcher()
handles = launcher.launch(10)
waiting = make_launcher(run=make_run("other"), {cluster.closed})
handles += waiting.launch(2)
wait_for(launcher, handles[:1], {{WorkerStatus.RUNNING}})
folders = [str(one.run.directory) for one in (launcher, waiting)]
tell(jobs=list({{number_of(handle) for handle in handles}}), folders=folders)
signal.pause()
"""
    started = cluster.start(script, files=files(cluster))
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, started.communicate()
    told = json.loads(line)
    assert all(map(cluster.knows, told["jobs"]))
    below = psutil.Process(started.pid).children(recursive=True)
    started.send_signal(number)
    started.wait(120)
    wait_until(lambda: not any(map(cluster.knows, told["jobs"])))
    wait_until(lambda: not any(process.is_running() for process in below))
    for folder in told["folders"]:
        wait_until(lambda folder=folder: [path.name for path in Path(folder).iterdir()] == ["logs"])


CHOOSE = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import gridengine.schedulers
print(type(gridengine.schedulers.best_available()).__name__)
"""


def test_the_best_available_is_the_cluster_for_a_user_who_may_submit(cluster: Cluster) -> None:
    done = cluster.run(CHOOSE)
    assert done.stdout == f"{cluster.scheduler}\n"
    assert f"{cluster.title} takes jobs of this user" in done.stderr
    assert ("not Grid Engine, because" in done.stderr) == (cluster.name == "slurm")
