"""What goes wrong on a batch system every day, and what must come of it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.clusters import GridEngine
from tests.support.scenario import (
    ENDS,
    HOLD_FOUR,
    IMPATIENT,
    QUICK,
    bring_up,
    free_slots,
    interrupt,
    nothing_is_left,
    play,
    play_to_the_end,
    stop_daemon,
    wait_until_confirmed,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

LEASE_SECONDS = float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"])
WITHIN_A_LEASE = 45.0
"""What is gone by then was deleted: a worker that nobody told stays for a minute."""


def wait_for_seconds(seconds: float) -> None:
    """Wait until a lease, say, must have run out."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end)


# ------------------------------------------------------------------ calls


def test_calls_that_crash_are_tried_again_and_then_name_how_and_the_others_are_done(
    cluster: Cluster,
) -> None:
    told = play(
        cluster,
        """
def die(how):
    Path("begun-" + str(how) + "-" + str(os.getpid())).touch()
    print("last words of", how, file=sys.stderr)
    if how == "exit":
        os._exit(3)
    if isinstance(how, int):
        os.kill(os.getpid(), how)
        time.sleep(60)
    return how

ways = ["well", "exit", 9, "fine", 11, "good"]
scheduler = CLUSTER(max_workers=2)
results = gridengine.map(die, ways, scheduler=scheduler, retries=1, reraise=False)
good = [result for result in results if isinstance(result, str)]
bad = [facts(result) for result in results if not isinstance(result, str)]
tell(good=good, bad=bad, runs=len(list(FOLDER.glob("begun-*"))))
""",
        # Else the log of a call that segfaults ends with the stacks of its threads, on a Slurm.
        environment={**QUICK, "PYTHONFAULTHANDLER": ""},
    ).result()
    assert told["good"] == ["well", "fine", "good"]
    assert [error["kind"] for error in told["bad"]] == ["WorkerCrashed"] * 3
    for error, words in zip(
        told["bad"], ["exited with status 3", "SIGKILL", "SIGSEGV"], strict=True
    ):
        assert words in error["text"]
        assert len(error["attempts"]) == 2
        assert error["host"]
        assert error["job"] in error["text"]
        assert error["log"] in error["text"]
        assert "last words of" in error["log_tail"]
    assert told["runs"] >= 3 + 3 * 2


def test_with_no_retries_no_call_begins_twice_though_processes_die_and_jobs_are_deleted(
    cluster: Cluster,
) -> None:
    scenario = play(
        cluster,
        """
def call(x, begun=str(FOLDER / "begun")):
    with open(begun, "a") as file:
        print(x, file=file)
    if x % 40 == 20:
        os._exit(1)
    return hold(x) if x == 70 else x

results = gridengine.map(call, range(200), scheduler=CLUSTER(max_workers=1), retries=0,
                         chunksize=10, reraise=False)
begun = [int(line) for line in open("begun")]
bad = {x: type(result).__name__ for x, result in enumerate(results) if result != x}
tell(begun=begun, bad=bad)
""",
    )
    cluster.delete_worker(scenario.began(1)[0])
    told = scenario.result(200)
    assert sorted(told["begun"]) == list(range(200))
    crashed = {str(x): "WorkerCrashed" for x in range(20, 200, 40)}
    assert told["bad"] == {**crashed, "70": "JobDeleted"}


# ------------------------------------------------------------------ deleted jobs


def test_calls_of_deleted_tasks_and_arrays_run_again_in_new_ones_whoever_deleted_them(
    cluster: Cluster,
) -> None:
    scenario = play(cluster, HOLD_FOUR, environment={**QUICK, "GRIDENGINE_SLURM_SRUN": "no"})
    first = scenario.began(4)
    one = first[0]
    cluster.delete_worker(one)
    scenario.began(2, index=one.index)
    assert len(scenario.begun()) == 5
    # One array, as a rule. On a loaded machine a worker may have been asked for before it was known
    # how many calls there are, and the others then.
    arrays = {each.job for each in first if each.index != one.index}
    cluster.administer(cluster.delete_command, *arrays)
    for index in range(4):
        scenario.began(2, index=index)
    scenario.go()
    assert scenario.result()["results"] == [0, 1, 2, 3]
    last = {scenario.begun(index)[-1].job for index in range(4)}
    assert not last & {each.job for each in first}
    assert len(scenario.begun()) == 8
    assert scenario.ended() == [0, 1, 2, 3]


def test_a_job_deleted_again_and_again_is_an_error_after_as_many_retries(
    cluster: Cluster,
) -> None:
    scenario = play(
        cluster,
        """
scheduler = CLUSTER(max_workers=4)
tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler, retries=2)))
""",
    )
    for count in (1, 2, 3):
        cluster.command(cluster.delete_command, scenario.began(count)[-1].job)
    told = scenario.result()
    assert told["kind"] == "JobDeleted"
    assert len(told["attempts"]) == len(scenario.begun()) == 3
    words = {"grid_engine": "somebody", "slurm": "it was cancelled (CANCELLED)"}
    assert words[cluster.name] in told["text"]
    assert told["job"] == cluster.worker_id(scenario.begun()[-1])


def test_waiting_jobs_deleted_again_and_again_are_an_error_after_as_many_retries(
    cluster: Cluster,
) -> None:
    seen = before = cluster.jobs()
    scenario = play(
        cluster,
        f"""
scheduler = CLUSTER({cluster.closed}, max_workers=1)
tell(**facts_of(lambda: gridengine.map(hold, range(8), scheduler=scheduler)))
""",
    )
    while scenario.process.poll() is None:
        if new := cluster.jobs() - seen:
            seen = seen | new
            cluster.command(cluster.delete_command, *new)
        time.sleep(0.1)
    told = scenario.result()
    assert told["kind"] == "JobDeleted"
    assert len(seen - before) == 3


# ------------------------------------------------------------------ workers that do not come


NEVER = """
import shutil, threading

def spoilt(given, spoil=lambda folder: None):
    class Spoilt(CLUSTER):
        def launcher(self, run):
            launcher = super().launcher(run)
            launcher.prepare()
            spoil(run.directory)
            return launcher

    began = time.monotonic()
    said = facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: Spoilt(**given)))
    return {**said, "seconds": time.monotonic() - began}

cases = {
    "interpreter": lambda: spoilt({"python": "/nosuch/python"}),
    "prologue": lambda: spoilt({"prologue": ["echo modules are gone", "false"]}),
    "log folder": lambda: spoilt({}, lambda folder: (folder / "logs").rmdir()),
    "working directory": lambda: spoilt({}, shutil.rmtree),
}
told = {}

def tell_of(name):
    told[name] = cases[name]()

threads = [threading.Thread(target=tell_of, args=(name,)) for name in NAMES]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tell(**told)
"""
NEVER_WORDS = {
    "grid_engine": {
        "interpreter": "/nosuch/python: No such file or directory",
        "prologue": "modules are gone",
        "log folder": "opening input/output file",
        "working directory": "changing into working directory",
    },
    "slurm": {
        "interpreter": "/nosuch/python: No such file or directory",
        "prologue": "modules are gone",
        "log folder": "its log file could not be opened",
    },
}


def test_workers_that_never_connect_are_an_error_with_the_reason_soon(cluster: Cluster) -> None:
    words = NEVER_WORDS[cluster.name]
    told = play(cluster, f"NAMES = {list(words)}\n{NEVER}").result(300)
    assert told.keys() == words.keys()
    for case, error in told.items():
        assert error["kind"] == "WorkerNotStarted"
        assert words[case] in error["text"]
        assert error["job"] in error["text"]
        assert error["log"] in error["text"]
        assert error["seconds"] < 200, case  # nothing is waited for that never comes
    assert "its Python could not be run" in told["interpreter"]["text"]
    assert "a line of its prologue failed" in told["prologue"]["text"]
    assert "prologue=" in told["prologue"]["hint"]


def test_a_host_that_nodes_do_not_reach_is_named_with_what_they_tried(cluster: Cluster) -> None:
    scenario = play(
        cluster,
        """
scheduler = lambda: CLUSTER(max_workers=1)
said = facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler))
logs = list(Path(said["log"]).parent.glob("worker.*.log"))
tell(kept=Path(said["log"]).read_text(), workers=len(logs), **said)
""",
        # An address for documentation, which nobody has (RFC 5737).
        environment={**QUICK, "GRIDENGINE_HOST": "192.0.2.1", "GRIDENGINE_START_SECONDS": "24"},
    )
    told = scenario.result(150)
    assert told["kind"] == "WorkerNotStarted"
    assert re.search(r"never connected within 24 s to tcp://192.0.2.1:\d+ \(.+\)", told["text"])
    assert re.search(r"its worker gets no answer at tcp://192.0.2.1:\d+ \(.+\)", scenario.errors)
    assert told["workers"] == 1
    assert "GRIDENGINE_HOST" in told["hint"]
    assert "firewall" in told["hint"]
    assert "gets no answer of its dispatcher: tcp://192.0.2.1:" in told["log_tail"]
    assert told["log_tail"] in told["kept"]


def test_calls_that_wait_longer_than_start_timeout_fail_with_the_cluster_s_reason(
    cluster: Cluster,
) -> None:
    # Grid Engine says what a job waits for after its scheduler's next rounds.
    seconds, words = {
        "grid_engine": (40, 'queue instance "closed.q@'),
        "slurm": (14, "PartitionDown: its partition is down"),
    }[cluster.name]
    scenario = play(
        cluster,
        f"""
scheduler = CLUSTER({cluster.closed}, start_timeout={seconds})
tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=scheduler)))
""",
    )
    told = scenario.result()
    assert told["kind"] == "WorkerNotStarted"
    reason = f"no worker has started within {seconds} s (start_timeout)"
    assert reason in told["text"]
    assert words in told["text"].partition(reason)[2]
    job = told["job"].partition(".")[0].partition("_")[0]
    wait_until(lambda: not cluster.knows(job))


# ------------------------------------------------------------------ stopped, restarted


def test_a_suspended_job_is_waited_for_longer_than_a_lease_and_goes_on(cluster: Cluster) -> None:
    if cluster.name == "slurm" and os.getuid() != 0:
        pytest.skip("only root may do that to a Slurm")
    scenario = play(
        cluster,
        "tell(results=gridengine.map(hold, [0], scheduler=CLUSTER(max_workers=2)))",
        environment=IMPATIENT,
    )
    (one,) = scenario.began(1)
    cluster.suspend(one)
    wait_for_seconds(2 * LEASE_SECONDS)
    scenario.go()
    cluster.resume(one)
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root may restart daemons")
@pytest.mark.parametrize(
    ("cluster", "daemon", "given"),
    [
        pytest.param(name, daemon, given, marks=getattr(pytest.mark, name), id=daemon)
        for name, daemon, given in [
            ("grid_engine", "sge_execd", {}),
            ("grid_engine", "sge_qmaster", {}),
            ("slurm", "slurmctld", {"nodelist": "n1"}),
            ("slurm", "slurmd-n1", {"nodelist": "n1"}),
        ]
    ],
    indirect=["cluster"],
)
def test_a_run_outlives_a_restart_of_a_daemon_and_later_deletions_are_seen(
    cluster: Cluster, daemon: str, given: dict[str, str]
) -> None:
    scenario = play(
        cluster,
        f"""
scheduler = CLUSTER(max_workers=2, **{given})
tell(results=gridengine.map(hold, range(2), scheduler=scheduler, chunksize=1))
""",
        environment=IMPATIENT,
    )
    first = scenario.began(2)
    if isinstance(cluster, GridEngine):
        wait_until_confirmed(cluster, first[0].job, 2)
    try:
        stop_daemon(daemon)
        wait_for_seconds(LEASE_SECONDS)
    finally:
        bring_up(cluster.up)
    assert len(scenario.begun()) == 2
    assert all(one.lives for one in first)
    cluster.delete_worker(first[0])
    # Once in ten times Grid Engine's library does not answer for the first minute.
    scenario.began(2, index=first[0].index, seconds=200)
    scenario.go()
    assert scenario.result()["results"] == [0, 1]
    assert scenario.ended() == [0, 1]
    if isinstance(cluster, GridEngine):
        free_slots()


# ------------------------------------------------------------------ the end of the user's process


def test_when_the_dispatcher_is_killed_its_tasks_are_deleted_and_its_workers_leave(
    cluster: Cluster,
) -> None:
    scenario = play(cluster, HOLD_FOUR)
    begun = scenario.began(4)
    scenario.process.kill()
    nothing_is_left(cluster, begun)


def test_when_all_of_the_user_s_processes_are_killed_the_workers_leave_with_their_lease(
    cluster: Cluster,
) -> None:
    scenario = play(cluster, HOLD_FOUR, environment=IMPATIENT)
    begun = scenario.began(4)
    mine = psutil.Process(scenario.process.pid)
    mine.suspend()  # it starts no more
    everything = [mine, *mine.children(recursive=True)]
    # First all are stopped: else a second process of an srun may begin to end what the first ran.
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):  # a command that had just ended
                act(process)
    nothing_is_left(cluster, begun)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_in_the_cluster_at_the_end_by(cluster: Cluster, end: str) -> None:
    begun, ended = play_to_the_end(cluster, end)
    nothing_is_left(cluster, begun, seconds=WITHIN_A_LEASE)
    assert ended == []


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_at_the_terminal_ends_the_cluster_s_tasks_and_reaches_the_user(
    cluster: Cluster, presses: int
) -> None:
    begun, ended = interrupt(cluster, presses)
    nothing_is_left(cluster, begun, seconds=WITHIN_A_LEASE)
    assert ended == []
