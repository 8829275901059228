"""Flux's words, as flux-core 0.88 said them (`recorded/flux`)."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError, SubmissionRefused, TimeoutError
from gridengine.resources import ZERO, Cores, GPUs, Memory, Resource, Token, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers import FluxScheduler
from gridengine.schedulers.batch_commands import Queue, Seen, WorkerArray
from gridengine.schedulers.command import command_environment, error_text
from gridengine.schedulers.command_launcher import explanation, refusal
from gridengine.schedulers.flux import FluxCommands, seen_in
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.requests import own_options, own_walltime, worker_options
from gridengine.settings.schema import QueueSite

FLUX = FluxCommands()
RECORDED = Path(__file__).parent / "recorded" / "flux"
JOBS = FLUX.parse((RECORDED / "jobs.json").read_text())


def recorded(name: str) -> str:
    """Return the output of a recorded command."""
    lines = (RECORDED / f"{name}.txt").read_text().splitlines(keepends=True)
    return "".join(lines[1:-1])


def options(resources: Resource, *own: str, **site: str) -> list[str]:
    return worker_options(FLUX, own, Demand(resources), QueueSite(**site))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4), ["--cores-per-task=4"]),
        (GPUs(2), ["--gpus-per-task=2"]),
        (WTime(60), ["--time-limit=120s", "--signal=SIGTERM@30s"]),
        (Token("big"), ["--requires=big"]),
    ],
)
def test_requests_of_calls_are_said_in_fluxs_words(resources: Resource, words: list[str]) -> None:
    assert options(resources) == words


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("--exclusive", ["--exclusive", "--nodes=1"]),
        ("-x", ["-x", "--nodes=1"]),
        ("--exclusive -N2", ["--exclusive", "-N2"]),
    ],
)
def test_whole_nodes_are_asked_for_by_their_number(own: str, words: list[str]) -> None:
    assert options(ZERO, *own.split()) == words


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "queue=\nJob submission is enabled\nScheduling is started\n",
            "what it asks for is in use",
        ),
        ("queue=\nScheduling is stopped\n", "its queue is stopped"),
        (recorded("wait-queue-stopped"), "its queue is stopped"),
        (
            "queue=batch\nbatch: Scheduling is stopped: repairs\ndebug: Scheduling is started\n",
            "its queue is stopped: repairs",
        ),
        ("queue=debug\nbatch: Scheduling is stopped\ndebug: Scheduling is started\n", "in use"),
        ("flux-queue: ERROR", ""),
    ],
)
def test_the_state_of_its_queue_says_why_a_job_waits(said: str, reason: str) -> None:
    found = FLUX.because(said)
    assert reason in found
    assert bool(found) == bool(reason)


def test_memory_is_an_error_that_names_the_way() -> None:
    with pytest.raises(ConfigurationError, match=r"Memory\(8\): Flux gives out no memory"):
        options(Memory(8))


def test_times_without_a_unit_are_minutes() -> None:
    words = own_options(FLUX, {"queue": "long", "time_limit": "1.5h", "exclusive": True}, "-N 1")
    assert words == ["--queue=long", "--time-limit=1.5h", "--exclusive", "-N", "1"]
    assert own_walltime(FLUX, words) == 5400
    assert [FLUX.parse_time(text) for text in ("90", "30s", "2d", "long")] == [5400, 30, 172800, 0]
    assert options(WTime(60), "-t5", account="lab") == [
        *("-t5", "--signal=SIGTERM@30s", "--bank=lab")
    ]
    with pytest.raises(ConfigurationError, match="-t1 of the scheduler is less"):
        options(WTime(60), "-t1")
    with pytest.raises(ConfigurationError, match="--ntasks is not for users to set"):
        FluxScheduler(ntasks=2)


def submitted(count: int, folder: str = "/home/a b") -> list[str]:
    def log(word: object) -> str:
        return f"{folder}/logs/worker.1.{word}.log"

    return FLUX.submit(WorkerArray("me", count, Path(folder, "worker.sh"), ["--queue=q"], log))


def test_jobs_have_logs_by_their_ids() -> None:
    words = submitted(3)
    assert " ".join(words[: words.index("--")]) == ("flux submit --queue=q --job-name=me --cc=1-3")
    assert words[-3:] == ["/home/a b/worker.sh", "/home/a b/logs/worker.1.", ".log"]
    assert "$FLUX_JOB_ID$2" in words[-4]
    assert FLUX.ids("f8HRYN9d\nf8HRYN9e\n", 2) == ["f8HRYN9d", "f8HRYN9e"]
    assert FLUX.ids("Welcome!\nf8HRYN9d\nf8HRYN9e\n", 2) == ["f8HRYN9d", "f8HRYN9e"]
    assert FLUX.log_word(1, "f8HRYN9d") == "f8HRYN9d"


def test_one_job_asks_for_no_copies() -> None:
    assert not any(word.startswith("--cc") for word in submitted(1))
    assert FLUX.ids("ƒY4HxPy\n", 1) == ["fY4HxPy"]
    for output, count in (("fY4HxPy\n", 2), ("", 1), ("Usage: flux\n", 1)):
        assert FLUX.ids(output, count) == []


def test_a_job_writes_its_log_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a r\u00f6m 'x %j \\n {0}"
    (folder / "logs").mkdir(parents=True)
    (folder / "worker.sh").write_text("#!/bin/sh\npwd\n")
    (folder / "worker.sh").chmod(0o700)
    words = submitted(2, str(folder))
    assert not any("{" in word or "}" in word for word in words)  # Flux would replace them
    subprocess.run(words[words.index("--") + 1 :], env={"FLUX_JOB_ID": "f1"}, check=True)
    assert (folder / "logs" / "worker.1.f1.log").read_text() == f"{folder}\n"


def test_ids_are_ascii_whatever_the_locale() -> None:
    given = {"FLUX_URI": "local:///run/flux/local", "FLUX_JOB_ID": "f1", "HOME": "/h"}
    assert command_environment(FLUX, given) == {
        "FLUX_URI": "local:///run/flux/local",
        "HOME": "/h",
        "FLUX_F58_FORCE_ASCII": "1",
    }


def test_a_listing_of_no_jobs_is_empty_and_other_words_are_no_listing() -> None:
    assert FLUX.parse('{"jobs": []}\n') == {}
    for words in ("", "flux-jobs: ERROR", "[]"):
        with pytest.raises(ValueError, match="flux jobs says"):
            FLUX.parse(words)


def test_a_waiting_job_says_why() -> None:
    depends = JOBS["f52CG2vs"]
    assert depends == Seen(WorkerStatus.QUEUED, "it waits for other jobs: after-success=f4dPq5ZH")
    held = JOBS["f5F11q7d"]
    assert held == Seen(WorkerStatus.QUEUED, "it is held (urgency 0)")
    assert "`flux job urgency JOB default`" in explanation(FLUX, held.reason)
    annotations = {"sched": {"reason_pending": "no nodes"}}
    told = seen_in({"state": "SCHED", "annotations": annotations})
    assert told == Seen(WorkerStatus.QUEUED, "no nodes")


def test_a_running_job_says_when_it_has_to_end() -> None:
    assert JOBS["f74fre79"] == Seen(WorkerStatus.RUNNING, host="node1", ends_at=math.inf)
    assert JOBS["f4dPq5ZH"].ends_at == pytest.approx(1795870987, abs=1)
    assert seen_in({"state": "CLEANUP", "nodelist": "n1"}) == Seen(None, host="n1")


@pytest.mark.parametrize(
    ("id", "end"),
    [
        ("fhSPQpX", Seen(WorkerStatus.ENDED, "it ended by itself", host="node1")),
        ("fsZUWR5", Seen(WorkerStatus.FAILED, "exit status 3", host="node1")),
        ("f23TDiUX", Seen(WorkerStatus.FAILED, "killed by SIGKILL", host="node1")),
        (
            "f2MRT1aw",
            Seen(WorkerStatus.FAILED, "it reached its time limit", TimeoutError, host="node1"),
        ),
        ("f4QBMUs1", Seen(WorkerStatus.FAILED, "it was cancelled", deleted=True, host="node1")),
        ("f7Hc2Nhd", Seen(WorkerStatus.FAILED, "it was cancelled: not needed", deleted=True)),
    ],
)
def test_an_ended_job_says_how(id: str, end: Seen) -> None:
    assert JOBS[id] == end


def test_a_job_that_could_not_be_started_says_why() -> None:
    assert JOBS["f2pZurs9"].reason.endswith("/nonexistent/x: No such file or directory")
    assert JOBS["f2c7utdD"].reason.startswith("unsatisfiable request: need 1 slot(s) of 64")
    exception = {"occurred": True, "type": "exec", "note": "lost contact with job shell"}
    assert seen_in({"state": "INACTIVE", "result": "FAILED", "exception": exception}).uncertain


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("[Errno 22] 'nope' is not a valid queue", "`flux queue list`"),
        (recorded("submit-unknown-queue"), "`flux queue list`"),
        (recorded("submit-unknown-option"), "is one misspelt?"),
        ("flux-submit: ERROR: invalid Flux standard duration", "time_limit='2h'"),
    ],
)
def test_a_refusal_has_a_remedy(said: str, remedy: str) -> None:
    error = refusal(FLUX, error_text(said), ["--queue=nope"], 1)
    assert isinstance(error, SubmissionRefused)
    assert remedy in str(error)


def test_an_instance_that_is_away_says_nothing_of_jobs() -> None:
    for words in (
        "flux-jobs: ERROR: Unable to connect to Flux: broker socket /nope was not found",
        "flux: flux_open: No such file or directory",
    ):
        assert FLUX.away.search(words)
        assert not FLUX.gone.search(words)
    for words in ("f234: unknown job id", "fxsqw2o: job is inactive"):
        assert FLUX.gone.search(words)


def test_queues_are_open_or_closed_and_an_instance_without_names_for_them_has_one() -> None:
    assert FLUX.parse_queues("|✔|✔\n") == [Queue("unnamed", "open")]
    several = [Queue("main", "open"), Queue("closed", "closed", open=False)]
    assert FLUX.parse_queues(recorded("queue-list")) == several
    assert FLUX.parse_queues("batch|✔|✗\n") == [Queue("batch", "closed", open=False)]
