"""The steps that users can take, by what batch systems and errors say."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from gridengine.schedulers.registry import BATCH_SYSTEMS
from gridengine.schedulers.requests import explanation
from gridengine.settings.schema import OF_SITES
from gridengine.watching.next_steps import (
    failure_step,
    reason_and_step,
    resume_step,
    silence_step,
    words_of,
)
from tests.support.tiny_batch import TinyCommands, install

GRID_ENGINE, SLURM, HTCONDOR, OAR, PBS, LSF, FLUX = (one.class_name for one in BATCH_SYSTEMS)
OTHERS = 'queue "a.q" is disabled; queue "b.q" not contained in its hard queue list'
COMMANDS = {
    GRID_ENGINE: "qstat -j|qmod|qrls|qconf",
    SLURM: "scontrol|sinfo|squeue|sshare|sacctmgr",
    HTCONDOR: "condor_",
    OAR: "oar(stat|resume|nodes)",
    PBS: "qstat -[fQB]|qrls|qsig|pbsnodes",
    LSF: "b(jobs|resume|queues|hosts)",
    FLUX: "flux ",
}
"""The commands of each system, as its texts name them."""


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """Forget the systems that other tests have asked for."""
    words_of.cache_clear()


def step_of(scheduler: str, reason: str) -> str:
    """Return the next step for a job that waits for this reason, by its launcher's words."""
    words = words_of(scheduler)
    assert words is not None
    told, step = reason_and_step(scheduler, explanation(words(), reason), "17.1")
    assert told.startswith(reason)
    assert step not in told or not reason
    return step


@pytest.mark.parametrize(
    ("scheduler", "reason", "step"),
    [
        (GRID_ENGINE, "exit_status of prolog = 1", "administrators'"),
        (
            GRID_ENGINE,
            'queue instance "a.q@n" dropped because it is temporarily not available',
            "aAE",
        ),
        (GRID_ENGINE, "job is in hold state", "`qrls 17.1` releases it"),
        (GRID_ENGINE, 'cannot run in queue "all.q" because it is disabled', "qmod -e"),
        (GRID_ENGINE, "queue instance all.q@node1 is suspended", "resumed"),
        (GRID_ENGINE, 'cannot run in PE "smp" because it only offers 0 slots', "qconf -spl"),
        (GRID_ENGINE, "because it is not contained in its hard queue list (-q)", "queue="),
        (
            GRID_ENGINE,
            'queue "a.q" is disabled; queue "b.q" dropped because it is full',
            "others' jobs",
        ),
        (GRID_ENGINE, "can't open output file: No space left on device", "make room on that disk"),
        (GRID_ENGINE, "some new words", "`qstat -j 17.1`"),
        (GRID_ENGINE, OTHERS, "qmod -e"),
        (GRID_ENGINE, f"{OTHERS}; cannot run in PE smp", "qconf -spl"),
        (SLURM, "JobHeldUser", "`scontrol release 17.1` releases it"),
        (SLURM, "launch failed requeued held", "`scontrol release 17.1` releases it"),
        (SLURM, "AssocGrpCPUMinutesLimit", "another account="),
        (SLURM, "ReqNodeNotAvail, UnavailableNodes:n1", "ask for others"),
        (SLURM, "AssocMaxJobsLimit", "other jobs to end"),
        (SLURM, "Resources", "ask for less"),
        (SLURM, "Priority", "squeue --start"),
        (SLURM, "PartitionTimeLimit", "sinfo -o"),
        (SLURM, "PartitionDown", "`sinfo` lists"),
        (SLURM, "QOSMaxJobsPerUserLimit", "your other jobs"),
        (SLURM, "None", "ask again in a minute"),
        (SLURM, "LaunchFailed", "`scontrol show job 17.1`"),
        (HTCONDOR, "it is held: via condor_hold (by user me)", "`condor_release 17.1` releases it"),
        (HTCONDOR, "what it asks for is in use", "ask for less"),
        (HTCONDOR, "no slot has TARGET.Arch now", "`condor_q -better-analyze 17.1`"),
        (OAR, "held", "`oarresume 17.1` releases it"),
        (OAR, "Karma = 0.5", "`oarstat -f -j 17.1`"),
        (PBS, "it is held (u)", "`qrls 17.1` releases it"),
        (
            PBS,
            "Not Running: Insufficient amount of resource: ncpus (R: 4 A: 0 T: 4)",
            "ask for less",
        ),
        (PBS, "Not Running: Queue not started.", "another queue="),
        (PBS, "Not Running: PBS Error: something", "`qstat -f 17.1`"),
        (LSF, "The job was suspended by the user while pending", "`bresume 17.1` releases it"),
        (LSF, "Job dependency condition not satisfied", "`bjobs -l 17.1`"),
        (FLUX, "it is held (urgency 0)", "`flux job urgency 17.1 default` releases it"),
        (FLUX, "it waits for other jobs: after-success=f1", "`flux job eventlog 17.1`"),
        *((one, "", "ask again in a minute") for one in COMMANDS),
    ],
)
def test_a_waiting_job_has_a_step_in_its_systems_words(
    scheduler: str, reason: str, step: str
) -> None:
    found = step_of(scheduler, reason)
    assert step in found
    others = "|".join(words for name, words in COMMANDS.items() if name != scheduler)
    assert not re.search(others, found) or re.search(COMMANDS[scheduler], found)


@pytest.mark.parametrize("scheduler", COMMANDS)
def test_suspended_workers_are_resumed_by_the_command_of_their_system(scheduler: str) -> None:
    step = resume_step(scheduler, "17.1")
    assert re.search(rf"`({COMMANDS[scheduler]})[^`]* 17.1`", step)


@pytest.mark.parametrize(("job", "words"), [("", "kill -CONT"), ("17", "batch system's own")])
def test_suspended_workers_of_no_known_system_have_a_step(job: str, words: str) -> None:
    assert words in resume_step("TheirScheduler", job)
    assert reason_and_step("TheirScheduler", "held", "17") == (
        *("held", "ask the batch system itself"),
    )


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


def test_a_system_of_a_site_s_own_gives_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "tiny = tests.support.tiny_batch:TinyScheduler")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(TinyCommands, "look", "look --all JOB")
    _, step = reason_and_step("TinyScheduler", "some new words", "17.1")
    assert "`look --all 17.1`" in step
    assert "`look --all 17.1`" in silence_step("TinyScheduler", "17.1")


def test_silent_processes_of_this_machine_have_no_batch_system_to_ask() -> None:
    assert silence_step("ProcessScheduler", "").startswith("look at that machine")


def test_a_site_s_scheduler_that_cannot_be_imported_has_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gridengine")
    install(tmp_path, "tiny = no_such_module:TinyScheduler")
    monkeypatch.syspath_prepend(tmp_path)
    assert words_of("TinyScheduler") is None
    assert "TinyScheduler cannot be imported here: ModuleNotFoundError" in caplog.text


def test_the_entry_points_of_sites_are_read_once_for_a_class_of_no_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: read.append(group) or ())
    for _ in range(3):
        resume_step("TheirScheduler", "17")
    assert read == [OF_SITES]
