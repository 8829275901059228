"""PBS's words, as an OpenPBS said them (`recorded/openpbs`)."""

from __future__ import annotations

import math
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

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
from gridengine.schedulers import PBSScheduler
from gridengine.schedulers.batch_commands import GONE, VANISHED, Queue, Seen, WorkerArray
from gridengine.schedulers.batch_system import TooMany
from gridengine.schedulers.command import CommandRunner, error_text
from gridengine.schedulers.command_launcher import explanation, impossible, refusal
from gridengine.schedulers.launcher import BatchSystemRefusal, Unreachable, WorkerStatus
from gridengine.schedulers.pbs import PBSCommands, seen_in
from gridengine.schedulers.requests import own_options, own_walltime, worker_options
from gridengine.settings.schema import QueueSite

RECORDED = Path(__file__).parent / "recorded" / "openpbs"
PBS = PBSCommands()


class Recorded(NamedTuple):
    """What one command of an OpenPBS printed, and its status."""

    output: str
    errors: str
    status: int


def recorded(name: str) -> Recorded:
    text = (RECORDED / f"{name}.txt").read_text(encoding="utf-8", errors="surrogateescape")
    pattern = r"[$#] .*?\n--- stdout\n(.*?)--- stderr\n(.*?)--- status (\d+)\n"
    match = re.fullmatch(pattern, text, re.DOTALL)
    assert match is not None
    return Recorded(match[1], match[2], int(match[3]))


def again(name: str, tmp_path: Path) -> str:
    """Run a command that says what was recorded, as those of PBS are run."""
    said = recorded(name)
    for file, text in (("out", said.output), ("err", said.errors)):
        (tmp_path / file).write_text(text, encoding="utf-8", errors="surrogateescape")
    script = f'cat "{tmp_path}/out"; cat "{tmp_path}/err" >&2; exit {said.status}'
    return CommandRunner(PBS, {"PATH": "/bin:/usr/bin"}).run(["/bin/sh", "-c", script])


def seen(name: str) -> dict[str, Seen]:
    return PBS.parse(recorded(name).output)


# Options.


def options(resources: Resource, *own: str, factor: float = 1.0, **site: str) -> list[str]:
    return worker_options(PBS, own, Demand(resources, factor), QueueSite(**site))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4), ["-l", "select=1:ncpus=4"]),
        (Cores(4) & Memory(2), ["-l", "select=1:ncpus=4:mem=2048mb"]),
        (GPUs(2), ["-l", "select=1:ngpus=2"]),
        (WTime(60), ["-lwalltime=120"]),
        (WTime(60) & Cores(2), ["-l", "walltime=120", "-l", "select=1:ncpus=2"]),
    ],
)
def test_resources_of_one_node_are_one_chunk(resources: Resource, words: list[str]) -> None:
    assert options(resources) == words


def test_the_users_own_select_is_completed() -> None:
    own = ("-lselect=1:arch=linux,walltime=1:00:00", "-l", "place=excl", "-h", "-qlong")
    assert options(Cores(4) & WTime(60), *own) == [
        *("-l", "walltime=1:00:00", "-l", "place=excl", "-h", "-q", "long"),
        *("-l", "select=1:arch=linux:ncpus=4"),
    ]
    assert options(ZERO, *own) == list(own)
    assert options(ZERO, "-lplace=excl") == ["-l", "place=excl", "-l", "select=1"]
    assert options(ZERO, queue="long", account="lab") == ["-q", "long", "-A", "lab"]
    assert options(ZERO, "-q", "short", queue="long") == ["-q", "short"]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (["-l", "select=1:ncpus=2"], r"Cores\(4\) .* -l select=1:ncpus=2 .* both say ncpus"),
        (["-lncpus=2,place=free"], r"Cores\(4\) .* -l ncpus=2 of the scheduler both say ncpus"),
    ],
)
def test_an_option_given_twice_is_an_error(own: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        options(Cores(4), *own)


def test_all_memory_is_multiplied() -> None:
    assert options(ZERO, "-l", "mem=1gb", factor=2.0) == ["-l", "select=1:mem=2048mb"]
    assert options(ZERO, "-l", "select=1:ncpus=2:mem=512MB", factor=2.0) == [
        *("-l", "select=1:ncpus=2:mem=1024mb")
    ]


def test_arguments_are_resources_but_for_a_few() -> None:
    given = {"queue": "long", "project": "p", "walltime": "2:00:00", "mem": "4gb", "big": True}
    words = own_options(PBS, given, "-W depend=afterok:1.s")
    assert " ".join(words) == (
        "-q long -P p -l walltime=2:00:00 -l mem=4gb -l big=True -W depend=afterok:1.s"
    )
    assert own_walltime(PBS, words) == 7200
    assert PBSScheduler(walltime="0:30").walltime == 30


@pytest.mark.parametrize("native", ["-J 1-4", "-o x", "-oe", "-N me", "-I", "-W block=true"])
def test_reserved_options_are_refused(native: str) -> None:
    with pytest.raises(ConfigurationError, match="is not for users to set"):
        PBSScheduler(native=native)


# Submission.


def submitted(count: int) -> list[str]:
    log = "/home/a b/logs/worker.1.{}.log".format
    return PBS.submit(WorkerArray("me", count, Path("/home/a b/worker.sh"), ["-q", "q"], log))


def test_an_array_redirects_its_output_by_itself() -> None:
    words = submitted(3)
    assert " ".join(words[: words.index("--")]) == (
        "qsub -f -m n -q q -N me -J 1-3 -j oe -o localhost:/dev/null"
    )
    assert words[-3:] == ["/home/a b/worker.sh", "/home/a b/logs/worker.1.", ".log"]
    assert '>"$1$PBS_ARRAY_INDEX$2"' in words[-4]


def test_one_worker_is_no_array_which_pbs_refuses_and_is_not_started_again() -> None:
    words = submitted(1)
    assert "-J" not in words
    assert words[:6] == ["qsub", "-f", "-m", "n", "-r", "n"]
    assert words[-2:] == ["/home/a b/logs/worker.1.1.log", ""]


def brought(count: int, *options: str, folder: str = "/home/me/r") -> list[str]:
    log = f"{folder}/logs/worker.1.{{}}.log".format
    files = [Path(folder, "connection.json"), Path("/home/me/x.pyz")]
    array = WorkerArray("me", count, Path(folder, "worker.sh"), options, log, files, host="login")
    return PBS.submit(array)


def test_files_are_staged_in_with_the_users_own_and_the_output_out() -> None:
    words = brought(2, "-W", "depend=afterok:1,stagein=t.csv@login:/data/t.csv")
    told = PBS.said(words[2 : words.index("--")])
    files = ["worker.sh@login:/home/me/r/worker.sh", "x.pyz@login:/home/me/x.pyz"]
    files.insert(1, "connection.json@login:/home/me/r/connection.json")
    assert told["-W stagein"][0].split(",") == [*files, "t.csv@login:/data/t.csv"]
    assert told["-W sandbox"][0] == "PRIVATE"
    assert told["-o"][0] == "login:/home/me/r/logs/worker.1.^array_index^.log"
    assert words[-3:] == ["worker.sh", "logs/worker.1.", ".log"]
    assert "-o login:/home/me/r/logs/worker.1.1.log" in " ".join(brought(1))


def test_a_run_directory_that_pbs_cannot_copy_from_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="GRIDENGINE_RUN_DIRECTORY"):
        brought(1, folder="/home/a b")


def test_a_job_whose_files_are_on_their_way_waits() -> None:
    told = seen("stagein-qstat-tf")
    comes = Seen(WorkerStatus.QUEUED, "its files are being brought to node1")
    assert [told[id] for id in ("5006.login", "5007[1].login")] == [comes, comes]
    assert told["5007[9].login"].reason.startswith("Not Running")


def test_a_job_whose_files_cannot_be_brought_has_failed_and_is_to_be_deleted() -> None:
    words = "PBS says that its files could not be brought to its node"
    failed = Seen(WorkerStatus.FAILED, words, linger=True)
    told = seen("stagein-failed-qstat-tf")
    assert [told[id] for id in ("5006.login", "5007[1].login")] == [failed, failed]


def test_subjobs_of_one_array_alone_are_deleted_by_one_command() -> None:
    ids = ["1[1].n", "2.n", "1[2].n", "3[1].n", "4.n"]
    assert PBS.cancel(ids)[-3:] == ["1[1].n 1[2].n", "2.n 4.n", "3[1].n"]


def test_all_deletions_are_tried_and_one_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "qdel").write_text('#!/bin/sh\necho "$@"\ncase $* in *2*) exit 3; esac\n')
    (tmp_path / "qdel").chmod(0o755)
    command = PBS.cancel(["1[1].n", "2.n", "3[1].n"])
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=path, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "1[1].n\n2.n\n3[1].n\n")


def test_ids_are_as_pbs_prints_them() -> None:
    array, job = recorded("array-mix-qsub").output, recorded("qsub-executable").output
    assert PBS.ids(array, 8)[2:4] == ["35[3].node1", "35[4].node1"]
    assert PBS.ids(job, 1) == ["3.node1"]
    assert PBS.ids("3\n", 1) == ["3"]
    assert PBS.ids(f"Welcome to the cluster\n{job}You have 7 hours left\n", 1) == ["3.node1"]
    for output, count in ((array, 1), (job, 2), ("", 1), ("qsub: waiting for job", 1)):
        assert PBS.ids(output, count) == []


@pytest.mark.parametrize(
    ("case", "remedy"),
    [
        ("qsub-bad-queue", "`qstat -Q` lists the queues"),
        ("qsub-queue-disabled", "`qstat -Q` lists the queues"),
        ("qsub-queue-acl_user", "who may use them"),
        ("qsub-bad-resource-foo", "is one misspelt?"),
        ("qsub-bad-resource-ngpus", "the setting gpus of [pbs]"),
        ("qsub-over-resources_max-ncpus", "resources_max"),
        ("qsub-walltime-banana", "write times as '2:00:00'"),
        ("qsub-select-and-ncpus", "stands in select="),
        ("qsub-walltime-in-select", "has (walltime) beside it"),
        ("qsub-bad-option-long", "`man qsub`"),
        ("qsub-bad-W", "a hook of the site"),
    ],
)
def test_a_refusal_has_a_remedy(case: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(BatchSystemRefusal) as refused:
        again(case, tmp_path)
    error = refusal(PBS, str(refused.value), ["-q nosuch"], 2)
    assert isinstance(error, SubmissionRefused)
    assert remedy in str(error)


def test_too_large_an_array_is_halved(tmp_path: Path) -> None:
    for case in ("qsub-array-too-large", "qsub-array-over-queue-max_array_size"):
        with pytest.raises(BatchSystemRefusal) as refused:
            again(case, tmp_path)
        error = refusal(PBS, str(refused.value), [], 4)
        assert isinstance(error, TooMany)
        assert error.limit == 2


@pytest.mark.parametrize("case", ["qsub-over-max_queued", "qsub-array-over-max_queued"])
def test_a_limit_on_jobs_is_asked_about_later(case: str, tmp_path: Path) -> None:
    with pytest.raises(BatchSystemRefusal) as refused:
        again(case, tmp_path)
    assert isinstance(refusal(PBS, str(refused.value), [], 4), TooMany)
    assert any(re.search(words, str(refused.value)) for words in PBS.own_limits)


def test_root_is_barred(tmp_path: Path) -> None:
    with pytest.raises(BatchSystemRefusal) as refused:
        again("qsub-as-root", tmp_path)
    error = refusal(PBS, str(refused.value), [], 1)
    assert isinstance(error, SchedulerUnavailable)
    assert "plain user" in str(error)


@pytest.mark.parametrize(
    "case",
    [
        *("server-killed-qsub", "server-killed-qstat", "server-killed-qdel"),
        *("server-killed-qselect", "server-killed-qstat-f-json", "mom-killed-qdel"),
    ],
)
def test_a_server_that_is_away_says_nothing_of_jobs(case: str, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="onnect"):
        again(case, tmp_path)


# Listing.


def test_a_listing_is_of_one_name_alone_and_globs_nothing() -> None:
    shell, flag, script, _, name = PBS.listing("a-1")
    assert (shell, flag, name) == ("/bin/sh", "-c", "a-1")
    assert script.startswith("set -f;")
    assert 'qselect -N "$1"' in script


def test_each_subjob_of_an_array_is_told() -> None:
    told = seen("array-mix-qstat-tf")
    host = "node1"
    assert set(told) == {f"35[{n}].node1" for n in range(1, 9)}
    assert told["35[1].node1"] == Seen(WorkerStatus.ENDED, "it ended by itself", host=host)
    assert told["35[2].node1"] == Seen(WorkerStatus.FAILED, "exit status 3", host=host)
    assert told["35[3].node1"] == Seen(WorkerStatus.FAILED, "killed by SIGKILL", host=host)
    running = told["35[4].node1"]
    assert (running.state, running.start, running.host) == (WorkerStatus.RUNNING, "1", host)
    assert told["35[8].node1"] == Seen(WorkerStatus.QUEUED, BEGUN)


def test_a_subjob_whose_status_is_its_arrays_is_left_out() -> None:
    fields = {"job_state": "X", "Exit_status": "1", "comment": "Subjob finished"}
    assert seen_in(fields) is None
    assert seen("qdel-queued-qstat-xf") == {}


def test_no_jobs_print_nothing_and_other_words_are_no_listing() -> None:
    assert PBS.parse(recorded("qstat-no-jobs").output) == {}
    with pytest.raises(ValueError, match=r"qstat says '\{"):
        PBS.parse(recorded("server-killed-qstat-f-json").output)


def test_known_jobs_are_told_beside_one_that_has_gone(tmp_path: Path) -> None:
    assert again("qstat-several-one-unknown", tmp_path).count("65.node1") == 1
    for case in ("qstat-unknown", "qdel-unknown", "qdel-ended", "array-mix-qdel-subjob-ended"):
        assert again(case, tmp_path) == ""


def test_a_variable_of_any_bytes_spoils_no_listing() -> None:
    assert set(seen("qstat-f-control-characters")) == {"1011.node1"}


def test_the_end_of_a_limit_is_told_in_this_machines_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        ends_at = seen("array-mix-qstat-tf")["35[4].node1"].ends_at
    finally:
        monkeypatch.undo()
        time.tzset()
    assert ends_at == 1795840563 + 600  # history_timestamp of a subjob that ended at once
    assert seen("running-qstat-f")["57.node1"].ends_at == math.inf


# Waiting.


@pytest.mark.parametrize(
    ("case", "words", "remedy"),
    [
        ("wait-ncpus-busy-qstat-f", "Not Running: Not enough free nodes available", "wait, or"),
        ("wait-hold-user-qstat-f", "it is held (u)", "`qrls JOB`"),
        ("wait-qhold-qstat-f", "Job held by grid on Sat Nov 28 04:39:58 2026", "`qrls JOB`"),
        ("wait-depend-afterok-qstat-f", "it waits for other jobs: afterok:66.node1@node1", ""),
        (
            "wait-execution-time-qstat-f",
            "it may not start before Tue Dec 31 23:59:00 2030",
            "",
        ),
        ("wait-queue-stopped-qstat-f", "Not Running: Queue not started.", "another queue="),
    ],
)
def test_a_waiting_job_says_why(case: str, words: str, remedy: str) -> None:
    (one,) = seen(case).values()
    assert one == Seen(WorkerStatus.QUEUED, words)
    assert PBS.never.search(words) is None
    assert remedy in explanation(PBS, words)


def test_a_job_that_can_never_run_is_known_by_its_comment() -> None:
    (one,) = seen("wait-ncpus-never-qstat-f").values()
    words = "Can Never Run: Insufficient amount of resource: ncpus (R: 500 A: 4 T: 4)"
    assert one == Seen(WorkerStatus.QUEUED, words)
    assert PBS.never.search(words)
    assert "ask for less" in str(impossible(PBS, words, ["-l select=1:ncpus=500"]))


def test_an_array_that_waits_gives_its_reason_to_its_subjobs() -> None:
    fields = {"job_state": "Q", "comment": "Not Running: Not enough free nodes available"}
    assert seen_in(fields) == Seen(WorkerStatus.QUEUED, fields["comment"])
    assert seen("wait-array-busy-qstat-f") == {}


BEGUN = "others of its array have begun, and PBS does not say why this one waits"


def test_subjobs_say_that_their_array_is_held_or_has_begun() -> None:
    held = set(seen("wait-hold-array-qstat-tf").values())
    assert held == {Seen(WorkerStatus.QUEUED, "it is held (u)")}
    waiting = [one for one in seen("wait-array-begun-qstat-tf").values() if one.reason]
    assert set(waiting) == {Seen(WorkerStatus.QUEUED, BEGUN)}


def test_a_dependency_that_can_never_come_true_is_no_deletion() -> None:
    told = seen("depend-never-qstat-xtf")
    [words] = {one.reason for one in told.values()}
    assert len(told) == 3
    assert not any(one.deleted for one in told.values())
    assert words.startswith("jobs that it waited for have not ended as it asked: afterok:")
    assert "native='-W depend=...'" in explanation(PBS, words)


def test_a_job_that_was_started_before_says_so() -> None:
    assert seen("qrerun-qstat-f")["126.node1"].start == "2"
    put_back = seen_in({"job_state": "Q", "run_count": "1"})
    assert put_back == Seen(WorkerStatus.QUEUED, again=True)


def test_a_job_held_after_failing_starts_is_of_no_more_use() -> None:
    told = seen("hold-after-20-failed-starts-qstat-tf")
    assert set(told) == {f"1008[{n}].node1" for n in (1, 2, 3)}
    words = "job held, too many failed attempts to run"
    assert set(told.values()) == {Seen(WorkerStatus.FAILED, words, linger=True)}


# Ends.


@pytest.mark.parametrize(
    ("case", "end"),
    [
        ("end-exit-0-qstat-xf", Seen(WorkerStatus.ENDED, "it ended by itself")),
        ("end-exit-255-qstat-xf", Seen(WorkerStatus.FAILED, "exit status 255")),
        ("end-exe-missing-qstat-xf", Seen(WorkerStatus.FAILED, "exit status 254")),
        ("end-exe-exit-7-qstat-xf", Seen(WorkerStatus.FAILED, "exit status 7")),
        ("end-kill-9-self-qstat-xf", Seen(WorkerStatus.FAILED, "killed by SIGKILL")),
        ("qsig-kill-qstat-xf", Seen(WorkerStatus.FAILED, "killed by SIGKILL")),
        ("qsig-usr1-qstat-xf", Seen(WorkerStatus.FAILED, "killed by SIGUSR1")),
        (
            "walltime-qstat-xf",
            Seen(WorkerStatus.FAILED, "it reached its time limit", TimeoutError),
        ),
        (
            "qdel-by-root-qstat-xf",
            Seen(WorkerStatus.FAILED, "it was deleted by root@node1", deleted=True),
        ),
        # What these leave undone, PBS does not say.
        ("end-bad-output-dir-qstat-xf", Seen(WorkerStatus.ENDED, "it ended by itself")),
        ("mem-cgroup-qstat-xf", Seen(WorkerStatus.ENDED, "it ended by itself")),
    ],
)
def test_an_ended_job_says_how(case: str, end: Seen) -> None:
    (told,) = seen(case).values()
    assert (told.state, told.reason, told.fault, told.deleted, told.host) == (
        *(end.state, end.reason, end.fault, end.deleted),
        "node1",
    )


def test_memory_has_statuses_of_pbs_own() -> None:
    fields = {"job_state": "F", "run_count": "1", "Exit_status": "-27"}
    told = seen_in(fields)
    assert told == Seen(WorkerStatus.FAILED, "it exceeded its memory", OutOfMemory)


def test_an_ending_job_is_not_known_to_have_ended() -> None:
    assert seen_in({"job_state": "E", "exec_host": "n1/0"}) == Seen(None, host="n1")


def test_a_deleted_job_that_runs_on_runs() -> None:
    assert seen("qdel-W-force-qstat-xf")["59.node1"].state is WorkerStatus.RUNNING


def test_the_end_of_unlisted_jobs_is_asked_where_pbs_remembers() -> None:
    ended = {"39.node1": GONE, "63.node1": VANISHED, "59.node1": GONE}
    assert PBS.endings(ended) == []
    history = PBSCommands(history=True)
    assert history.endings(ended) == [["qstat", "-x", "-f", *ended]]
    output = "".join(
        recorded(case).output
        for case in ("end-exit-1-qstat-xf", "qdel-queued-qstat-xf", "qdel-W-force-qstat-xf")
    )
    known = history.parse_endings(ended, [output])
    assert known["39.node1"].reason == "exit status 1"
    assert known["59.node1"].state is WorkerStatus.RUNNING
    assert "63.node1" not in known  # it never ran, and that is what is known of it


# The site.


def test_the_site_says_how_large_arrays_may_be_and_whether_it_remembers() -> None:
    assert PBS.questions() == [["qstat", "-Bf"]]
    here = PBS.told([recorded("qstat-Bf").output], [])
    assert (here.most_tasks, bool(here.endings({"1.s": GONE}))) == (1000, True)
    small = PBS.told(["Server: s\n    max_array_size = 4\n"], [])
    assert (small.most_tasks, small.endings({"1.s": GONE})) == (4, [])
    assert PBS.told([""], []).most_tasks == 1000


def test_doctor_is_told_the_queues_and_the_version() -> None:
    assert PBS.parse_queues(recorded("qstat-Qf").output) == [Queue("workq", "open")]
    stopped = PBS.parse_queues(recorded("wait-queue-stopped-qstat-Qf").output)
    assert stopped == [Queue("workq", "closed", open=False)]
    assert recorded("version-qsub").output.startswith("pbs_version")


def test_grid_engine_which_has_commands_of_the_same_names_is_not_taken_for_pbs() -> None:
    assert not {"qsub", "qstat", "qdel", "qselect", "qalter", "qhold"} & set(PBS.commands)


def test_words_of_several_lines_are_read_as_one() -> None:
    assert error_text("Connection refused\nqstat: cannot connect to server node1") == (
        "Connection refused; cannot connect to server node1"
    )
