"""What Slurm says of jobs, without a Slurm."""

from __future__ import annotations

import math

import pytest

from gridengine.errors import OutOfMemory, TimeoutError
from gridengine.schedulers.batch_commands import GONE, VANISHED, Seen
from gridengine.schedulers.launcher import WorkerStatus, compress
from gridengine.schedulers.refusals import explanation, impossible
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.states import (
    ENDS,
    STATES,
    end_code_words,
    ids_of,
    parse_cancelled_by,
    parse_jobs,
    parse_squeue,
    remaining_seconds,
    seen_in,
    with_details,
)

SLURM = SlurmCommands()


@pytest.mark.parametrize(
    ("tasks", "ids"),
    [
        ("", ["12"]),
        ("N/A", ["12"]),
        ("3", ["12_3"]),
        ("4-6%2", ["12_4", "12_5", "12_6"]),
        ("1,3-5", ["12_1", "12_3", "12_4", "12_5"]),
        ("1,20-28:4%1", ["12_1", "12_20", "12_24", "12_28"]),
    ],
)
def test_ids_of_arrays_are_read_in_every_form(tasks: str, ids: list[str]) -> None:
    assert ids_of("12", tasks) == ids


@pytest.mark.parametrize(
    ("job", "tasks"),
    [
        ("", "1"),
        ("x", "N/A"),
        ("12+1", "N/A"),
        ("12", "1,3,..."),
        ("12", "1-2:0"),
        ("12", "1-"),
        ("12", ","),
        ("12", "%2"),
        ("12", "1%2,3"),
    ],
)
def test_what_is_no_id_is_not_guessed_at(job: str, tasks: str) -> None:
    with pytest.raises(ValueError, match="is no id of a job"):
        ids_of(job, tasks)


def test_many_tasks_are_named_in_few_words() -> None:
    assert compress(["7", "12_3", "12_1", "12_2", "12_9", "13_5"]) == ["7", "12_[1-3,9]", "13_[5]"]


def test_tasks_that_wait_share_a_row() -> None:
    listing = """12|1,3-4%2|PENDING|N/A|1:00:00|ReqNodeNotAvail, UnavailableNodes:n[1|2]
12|2|RUNNING|2026-11-21T00:55:20|UNLIMITED|None
15|N/A|TIMEOUT|x|0:00|TimeLimit
16|N/A|PENDING|x|UNLIMITED|BeginTime
17|N/A|COMPLETING|x|UNLIMITED|None
"""
    reason = "ReqNodeNotAvail, UnavailableNodes:n[1|2]"
    waiting = Seen(WorkerStatus.QUEUED, reason, remaining_seconds=3600)
    assert parse_squeue(listing) == {
        "12_1": waiting,
        "12_3": waiting,
        "12_4": waiting,
        "12_2": Seen(WorkerStatus.RUNNING, "None", start="2026-11-21T00:55:20"),
        "15": Seen(WorkerStatus.FAILED, "it reached its time limit (TIMEOUT)", TimeoutError),
        "16": Seen(WorkerStatus.QUEUED, "BeginTime", again=True),
        "17": Seen(None, "COMPLETING"),
    }


@pytest.mark.parametrize(
    "listing", ["slurm_load_jobs error", "12|1|PENDING", "12|1-|PENDING|N/A|0:00|None"]
)
def test_a_listing_that_is_none_is_not_taken_for_one(listing: str) -> None:
    with pytest.raises(ValueError, match=r"squeue says|no id"):
        parse_squeue(listing)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:04", 4),
        ("03:04", 184),
        ("2:03:04", 7384),
        ("1-02:03:04", 93784),
        ("UNLIMITED", math.inf),
        ("NOT_SET", math.inf),
        ("INVALID", math.inf),
    ],
)
def test_how_long_a_job_may_run_on_is_read_as_squeue_writes_it(text: str, seconds: float) -> None:
    assert remaining_seconds(text) == seconds


def test_the_fields_of_each_task_are_found_under_its_id() -> None:
    text = (
        "JobId=73 ArrayJobId=70 ArrayTaskId=3 JobName=x JobState=FAILED Reason=NonZeroExitCode "
        "CPUs/Task=1 ExitCode=3:0 NodeList=n1\n"
        "JobId=70 ArrayJobId=70 ArrayTaskId=1,4-5%2 JobState=PENDING ExitCode=0:0\n"
        "\n"
        "JobId=80 JobState=COMPLETED ExitCode=0:0 Command=/a b=c\n"
    )
    found = parse_jobs(text)
    assert sorted(found) == ["70_1", "70_3", "70_4", "70_5", "80"]
    assert (found["70_3"]["ExitCode"], found["70_3"]["CPUs/Task"], found["70_4"]["JobState"]) == (
        "3:0",
        "1",
        "PENDING",
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("0:0", ""),
        ("3:0", "exit status 3"),
        ("0:9", "killed by SIGKILL"),
        ("0:53", "its log file could not be opened"),
        ("0:200", "killed by signal 200"),
        ("", ""),
    ],
)
def test_exit_codes_are_told_in_words(code: str, words: str) -> None:
    assert end_code_words(code) == words


def ended(state: str, by: str = "", **fields: str) -> str:
    return with_details(seen_in(state), fields, by).reason


def test_how_a_job_ended_is_told_with_its_exit_code_and_slurm_s_own_reason() -> None:
    told = ended("FAILED", ExitCode="3:0", Reason="NonZeroExitCode")
    assert told == "it failed (FAILED): exit status 3"
    for reason in ("JobLaunchFailure", "RaisedSignal:9(Killed)"):  # the latter from 24.11 on
        told = ended("FAILED", ExitCode="0:9", Reason=reason)
        assert told == "it failed (FAILED): killed by SIGKILL"
    assert ended("FAILED", Reason="BadConstraints") == "it failed (FAILED): BadConstraints"
    assert ended("TIMEOUT") == "it reached its time limit (TIMEOUT)"
    assert ended("CANCELLED", by="root") == "it was cancelled (CANCELLED), by root"


def test_of_what_is_listed_no_more_it_is_told_how_it_ended_if_slurm_knows() -> None:
    assert "Slurm no longer knows it" in with_details(GONE, {}, "").reason
    told = with_details(VANISHED, {}, "eve")
    assert (told.deleted, told.reason) == (True, "it was cancelled (CANCELLED), by eve")
    assert with_details(GONE, {"JobState": "FAILED"}, "").reason == "it failed (FAILED)"
    for lost in (GONE, VANISHED):
        assert with_details(lost, {"JobState": "RUNNING"}, "").state is WorkerStatus.RUNNING


def test_each_end_has_its_meaning() -> None:
    assert [state for state, end in ENDS.items() if end.state is WorkerStatus.ENDED] == [
        "COMPLETED"
    ]
    assert [state for state, end in ENDS.items() if end.deleted] == ["CANCELLED"]
    assert {state for state, end in ENDS.items() if end.fault is TimeoutError} == {
        "TIMEOUT",
        "DEADLINE",
    }
    assert {state for state, end in ENDS.items() if end.fault is OutOfMemory} == {"OUT_OF_MEMORY"}
    assert {"PREEMPTED", "BOOT_FAIL"} <= {state for state, end in ENDS.items() if end.blameless}
    assert not ENDS["NODE_FAIL"].blameless  # a call may have brought it down


def test_a_job_that_is_about_to_end_is_in_no_state_and_one_whose_node_boots_is_not_late() -> None:
    assert "COMPLETING" not in {*STATES, *ENDS}
    assert STATES["CONFIGURING"] is WorkerStatus.QUEUED


DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        *(
            (reason, "")
            for reason in ("None", "Priority", "Licenses", "Dependency", "Somethingnew")
        ),
        ("Resources", "what it asks for is in use; wait"),
        ("QOSMaxJobsPerUserLimit", "a limit of its QOS"),
        ("QOSMaxCpuPerUserLimit", "a limit of its QOS"),
        ("AssocGrpCpuLimit", "a limit of this user or account"),
        ("AssocGrpCPUMinutesLimit", "was granted is used up"),
        ("QOSGrpBillingMinutes", "was granted is used up"),
        ("AssocGrpCPURunMinutesLimit", "a limit of this user or account"),
        ("AssociationJobLimit", "a limit of this user or account"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "down, drained or reserved"),
        ("(ReqNodeNotAvail, UnavailableNodes:n1)", "down, drained or reserved"),
        (DOWN, "down, drained or reserved"),
        ("PartitionDown", "its partition is down; use another partition="),
        ("JobHeldAdmin", "it is held; release it"),
        ("launch failed requeued held", "it is held; release it"),
    ],
)
def test_what_may_pass_is_waited_for_and_told_with_what_to_do(reason: str, words: str) -> None:
    assert not is_permanent(reason)
    told = explanation(SLURM, seen_in("PENDING", reason=reason).reason)
    assert told.startswith(reason.strip("()"))
    assert words in told


def is_permanent(reason: str) -> bool:
    return SLURM.never.search(reason) is not None


REMEDIES = {
    "QOSNotAllowed": "not allowed here",
    "PartitionTimeLimit": "more than its partition gives",
}


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "BadConstraints",
        "InvalidQOS",
        "QOSNotAllowed",
        "AccountNotAllowed",
        "QOSMaxCpuPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMaxGRESPerNode",
        "QOSMinCpuNotSatisfied",
        "MaxMemPerLimit",
        "DependencyNeverSatisfied",
    ],
)
def test_what_does_not_pass_by_waiting_is_known_and_has_a_remedy(reason: str) -> None:
    assert is_permanent(reason)
    error = impossible(SLURM, reason, ["--cpus-per-task=500"])
    assert f"can never start it: {reason}: " in error.message
    assert REMEDIES.get(reason, "") in error.message
    assert "it was asked for: --cpus-per-task=500" in error.message
    assert (error.hint or "").index("; strict=False") > 0


def test_accounts_say_who_cancelled_a_job() -> None:
    told = "12_1|CANCELLED by 1001\n12_2|CANCELLED\n12_3|CANCELLED+\n13|CANCELLED by 0"
    assert parse_cancelled_by(told) == {"12_1": "1001", "13": "0"}
