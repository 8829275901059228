"""OAR's words, as 2.6.1 says them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError, SubmissionRefused, TimeoutError
from gridengine.resources import ZERO, Cores, GPUs, Memory, Resource, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers import OARScheduler
from gridengine.schedulers.batch_commands import Seen, WorkerArray
from gridengine.schedulers.command import error_text
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.oar import OARCommands
from gridengine.schedulers.requests import (
    explanation,
    own_options,
    own_walltime,
    refusal,
    worker_options,
)
from gridengine.settings.schema import QueueSite

OAR = OARCommands()


def options(resources: Resource, *own: str, **site: str) -> list[str]:
    return worker_options(OAR, own, Demand(resources), QueueSite(**site))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4), ["--resource=nodes=1/core=4"]),
        (WTime("2:00:00"), ["--resource=walltime=02:01:00"]),
        (Cores(4) & WTime(60), ["--resource=nodes=1/core=4,walltime=00:02:00"]),
        (GPUs(2), ["--resource=nodes=1/gpu=2"]),
        (Cores(4) & GPUs(2), ["--resource=nodes=1/gpu=2/core=2"]),
    ],
)
def test_all_resources_are_one_option(resources: Resource, words: list[str]) -> None:
    assert options(resources) == words


def test_the_users_own_resources_are_joined_with_those_of_calls() -> None:
    own = ("-l", "host=1/core=8", "-p", "mem >= 64")
    assert options(WTime(60), *own, queue="long") == [
        *("-p", "mem >= 64", "--queue=long"),
        "--resource=host=1/core=8,walltime=00:02:00",
    ]
    assert options(WTime(60), "--resource=walltime=1") == ["--resource=walltime=1"]
    with pytest.raises(ConfigurationError, match=r"Cores\(4\).* and -l host=1/core=8"):
        options(Cores(4), *own)
    with pytest.raises(ConfigurationError, match=r"walltime=0:1 of the scheduler is less"):
        options(WTime(60), "-lwalltime=0:1")


def test_memory_is_an_error_that_names_the_way() -> None:
    with pytest.raises(
        ConfigurationError, match=r'Memory\(8\): OAR gives out no memory[^$]*property="memnode'
    ):
        options(Memory(8))


def test_arguments_become_options_and_times_begin_with_hours() -> None:
    given = {"queue": "long", "walltime": "1:30", "property": "mem >= 64"}
    words = own_options(OAR, given, "-t besteffort")
    assert words == [
        *("--queue=long", "--resource=walltime=1:30", "--property=mem >= 64", "-t", "besteffort")
    ]
    assert own_walltime(OAR, words) == 5400
    assert OARScheduler(walltime="2").walltime == 7200
    with pytest.raises(ConfigurationError, match="-O is not for users to set"):
        OARScheduler(native="-O x")


def test_an_array_has_an_id_for_each_job_and_logs_named_by_it() -> None:
    log = "/home/a b/logs/worker.1.{}.log".format
    words = OAR.submit(WorkerArray("me", 2, Path("/home/a b/worker.sh"), ["--queue=q"], log))
    assert words[-1] == "'/home/a b/worker.sh'"
    assert "--stdout=/home/a b/logs/worker.1.%jobid%.log" in words
    log = "/home/röm/logs/worker.1.{}.log".format
    words = OAR.submit(WorkerArray("me", 2, Path("/home/röm/worker.sh"), [], log))
    assert "--stdout=/dev/null" in words
    assert words[-1] == (
        "cd '/home/röm'; exec >'/home/röm/logs/worker.1.'$OAR_JOB_ID.log 2>&1; "
        "exec '/home/röm/worker.sh'"
    )
    printed = (
        "[ADMISSION RULE] Set default walltime to 7200.\nOAR_JOB_ID=11\nOAR_JOB_ID=12\n"
        "OAR_ARRAY_ID=11\n"
    )
    assert OAR.ids(printed, 2) == ["11", "12"]
    assert OAR.log_word(1, "11") == "11"


def seen(state: str, *events: tuple[str, str], **fields: object) -> Seen:
    told = [{"type": kind, "description": words} for kind, words in events]
    job = {"state": state, "events": told, "assigned_network_address": ["n1"], **fields}
    return OAR.parse(json.dumps({"3": job}))["3"]


def test_no_jobs_print_nothing() -> None:
    assert OAR.parse("") == {}


def test_a_running_job_says_when_it_has_to_end() -> None:
    running = seen("Running", startTime=1000, walltime=120)
    assert (running.state, running.ends_at) == (WorkerStatus.RUNNING, 1120)
    assert seen("Running", startTime=1000, walltime=None).ends_at == math.inf
    assert seen("Suspended").state is WorkerStatus.SUSPENDED


def test_a_waiting_job_says_why() -> None:
    words = "No enough matching resources (no_matching_slot)"
    assert seen("Waiting", message=words) == Seen(WorkerStatus.QUEUED, words)
    held = seen("Hold", message="R=1,W=2:0:0")
    assert "`oarresume JOB` releases it" in explanation(OAR, held.reason)
    assert seen("Finishing").state is None


FRAG = ("FRAG_JOB_REQUEST", "User eve requested to frag the job 3")
WALLTIME = ("WALLTIME", "Job [3] reached its walltime (start: 1 + walltime:5 > current time: 9)")
SWITCH = ("SWITCH_INTO_TERMINATE_STATE", "[bipbip 3] Ask to change the job state")


def test_an_ended_job_says_how() -> None:
    assert seen("Terminated", SWITCH, exit_code=0).state is WorkerStatus.ENDED
    assert seen("Terminated", SWITCH, exit_code=768).reason == "exit status 3"
    assert seen("Terminated", SWITCH, exit_code=9).reason == "killed by SIGKILL"
    deleted = seen("Error", FRAG, SWITCH, exit_code=None)
    assert (deleted.deleted, deleted.reason) == (True, f"it was deleted: {FRAG[1]}")
    late = seen("Error", FRAG, WALLTIME, exit_code=None)
    assert (late.fault, late.deleted, late.host) == (TimeoutError, False, "n1")


def test_a_job_that_could_not_be_started_says_why() -> None:
    words = "[bipbip 3] Cannot create .stdout and .stderr files in /home/me on the node n2"
    failed = seen("Error", ("SWITCH_INTO_ERROR_STATE", SWITCH[1]), ("OUTPUT_FILES", words))
    assert (failed.state, failed.reason, failed.blameless) == (WorkerStatus.FAILED, words, False)
    assert seen("Error", ("BESTEFFORT_KILL", "another job takes its place")).blameless


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("# There are not enough resources for your request", "`oarnodes`"),
        ("# Error: queue 'nosuch' does not exist", "queue="),
        ('# Bad resource request (ERROR:  column "foo" does not exist', "properties of nodes"),
        ("# Error: cannot recognize -- ,walltime=abc -- resource", "walltime=2:0:0"),
        ("Unknown option: nosuch", "`oarsub --help`"),
        ("# Error: not on a Sunday", "admission rule"),
    ],
)
def test_a_refusal_has_a_remedy(said: str, remedy: str) -> None:
    error = refusal(OAR, error_text(said), ["--resource=core=100"], 2)
    assert isinstance(error, SubmissionRefused)
    assert remedy in str(error)


def test_a_database_that_is_away_is_no_refusal() -> None:
    for words in ("DB connection error, exiting.", "Cannot connect to database (type=Pg"):
        assert OAR.away.search(words)
    assert OAR.gone.search("Cannot frag 3 ; This job was already killed.")
    assert OAR.gone.search("Cannot frag 99999 ; You are not the right user.")
