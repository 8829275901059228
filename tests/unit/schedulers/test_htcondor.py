"""HTCondor's words, as 23.9.6 says them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError, OutOfMemory, SubmissionRefused, TimeoutError
from gridengine.resources import ZERO, Cores, GPUs, Memory, Nodes, Ranks, Resource, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers import HTCondorScheduler
from gridengine.schedulers.batch_commands import GONE, VANISHED, Seen, WorkerArray
from gridengine.schedulers.command import command_environment
from gridengine.schedulers.htcondor import HTCondorCommands
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.requests import explanation, impossible, worker_options
from gridengine.settings.schema import BatchSite

HTCONDOR = HTCondorCommands()
ONCE = "requirements=(NumJobStarts ?: 0) < 1"


def options(resources: Resource, *own: str, factor: float = 1.0, **site: str) -> list[str]:
    return worker_options(HTCONDOR, own, Demand(resources, factor), BatchSite(**site))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4) & Memory(8), ["request_cpus=4", "request_memory=8192M"]),
        (WTime("2:00:00"), ["allowed_job_duration=7260"]),
        (GPUs(2), ["request_gpus=2"]),
        (Ranks(4) & Memory(0.5), ["request_memory=2048M", "request_cpus=4"]),
    ],
)
def test_each_kind_has_its_submit_command(resources: Resource, words: list[str]) -> None:
    assert options(resources) == [*words, ONCE]


def test_ranks_on_several_nodes_are_refused_by_name() -> None:
    words = r"Ranks\(4, nodes=4\) asks for 4 nodes, and a worker in a job of HTCondor is on one"
    with pytest.raises(ConfigurationError, match=words):
        options(Nodes(4))


def test_a_job_is_started_once_whatever_else_is_required() -> None:
    own = 'Requirements=Machine == "n1"'
    assert options(ZERO, own, account="lab") == [
        "accounting_group=lab",
        'requirements=(NumJobStarts ?: 0) < 1 && (Machine == "n1")',
    ]


def test_memory_of_the_users_own_is_scaled_and_not_said_twice() -> None:
    assert options(ZERO, "request_memory=2G", factor=2.0)[0] == "request_memory=4096M"
    with pytest.raises(ConfigurationError, match=r"Memory\(1\).* and Request_Memory=2G"):
        options(Memory(1), "Request_Memory=2G")


def test_arguments_are_submit_commands() -> None:
    scheduler = HTCondorScheduler(account="lab", request_disk="2G", nice_user=True)
    assert repr(scheduler) == (
        "HTCondorScheduler(native='accounting_group=lab request_disk=2G nice_user=true')"
    )
    with pytest.raises(ConfigurationError, match="log is not for users to set"):
        HTCondorScheduler(log="x")


def submitted(folder: str) -> list[str]:
    log = f"{folder}/logs/worker.1.{{}}.log".format
    return HTCONDOR.submit(WorkerArray("me-1", 3, Path(folder, "worker.sh"), ["a=b"], log))


def test_jobs_of_one_cluster_are_submitted_without_a_file() -> None:
    words = submitted("/home/me/r")
    assert words[:2] == ["condor_submit", "-terse"]
    assert words[-3:] == ["/dev/null", "-queue", "3"]
    assert words.index("a=b") < words.index("executable=/home/me/r/worker.sh")
    assert "output=/home/me/r/logs/worker.1.$(Process).log" in words
    assert HTCONDOR.ids("17.0 - 17.2\n", 3) == ["17.0", "17.1", "17.2"]
    assert [HTCONDOR.log_word(task, "") for task in (1, 2)] == [0, 1]
    assert HTCONDOR.ids("ERROR: Executable file /nosuch does not exist", 3) == []


def test_files_are_brought_and_the_log_comes_back_line_by_line() -> None:
    log = "/tmp/r/logs/worker.1.{}.log".format
    own = ["transfer_input_files=/data/a.csv", "a=b"]
    files = [Path("/tmp/r/connection.json"), Path("/home/me/x.pyz")]
    words = HTCONDOR.submit(WorkerArray("me-1", 2, Path("/tmp/r/worker.sh"), own, log, files))
    assert [word for word in words if word.startswith("transfer_input_files")] == [
        "transfer_input_files=/tmp/r/connection.json,/home/me/x.pyz,/data/a.csv"
    ]
    assert {"should_transfer_files=YES", "stream_output=true", "encrypt_input_files=*"} < {*words}
    assert {"a=b", "output=/tmp/r/logs/worker.1.$(Process).log"} < {*words}
    assert not [word for word in words if word.startswith(("getenv", "initialdir", "error"))]
    [told] = [word for word in words if word.startswith("environment=")]
    assert "GRIDENGINE_JOB_LOG=logs/worker.1.$(Process).log" in told
    assert "/tmp/r" not in told


def test_a_job_whose_files_are_on_their_way_waits() -> None:
    comes = seen(JobStatus=2, TransferringInput=True, RemoteHost="slot1@n7")
    assert (comes.state, comes.reason) == (
        WorkerStatus.QUEUED,
        "its files are being brought to n7",
    )
    assert seen(JobStatus=2, TransferringInput=False).state is WorkerStatus.RUNNING


@pytest.mark.parametrize("folder", ["/tmp/r", "/var/tmp/r", "/home/$(x)"])
def test_a_run_directory_that_jobs_do_not_see_is_refused(folder: str) -> None:
    with pytest.raises(ConfigurationError, match="GRIDENGINE_RUN_DIRECTORY"):
        submitted(folder)


def seen(**attributes: object) -> Seen:
    ad = {"ClusterId": 7, "ProcId": 0, **attributes}
    return HTCONDOR.parse(json.dumps([ad]))["7.0"]


def recorded(name: str) -> dict[str, Seen]:
    folder = Path(__file__).parent / "recorded" / "htcondor"
    return HTCONDOR.parse((folder / f"{name}.json").read_text())


def test_a_job_whose_node_lost_power_runs_until_it_is_removed_and_then_counts_as_gone() -> None:
    runs, ended = recorded("node-lost-condor-q").values()
    assert (runs.state, runs.host) == (WorkerStatus.RUNNING, "node1")
    assert (ended.state, ended.reason, ended.host) == (
        WorkerStatus.FAILED,
        "exit status 1",
        "node1",
    )
    [removed] = recorded("node-lost-removed-condor-q").values()
    assert (removed.state, removed.deleted) == (WorkerStatus.FAILED, True)


def test_no_jobs_print_nothing() -> None:
    assert HTCONDOR.parse("") == {}
    with pytest.raises(ValueError, match="Expecting value"):
        HTCONDOR.parse("Failed")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (1, WorkerStatus.QUEUED),
        (2, WorkerStatus.RUNNING),
        (6, WorkerStatus.RUNNING),
        (7, WorkerStatus.SUSPENDED),
    ],
)
def test_jobs_that_have_not_ended_are_in_a_state(status: int, state: WorkerStatus) -> None:
    assert seen(JobStatus=status, NumJobStarts=0).state is state


def test_an_ended_job_says_how() -> None:
    assert seen(JobStatus=4, ExitCode=0, ExitBySignal=False).state is WorkerStatus.ENDED
    failed = seen(JobStatus=4, ExitCode=3, ExitBySignal=False, LastRemoteHost="slot1_1@n7")
    assert (failed.reason, failed.host) == ("exit status 3", "n7")
    assert seen(JobStatus=4, ExitBySignal=True, ExitSignal=9).reason == "killed by SIGKILL"


def test_an_evicted_job_waits_for_nothing_and_is_to_be_deleted() -> None:
    evicted = seen(JobStatus=1, NumJobStarts=1, LastRemoteHost="slot1_2@n7", VacateReason="")
    assert (evicted.state, evicted.blameless, evicted.linger) == (WorkerStatus.FAILED, True, True)
    assert evicted.reason == "it was evicted from n7: its place was taken"


@pytest.mark.parametrize(
    ("code", "reason", "fault"),
    [
        (46, "The job exceeded allowed job duration of 00:03", TimeoutError),
        (34, "Error from slot1@n7: Job has gone over cgroup memory limit of 128 MB", OutOfMemory),
        (21, "memory usage exceeded request_memory", OutOfMemory),
        (7, "Error from slot2@n7: Failed to open '/nosuch/x' as standard output: No such", None),
    ],
)
def test_a_held_job_has_failed_and_is_to_be_deleted(
    code: int, reason: str, fault: type[Exception] | None
) -> None:
    held = seen(JobStatus=5, HoldReasonCode=code, HoldReason=reason, JobCurrentStartDate=17)
    assert (held.state, held.linger, held.fault) == (WorkerStatus.FAILED, True, fault)
    assert reason in held.reason
    assert not held.blameless


def test_a_job_held_by_its_user_waits_unless_it_ran() -> None:
    words = {"HoldReasonCode": 1, "HoldReason": "via condor_hold (by user me)"}
    assert seen(JobStatus=5, **words).state is WorkerStatus.QUEUED
    told = explanation(HTCONDOR, seen(JobStatus=5, **words).reason)
    assert "`condor_release JOB` releases it" in told
    ran = seen(JobStatus=5, JobCurrentStartDate=17, **words)
    assert (ran.state, ran.linger, ran.blameless) == (WorkerStatus.FAILED, True, True)


def test_the_history_is_asked_for_jobs_that_left_the_queue() -> None:
    ended = {"7.0": GONE, "7.1": VANISHED, "7.2": seen(JobStatus=4, ExitCode=3)}
    [command] = HTCONDOR.endings(ended)
    assert command[-2:] == ["7.0", "7.1"]
    assert HTCONDOR.endings({"7.2": ended["7.2"]}) == []
    removed = {"ClusterId": 7, "ProcId": 0, "JobStatus": 3, "RemoveReason": "via condor_rm (by me)"}
    known = HTCONDOR.parse_endings(ended, [json.dumps([removed])])
    assert known["7.0"].deleted
    assert known["7.0"].reason == "it was removed: via condor_rm (by me)"
    assert HTCONDOR.parse_endings(ended, ["no history"]) == {}


ANALYSIS = """The Requirements expression for job 5.000 reduces to these conditions:

         Slots
Step    Matched  Condition
-----  --------  ---------
[1]           3  TARGET.Arch == "X86_64"
[7]           3  TARGET.Memory >= RequestMemory
[9]           {matched}  TARGET.GPUs >= RequestGPUs

No successful match recorded.
cores: 1
memory: ifthenelse(MemoryUsage =!= undefined,MemoryUsage,(ImageSize + 1023) / 1024)
GPUs: {gpus}
slot: 4 8000 0
slot: 4 8000 2
"""


def test_an_impossible_request_is_an_error_and_a_busy_one_is_not() -> None:
    told = HTCONDOR.because(ANALYSIS.format(matched=0, gpus=5))
    assert "no slot has TARGET.GPUs >= RequestGPUs now" in told
    assert HTCONDOR.never.search(told)
    error = impossible(HTCONDOR, told, ["request_gpus=5"])
    assert isinstance(error, SubmissionRefused)
    assert "`condor_status` lists the slots" in str(error)
    assert HTCONDOR.never.search(HTCONDOR.because(ANALYSIS.format(matched=2, gpus="lots")))
    told = HTCONDOR.because(ANALYSIS.format(matched=0, gpus=2))
    assert not HTCONDOR.never.search(told)
    assert HTCONDOR.because(ANALYSIS.format(matched=2, gpus="undefined")) == (
        "what it asks for is in use"
    )


def test_conditions_that_no_slot_meets_together_are_written_out() -> None:
    """As 23.9.6 says it of a job that leaves out the only host."""
    lines = """[1]           2  regexp("^(n7)([.]|$)",Machine,"i")
[3]           2  TARGET.Arch == "X86_64"
[4]           0  [1] && [3]
"""
    told = HTCONDOR.because(lines)
    assert 'no slot has regexp("^(n7)([.]|$)",Machine,"i") && TARGET.Arch == "X86_64" now' in told
    assert HTCONDOR.never.search(told)


def test_nodes_that_do_not_share_files_are_named() -> None:
    line = "[0]           0  TARGET.FileSystemDomain == MY.FileSystemDomain"
    told = HTCONDOR.because(ANALYSIS.format(matched=2, gpus=1) + line)
    assert HTCONDOR.never.search(told)
    assert "FILESYSTEM_DOMAIN" in explanation(HTCONDOR, told)


def test_commands_see_which_pool_is_meant_and_not_the_job_that_they_are_in() -> None:
    given = {"CONDOR_CONFIG": "/c", "_CONDOR_SCHEDD_HOST": "s", "_CONDOR_SLOT": "slot1", "A": "b"}
    assert sorted(command_environment(HTCONDOR, given)) == [
        "A",
        "CONDOR_CONFIG",
        "_CONDOR_SCHEDD_HOST",
    ]
