"""LSF's words, as its manuals and other programs have them: none was recorded by us."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from gridengine.errors import (
    ConfigurationError,
    OutOfMemory,
    SchedulerUnavailable,
    SubmissionRefused,
    TimeoutError,
)
from gridengine.resources import ZERO, Cores, GPUs, Memory, Resource, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers import LSFScheduler
from gridengine.schedulers.batch_commands import Queue, Seen, WorkerArray
from gridengine.schedulers.batch_system import TooMany
from gridengine.schedulers.command import command_environment, error_text
from gridengine.schedulers.command_launcher import explanation, refusal
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.lsf import LSFCommands
from gridengine.schedulers.requests import own_options, own_walltime, worker_options
from gridengine.settings.schema import QueueSite

LSF = LSFCommands()


def options(resources: Resource, *own: str, factor: float = 1.0, **site: str) -> list[str]:
    return worker_options(LSF, own, Demand(resources, factor), QueueSite(**site))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4), ["-n", "4", "-R", "span[hosts=1]"]),
        (Memory(2), ["-R", "rusage[mem=2048MB]"]),
        (GPUs(2), ["-gpu", "num=2"]),
        (WTime(90), ["-W", "3"]),
    ],
)
def test_requests_of_calls_are_said_in_lsfs_words(resources: Resource, words: list[str]) -> None:
    assert options(resources) == words


def test_arguments_are_options_of_bsub() -> None:
    given = {"queue": "long", "project": "p", "W": "2:00", "x": True}
    words = own_options(LSF, given, "-R 'rusage[mem=4GB]'")
    assert words == ["-q", "long", "-P", "p", "-W", "2:00", "-x", "-R", "rusage[mem=4GB]"]
    assert own_walltime(LSF, words) == 7200
    assert [LSF.parse_time(text) for text in ("90", "1:30/hostA", "soon")] == [5400, 5400, 0]
    assert options(ZERO, "-R", "rusage[mem=4GB]", factor=1.5) == ["-R", "rusage[mem=6144MB]"]
    assert options(WTime(60), "-W", "2:00", queue="long") == ["-W", "2:00", "-q", "long"]


@pytest.mark.parametrize(
    ("resources", "own", "words"),
    [
        (Memory(2), ["-R", "rusage[mem=4GB]"], r"both say -R rusage\[mem\]"),
        (Cores(2), ["-n", "4"], "-n 4 of the scheduler both say -n"),
        (WTime(60), ["-W", "1"], "-W 1 of the scheduler is less"),
    ],
)
def test_an_option_given_twice_is_an_error(resources: Resource, own: list[str], words: str) -> None:
    assert options(resources, "-R", "rusage[tmp=1GB]")
    with pytest.raises(ConfigurationError, match=words):
        options(resources, *own)


@pytest.mark.parametrize("native", ["-J x", "-o x", "-oo x", "-Is", "-K", "-cwd /"])
def test_reserved_options_are_refused(native: str) -> None:
    with pytest.raises(ConfigurationError, match="is not for users to set"):
        LSFScheduler(native=native)


def submitted(count: int) -> list[str]:
    log = "/home/a b/logs/worker.1.{}.log".format
    return LSF.submit(WorkerArray("me", count, Path("/home/a b/worker.sh"), ["-q", "q"], log))


def test_an_array_redirects_its_output_in_one_word_for_a_shell() -> None:
    *words, job = submitted(3)
    assert " ".join(words) == "bsub -rn -q q -J me[1-3] -o /dev/null -cwd /home/a b"
    assert shlex.split(job) == [
        *("/bin/sh", "-c", 'exec "$0" >"$1$LSB_JOBINDEX$2" 2>&1'),
        *("/home/a b/worker.sh", "/home/a b/logs/worker.1.", ".log"),
    ]


def test_one_worker_is_no_array() -> None:
    *words, job = submitted(1)
    assert words[words.index("-J") + 1] == "me"
    assert shlex.split(job)[-2:] == ["/home/a b/logs/worker.1.1.log", ""]
    assert "LSB_JOBINDEX" not in job


def test_ids_are_those_of_bkill() -> None:
    said = "Job <7041> is submitted to default queue <normal>.\n"
    assert LSF.ids(said, 2) == ["7041[1]", "7041[2]"]
    assert LSF.ids(f"memory reservation is (MB): 1024\n{said}", 1) == ["7041"]
    assert LSF.ids("Request aborted by esub. Job not submitted.\n", 1) == []


def seen(state: str, **fields: str) -> Seen:
    record = {"JOBID": "7041", "JOBINDEX": "2", "STAT": state, "EXIT_CODE": "", **fields}
    listing = {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [record]}
    return LSF.parse(json.dumps(listing))["7041[2]"]


def test_no_jobs_are_listed_as_nothing_and_other_words_are_no_listing() -> None:
    error = {"JOBID": "8", "ERROR": "Job <8> is not found"}
    assert LSF.parse(json.dumps({"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [error]})) == {}
    assert LSF.parse("") == {}
    for words in ("Cannot connect to LSF", "[]"):
        with pytest.raises(ValueError, match="bjobs says"):
            LSF.parse(words)


def test_an_id_is_the_same_however_bjobs_shows_it() -> None:
    for job, index, id in (("7", "0", "7"), ("7", "-", "7"), ("7", "3", "7[3]"), ("7[3]", "3", "")):
        record = {"JOBID": job, "JOBINDEX": index, "STAT": "RUN"}
        assert set(LSF.parse(json.dumps({"RECORDS": [record]}))) == {id or "7[3]"}


def test_a_waiting_job_says_why() -> None:
    words = "New job is waiting for scheduling"
    assert seen("PEND", PEND_REASON=f"{words};") == Seen(WorkerStatus.QUEUED, words)
    held = seen("PSUSP", PEND_REASON="The job was suspended by the user while pending;")
    assert "`bresume JOB`" in explanation(LSF, held.reason)
    running = seen("RUN", PEND_REASON="-", EXEC_HOST="4*hostA:hostB")
    assert running == Seen(WorkerStatus.RUNNING, host="hostA")
    assert seen("USUSP").state is WorkerStatus.SUSPENDED
    assert seen("UNKWN").state is WorkerStatus.RUNNING  # lost sight of is not ended


OWNER = "TERM_OWNER: job killed by owner"
MEMORY = "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit"
TIME = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"


def test_an_ended_job_says_how() -> None:
    assert seen("DONE").state is WorkerStatus.ENDED
    assert seen("EXIT", EXIT_CODE="3").reason == "exit status 3"
    assert seen("EXIT", EXIT_CODE="137").reason == "killed by SIGKILL"
    deleted = seen("EXIT", EXIT_REASON=OWNER)
    assert (deleted.deleted, deleted.reason) == (True, OWNER)
    assert seen("EXIT", EXIT_CODE="137", EXIT_REASON=MEMORY).fault is OutOfMemory
    assert seen("EXIT", EXIT_CODE="140", EXIT_REASON=TIME).fault is TimeoutError
    assert seen("EXIT", EXIT_REASON="TERM_PREEMPT: job killed after preemption").blameless
    assert seen("ZOMBI").uncertain


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("nosuch: No such queue. Job not submitted.", "`bqueues` lists"),
        ("Cannot exceed queue's hard limit(s). Job not submitted.", "limits of each queue"),
        ("Bad resource requirement syntax. Job not submitted.", "`lsinfo`"),
        ("Too many processors requested. Job not submitted.", "`bhosts`"),
        ("Request aborted by esub. Job not submitted.", "a rule of the site"),
    ],
)
def test_a_refusal_has_a_remedy(said: str, remedy: str) -> None:
    error = refusal(LSF, error_text(said), ["-q", "nosuch"], 2)
    assert isinstance(error, SubmissionRefused)
    assert remedy in str(error)


def test_limits_of_the_site_are_no_refusals() -> None:
    large = refusal(LSF, "Job array index too large. Job not submitted.", [], 4)
    assert isinstance(large, TooMany)
    assert large.limit == 2
    waits = "User <me>: Pending job threshold reached. Retrying in 60 seconds..."
    assert isinstance(refusal(LSF, waits, [], 4), TooMany)
    assert LSF.retrying in waits.encode()
    root = refusal(LSF, "Root job submission is disabled. Job not submitted.", [], 1)
    assert isinstance(root, SchedulerUnavailable)
    assert LSF.told(["MAX_JOB_ARRAY_SIZE = 200\n"], []).most_tasks == 200
    assert LSF.told([""], []).most_tasks == 1000


def test_a_cluster_that_is_away_says_nothing_of_jobs() -> None:
    for words in (
        "Cannot connect to LSF. Please wait ...",
        "batch daemon is not responding ... still trying",
        "Contacting batch daemon: Communication timeout",
    ):
        assert LSF.away.search(words)
        assert not LSF.gone.search(words)
    for words in ("Job <1>: No matching job found", "Job <3>: Job has already finished"):
        assert LSF.gone.search(words)


def test_variables_that_change_the_output_of_commands_are_not_handed_on() -> None:
    given = {"LSB_BJOBS_FORMAT": "jobid", "LSB_JOBID": "3", "LSF_ENVDIR": "/c", "HOME": "/h"}
    assert command_environment(LSF, given) == {"LSF_ENVDIR": "/c", "HOME": "/h"}


def test_doctor_is_told_the_queues() -> None:
    table = (
        "QUEUE_NAME PRIO STATUS MAX JL/U JL/P JL/H NJOBS PEND RUN SUSP\n"
        "normal 30 Open:Active - - - - 4 1 3 0\nnight 20 Open:Inact - - - - 0 0 0 0\n"
    )
    assert LSF.parse_queues(table) == [
        Queue("normal", "Open:Active"),
        Queue("night", "Open:Inact", open=False),
    ]
