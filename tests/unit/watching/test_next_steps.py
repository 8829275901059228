"""What users can do, by what batch systems and errors say."""

from __future__ import annotations

import pytest

from gridengine.schedulers.requests import explanation
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.watching.next_steps import failure_step, next_step


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("exit_status of prolog = 1", "administrators'"),
        ('queue instance "a.q@n" dropped because it is temporarily not available', "-explain aAE"),
        ("JobHeldUser", "release it: `scontrol release JOB`"),
        ("launch failed requeued held: it is held; release it: scontrol release JOB", "scontrol"),
        ("job is in hold state", "release it: `qrls JOB`"),
        ('cannot run in queue "all.q" because it is disabled', "qmod -e"),
        ("queue instance all.q@node1 is suspended", "resumed"),
        ('cannot run in PE "smp" because it only offers 0 slots', "qconf -spl"),
        ('cannot run in queue "b.q" because it is not contained in its hard queue list', "queue="),
        ('queue "a.q" is disabled; queue "b.q" dropped because it is full', "others' jobs"),
        ("can't open output file: No space left on device", "make room on that disk"),
        (explanation(SlurmCommands(), "AssocGrpCPUMinutesLimit"), "name another account="),
        (explanation(SlurmCommands(), "ReqNodeNotAvail"), "ask for other nodes"),
        ("AssocMaxJobsLimit: a limit of this user or account is reached", "other jobs to end"),
        ("Resources", "ask for less: Memory"),
        ("Priority", "squeue --start"),
        ("PartitionTimeLimit", "sinfo -o"),
        ("PartitionDown", "`sinfo` shows"),
        ("QOSMaxJobsPerUserLimit", "your other jobs"),
        ("", "ask again in a minute"),
        ("LaunchFailed", "ask the batch system itself"),
    ],
)
def test_a_batch_systems_reason_has_a_step(reason: str, step: str) -> None:
    assert step in next_step(reason)


def test_reasons_of_other_queues_count_only_alone() -> None:
    others = 'queue "a.q" is disabled; queue "b.q" not contained in its hard queue list'
    assert "qmod -e" in next_step(others)
    assert "qconf -spl" in next_step(f"{others}; cannot run in PE smp")


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        ("OSError: [Errno 28] No space left on device: 'x'", "make room"),
        ("Slurm refuses the job: Requested node configuration is not available", "ask for less"),
        ("OutOfMemory: a call of f", "more Memory"),
        ("TimeLimitExceeded: a call of f took longer than its WTime", "more time"),
        ("ModuleNotFoundError: No module named 'x'", "python="),
        ("ValueError: zero is bad", ""),
    ],
)
def test_failures_have_a_next_step_unless_only_their_code_can_tell(cause: str, step: str) -> None:
    found = failure_step(cause)
    assert step in found
    assert bool(step) is bool(found)


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        ("SubmissionRefused: Slurm refuses the job: Invalid partition", "its hint"),
        ("WorkerNotStarted: its log file could not be opened", "quota"),
        ("WorkerNotStarted: opening input/output file: Disk quota exceeded", "quota"),
    ],
)
def test_an_error_s_remedy_is_told_unless_a_disk_is_full(cause: str, step: str) -> None:
    assert step in failure_step(cause, "its hint")
