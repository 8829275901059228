"""What a Slurm allows, and what its refusals mean."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gridengine.errors import OutOfMemory, SchedulerUnavailable, SubmissionRefused, TimeoutError
from gridengine.schedulers.batch_commands import GONE, VANISHED, Seen
from gridengine.schedulers.command import error_text
from gridengine.schedulers.launcher import TryAgain, WorkerStatus, compress
from gridengine.schedulers.requests import TooMany, explanation, impossible, refusal, unavailable
from gridengine.schedulers.slurm.answers import (
    ENDS,
    STATES,
    SlurmLimits,
    end_code_words,
    ids_of,
    parse_cancelled_by,
    parse_jobs,
    parse_sizes,
    parse_squeue,
    remaining_seconds,
    seen_in,
    site_of,
    with_details,
)
from gridengine.schedulers.slurm.commands import SlurmCommands

SLURM = SlurmCommands()
RECORDED = Path(__file__).parents[1] / "recorded" / "slurm"

CONFIG = """Configuration data as of 2026-11-21T00:55:20
AccountingStorageType   = accounting_storage/none
DefMemPerNode           = UNLIMITED
MaxArraySize            = 1001
SelectTypeParameters    = CR_CORE_MEMORY
"""


PARTITIONS = """PartitionName=main Default=YES DefMemPerNode=UNLIMITED
PartitionName=big Default=NO DefMemPerNode=UNLIMITED
PartitionName=kind Default=NO DefMemPerCPU=500
"""


NODES = "main|4|8000\nmain|2|3001\nbig|64+|256000+\nkind|1|1\n"


def test_the_highest_index_of_an_array_is_one_less_than_its_size() -> None:
    assert site_of(CONFIG, PARTITIONS, NODES, "").largest == 1000
    assert site_of(CONFIG.replace("1001", "0"), PARTITIONS, NODES, "").largest == 0


@pytest.mark.parametrize(
    ("partitions", "memory"), [("", "1500M"), ("big", "4000M"), ("big,main", "1500M")]
)
def test_a_core_s_share_of_memory_is_asked_for_where_jobs_get_all_of_a_node(
    partitions: str, memory: str
) -> None:
    assert site_of(CONFIG, PARTITIONS, NODES, partitions).memory == f"--mem-per-cpu={memory}"


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        (CONFIG, "kind"),
        (CONFIG.replace("DefMemPerNode           = UNLIMITED", "DefMemPerCPU = 100"), ""),
        (CONFIG.replace("CR_CORE_MEMORY", "CR_CORE"), ""),
        (CONFIG, "nosuch"),
    ],
)
def test_no_memory_is_asked_for_where_the_site_has_a_default(config: str, partitions: str) -> None:
    assert site_of(config, PARTITIONS, NODES, partitions) == SlurmLimits(1000, "", accounts=False)
    assert parse_sizes("main|0|0\nmain|n/a|\n", ["main"]) == []


def test_no_more_memory_is_asked_for_a_core_than_a_job_may_have() -> None:
    """For more, Slurm gives a job more cores."""
    config = CONFIG.replace("DefMemPerNode           = UNLIMITED", "MaxMemPerCPU            = 1000")
    assert site_of(config, PARTITIONS, NODES, "").memory == "--mem-per-cpu=1000M"
    partitions = PARTITIONS.replace("Default=YES", "Default=YES MaxMemPerCPU=700")
    assert site_of(config, partitions, NODES, "").memory == "--mem-per-cpu=700M"
    assert site_of(config, PARTITIONS, NODES, "kind").memory == ""


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        (CONFIG + "SelectType              = select/linear\n", PARTITIONS),
        (CONFIG, PARTITIONS.replace("Default=YES", "Default=YES OverSubscribe=EXCLUSIVE")),
        (CONFIG, PARTITIONS.replace("Default=YES", "Default=YES Exclusive=NODE")),
    ],
)
def test_the_smallest_node_is_known_where_jobs_get_whole_nodes(
    config: str, partitions: str
) -> None:
    assert site_of(config, partitions, NODES, "").whole_cores == 2
    assert site_of(CONFIG, PARTITIONS, NODES, "").whole_cores == 0


def test_nothing_is_assumed_of_settings_that_a_site_does_not_show() -> None:
    assert site_of(CONFIG, "", "", "") == SlurmLimits(1000, hides_memory=True)
    assert site_of(CONFIG, PARTITIONS, "", "") == SlurmLimits(1000, hides_memory=True)
    assert site_of(CONFIG, PARTITIONS, "", "kind") == SlurmLimits(1000)
    assert site_of(CONFIG.replace("CR_CORE_MEMORY", "CR_CORE"), "", "", "") == SlurmLimits(1000)


@pytest.mark.parametrize(
    "words",
    [
        "Slurm temporarily unable to accept job, sleeping and retrying.",
        "Slurm job queue full, sleeping and retrying.",
        "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job violates accounting/QOS "
        "policy (job submit limit, user's size ...)",
        "AssocMaxSubmitJobLimit; Batch job submission failed: Job violates accounting/QOS policy",
        "Batch job submission failed: Resource temporarily unavailable",
    ],
)
def test_a_limit_that_is_used_up_is_met_by_fewer_or_later(words: str) -> None:
    meaning = refusal(SLURM, words, [], 100)
    assert isinstance(meaning, TooMany)
    assert meaning.limit is None


@pytest.mark.parametrize(
    "reason", ["QOSMaxWallDurationPerJobLimit", "QOSMaxCpuPerUserLimit", "QOSGrpCpuLimit"]
)
def test_a_limit_that_a_job_exceeds_by_itself_is_a_refusal(reason: str) -> None:
    """Such a QOS has DenyOnLimit, and other jobs do not count."""
    policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    error = refusal(SLURM, f"{reason}; Batch job submission failed: {policy}", ["--time=99"], 100)
    assert isinstance(error, SubmissionRefused)
    assert "another account= or qos=" in str(error)


def test_a_limit_on_the_size_of_arrays_is_met_by_smaller_ones() -> None:
    meaning = refusal(
        SLURM, "Batch job submission failed: Invalid job array specification", [], 100
    )
    assert isinstance(meaning, TryAgain)
    assert getattr(meaning, "limit", None) == 50


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (
            "Batch job submission failed: Invalid partition name specified",
            SubmissionRefused,
            "`sinfo` lists the partitions",
        ),
        (
            "Batch job submission failed: Requested node configuration is not available",
            SubmissionRefused,
            "ask for less",
        ),
        (
            "Batch job submission failed: Invalid account or account/partition combination "
            "specified",
            SubmissionRefused,
            "sacctmgr",
        ),
        ("unrecognized option '--nosuch'", SubmissionRefused, "it was asked for: --mem=1"),
        ("unrecognized option '--nosuch'", SubmissionRefused, "`sbatch --help`"),
        ("Invalid --time specification", SubmissionRefused, "time='2:00:00'"),
        ("Invalid --mem-per-cpu specification", SubmissionRefused, "mem='4G'"),
        (
            "Batch job submission failed: Requested time limit is invalid (missing or exceeds some "
            "limit)",
            SubmissionRefused,
            "`sinfo --format='%P %l'`",
        ),
        (
            "Batch job submission failed: Invalid generic resource (gres) specification",
            SubmissionRefused,
            "`sinfo --format='%P %G'`",
        ),
        ("Batch job submission failed: Invalid qos specification", SubmissionRefused, "qos="),
        ("Invalid feature specification", SubmissionRefused, "`sinfo --format='%N %f'`"),
        ("Invalid node name specified", SubmissionRefused, "`sinfo --Node`"),
        ("Requested reservation is invalid", SubmissionRefused, "scontrol show reservation"),
        ("project X is closed", SubmissionRefused, "a rule of the site may refuse it"),
        (
            "Batch job submission failed: Invalid user id",
            SchedulerUnavailable,
            "run this as a plain user",
        ),
    ],
)
def test_a_refusal_is_told_in_slurm_s_words_with_a_remedy(
    words: str, kind: type[Exception], told: str
) -> None:
    meaning = refusal(SLURM, words, ["--mem=1"], 100)
    assert isinstance(meaning, kind)
    assert words in str(meaning)
    assert told in str(meaning)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Munge encode failed: Failed to access /run/munge/munge.socket.2", "munge -n"),
        ("Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("Could not establish a configuration source", "SLURM_CONF"),
        ("sbatch is not installed here, or not on the PATH", "gridengine doctor"),
    ],
)
def test_an_unreachable_daemon_is_named_with_a_remedy(words: str, remedy: str) -> None:
    assert remedy in str(unavailable(SLURM, words))


def test_words_of_a_command_are_told_once_and_without_its_name() -> None:
    words = (
        'sbatch: error: no way\nsbatch: error: no way\nsbatch: fatal: it is over\nTry "sbatch '
        '--help" for more information\n'
    )
    assert error_text(words) == "no way; it is over"


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
def test_output_without_an_id_is_an_error(job: str, tasks: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a job"):
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
    with pytest.raises(ValueError, match=r"squeue says|not the id"):
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
def test_the_remaining_time_is_read_as_squeue_writes_it(text: str, seconds: float) -> None:
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


def test_the_end_of_a_job_is_told_with_exit_code_and_slurm_s_reason() -> None:
    told = ended("FAILED", ExitCode="3:0", Reason="NonZeroExitCode")
    assert told == "it failed (FAILED): exit status 3"
    for reason in ("JobLaunchFailure", "RaisedSignal:9(Killed)"):  # the latter from 24.11 on
        told = ended("FAILED", ExitCode="0:9", Reason=reason)
        assert told == "it failed (FAILED): killed by SIGKILL"
    assert ended("FAILED", Reason="BadConstraints") == "it failed (FAILED): BadConstraints"
    assert ended("TIMEOUT") == "it reached its time limit (TIMEOUT)"
    assert ended("CANCELLED", by="root") == "it was cancelled (CANCELLED), by root"


def test_the_end_of_an_unlisted_job_is_told_if_slurm_knows_it() -> None:
    assert "Slurm no longer knows it" in with_details(GONE, {}, "").reason
    told = with_details(VANISHED, {}, "eve")
    assert (told.deleted, told.reason) == (True, "it was cancelled (CANCELLED), by eve")
    assert with_details(GONE, {"JobState": "FAILED"}, "").reason == "it failed (FAILED)"


@pytest.mark.parametrize("lost", [GONE, VANISHED])
def test_an_unlisted_job_that_lives_is_told_as_a_listed_one(lost: Seen) -> None:
    fields = {"JobState": "RUNNING", "StartTime": "2026-11-29T16:31:15", "RunTime": "00:00:02"}
    fields |= {"TimeLimit": "00:10:00", "Reason": "None"}
    told = with_details(lost, fields, "")
    assert (told.state, told.start) == (WorkerStatus.RUNNING, "2026-11-29T16:31:15")
    assert told.remaining_seconds == 598
    told = with_details(lost, {"JobState": "PENDING", "Reason": "Resources"}, "")
    assert (told.state, told.reason) == (WorkerStatus.QUEUED, "Resources")
    told = with_details(lost, {"JobState": "COMPLETING", "TimeLimit": "UNLIMITED"}, "")
    assert (told.state, told.remaining_seconds) == (None, math.inf)


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED"])
def test_a_job_that_left_within_its_grace_time_was_preempted(state: str) -> None:
    told = with_details(seen_in(state), {"JobState": state, "PreemptTime": "None"}, "")
    assert not told.blameless
    [fields] = parse_jobs((RECORDED / "job-left-in-grace-time.txt").read_text()).values()
    fields["JobState"] = state
    told = with_details(seen_in(state), fields, "")
    assert (told.blameless, told.deleted) == (True, False)
    assert told.reason == f"it was preempted by another job ({state})"


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
        ("JobHeldAdmin", "it is held; `scontrol release JOB`"),
        ("launch failed requeued held", "it is held; `scontrol release JOB`"),
    ],
)
def test_passing_reasons_are_waited_for_and_told_with_a_remedy(reason: str, words: str) -> None:
    assert not is_permanent(reason)
    told = explanation(SLURM, seen_in("PENDING", reason=reason).reason)
    assert told.startswith(reason.strip("()"))
    assert words in told


def is_permanent(reason: str) -> bool:
    return SLURM.never.search(reason) is not None


REMEDIES = {
    "QOSNotAllowed": "its QOS is not allowed here",
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
def test_lasting_reasons_are_known_and_have_a_remedy(reason: str) -> None:
    assert is_permanent(reason)
    error = impossible(SLURM, reason, ["--cpus-per-task=500"])
    assert f"can never start it: {reason}: " in error.message
    assert REMEDIES.get(reason, "") in error.message
    assert "it was asked for: --cpus-per-task=500" in error.message
    assert (error.hint or "").index("; strict=False") > 0


def test_of_recorded_reasons_those_that_never_pass_are_known() -> None:
    """Slurm 22.05 has free words where a partition has AllowAccounts or AllowQos."""
    rows = parse_squeue((RECORDED / "limits.txt").read_text())
    told = {id: explanation(SLURM, seen.reason) for id, seen in rows.items()}
    assert {id for id, seen in rows.items() if is_permanent(seen.reason)} == {*"123456"} - {"5"}
    assert "(accts allows root not tests): its account is not allowed here" in told["1"]
    assert "(main allows deny not wait1): its QOS is not allowed here" in told["6"]
    assert "or may not use it" in told["4"]
    assert "a limit of its QOS" in told["8"]


def test_accounts_say_who_cancelled_a_job() -> None:
    told = "12_1|CANCELLED by 1001\n12_2|CANCELLED\n12_3|CANCELLED+\n13|CANCELLED by 0"
    assert parse_cancelled_by(told) == {"12_1": "1001", "13": "0"}
