"""What Grid Engine's commands and log say of a job."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from gridengine.schedulers import detect
from gridengine.schedulers.checks import CheckState
from gridengine.schedulers.command import CommandOutput
from gridengine.schedulers.grid_engine import diagnostics
from gridengine.schedulers.grid_engine.diagnostics import (
    NOWHERE,
    Diagnostics,
    JobFailure,
    Limit,
    findings,
    parse_accounting,
    parse_error_reasons,
    parse_limit,
    parse_master_log,
    parse_scheduling,
)
from gridengine.schedulers.grid_engine.options import GridEngineWords
from gridengine.schedulers.launcher import TryAgain
from gridengine.schedulers.requests import explanation

ACCOUNTING = """\
==============================================================
qname        all.q
hostname     node7
jobnumber    27
taskid       1
start_time   -/-
failed       28  : changing into working directory
exit_status  0
==============================================================
qname        all.q
hostname     node8
jobnumber    27
taskid       2
start_time   Fri Nov 20 21:42:01 2026
failed       0
exit_status  3
"""


MASTER_LOG = """\
11/20/2026 21:43:47|worker|node1|W|job 26.1 failed on host node7 assumedly after job because: job \
26.1 died through signal SEGV (11)
11/20/2026 21:43:48|worker|node1|W|job 29.1 failed on host node7 general opening input/output \
file because: \
11/20/2026 21:43:47 [1001:30356]: error: can't open output file "/nosuch/x": No such file or \
directory
11/20/2026 21:44:54|worker|node1|W|job 39.1 failed on host node7 qmaster enforced h_rt, h_cpu, or \
h_vmem limit because: \
job 39.1 died through signal KILL (9)
"""


QSTAT = """\
==============================================================
job_number:                 43
hard_queue_list:            closed.q
error reason          1:      11/20/2026 21:50:12 [1001:3004]: error: can't open output file \
"/nosuch/x": No such file or directory
scheduling info:            queue instance "closed.q@node7" dropped because it is disabled
                            queue instance "all.q@node7" dropped because it is full
                            All queues dropped because of overload or full
"""


@pytest.mark.parametrize(
    ("task", "told"),
    [("1", JobFailure("changing into working directory", "node7")), ("2", None), ("3", None)],
)
def test_the_accounts_tell_why_and_where_a_task_failed_if_it_did(
    task: str, told: JobFailure | None
) -> None:
    assert parse_accounting(ACCOUNTING, task) == told


LIMIT = "qmaster enforced h_rt, h_cpu, or h_vmem limit: job 39.1 died through signal KILL"
NO_FILE = (
    'opening input/output file: can\'t open output file "/nosuch/x": No such file or directory'
)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("29.1", JobFailure(NO_FILE, "node7")),
        ("39.1", JobFailure(f"{LIMIT} (9)", "node7")),
        ("26.1", JobFailure("", "node7")),  # of a signal the host alone is news
        ("9.1", None),
    ],
)
def test_the_master_s_log_tells_why_a_job_failed(job: str, told: JobFailure | None) -> None:
    assert parse_master_log(MASTER_LOG, job) == told


def test_an_error_state_has_its_reason() -> None:
    assert parse_error_reasons(QSTAT) == [
        """can't open output file "/nosuch/x": No such file or directory"""
    ]


def test_nothing_is_said_of_queues_not_asked_for() -> None:
    assert parse_scheduling(QSTAT) == [
        'queue instance "closed.q@node7" dropped because it is disabled',
        "All queues dropped because of overload or full",
    ]


def test_nothing_is_said_without_scheduling_information() -> None:
    assert parse_scheduling(
        "job_number: 43\nscheduling info: (Collecting of scheduler job information is turned off)\n"
    ) == ["(Collecting of scheduler job information is turned off)"]
    assert parse_scheduling("job_number: 43\n") == []


QUEUES = """\
<?xml version='1.0'?>
<job_info>
  <queue_info>
    <Queue-List>
      <name>all.q@vm</name>
      <slots_total>4</slots_total>
    </Queue-List>
    <Queue-List>
      <name>night.q@vm</name>
      <arch>lx-amd64</arch>
      <state>C</state>
    </Queue-List>
    <Queue-List>
      <name>off.q@vm</name>
      <state>D</state>
    </Queue-List>
    <Queue-List>
      <name>low.q@vm</name>
      <state>S</state>
    </Queue-List>
    <Queue-List>
      <name>epilog.q@vm</name>
      <state>E</state>
      <message>queue epilog.q marked QERROR as result of job 103&apos;s failure at host vm</message>
    </Queue-List>
  </queue_info>
</job_info>
"""


@pytest.mark.parametrize(
    ("queue", "said", "more", "remedy"),
    [
        ("night.q", "temporarily not available", "a calendar suspends it", "qconf -scal"),
        ("off.q", "disabled", "a calendar disables it", "qconf -scal"),
        (
            "low.q",
            "temporarily not available",
            "it is subordinate to a queue whose jobs suspend it",
            "wait for that queue's jobs to end",
        ),
        (
            "epilog.q",
            "temporarily not available",
            "queue epilog.q marked QERROR as result of job 103's failure at host vm",
            "qmod -c QUEUE",
        ),
    ],
)
def test_a_queue_that_runs_nothing_for_a_time_is_reported_with_the_cause(
    tmp_path: Path, queue: str, said: str, more: str, remedy: str
) -> None:
    words = f'queue instance "{queue}@vm" dropped because it is {said}'
    (tmp_path / "job").write_text(
        f"hard_queue_list:            {queue}\nscheduling info:            {words}\n"
    )
    (tmp_path / "queues").write_text(QUEUES)
    qstat = tmp_path / "qstat"
    qstat.write_text(
        f'#!/bin/sh\n[ "$1" = -j ] && exec /bin/cat {tmp_path}/job\n/bin/cat {tmp_path}/queues\n'
    )
    qstat.chmod(0o755)
    reason = Diagnostics({"PATH": str(tmp_path)}).waiting("7.1")
    assert reason == f"{words}: {more}"
    assert remedy in explanation(GridEngineWords(), reason)


def test_a_reservation_that_has_not_begun_has_its_remedy_though_a_calendar_closes_queues() -> None:
    reason = (
        'queue instance "night.q@vm" dropped because it is temporarily not available: a calendar '
        "suspends it; execution time not reached"
    )
    told = explanation(GridEngineWords(), reason)
    assert "wait for the time of native='-a ...', or for the beginning of its advance" in told


def test_without_commands_and_files_there_are_no_words(tmp_path: Path) -> None:
    words = Diagnostics({"PATH": str(tmp_path), "SGE_ROOT": str(tmp_path)})
    assert (words.failure("1.1"), words.error_state("1.1"), words.waiting("1.1")) == (None, "", "")


@pytest.mark.parametrize(
    ("script", "answer"), [("exit 1", None), ("[ $1 = -sh ] && echo node1", {})]
)
def test_no_parallel_environment_is_another_thing_than_no_answer(
    tmp_path: Path, script: str, answer: dict[str, str] | None
) -> None:
    qconf = tmp_path / "qconf"
    qconf.write_text(f"#!/bin/sh\n{script}\n")
    qconf.chmod(0o755)
    words = Diagnostics({"PATH": str(tmp_path)})
    if answer is None:
        with pytest.raises(TryAgain, match="no answer"):
            words.parallel_environments()
    else:
        assert words.parallel_environments() == answer


ROW = """    <job_list state="running">
      <JB_job_number>442</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>j.sh</JB_name>
      <state>r</state>
      <JAT_start_time>2026-11-28T12:05:28</JAT_start_time>
      <queue_name>{queue}</queue_name>
      <slots>1</slots>{task}
    </job_list>
"""
QUEUE = """qname                 short.q
min_cpu_interval      00:05:00
s_rt                  00:00:10
h_rt                  {h_rt}
s_cpu                 INFINITY
h_cpu                 {h_cpu}
"""
JOB = """job_number:                 442
hard resource_list:         h_vmem=1G,h_rt={h_rt}
usage         1:            cpu=00:00:00, mem=0.00000 GB s
"""


class Played(Diagnostics):
    """A Grid Engine that prints this, and notes what it was asked."""

    def __init__(self, rows: str, job: str = "") -> None:
        super().__init__(NOWHERE)
        self.rows, self.job = rows, job
        self.asked: list[str] = []

    def ask(self, name: str, *arguments: str) -> CommandOutput:
        self.asked.append(f"{name} {arguments[0]} {arguments[1]}")
        if name == "qconf":
            limited = QUEUE.format(h_rt="01:00:00", h_cpu="INFINITY")
            return CommandOutput(limited if arguments[1].startswith("short.q") else "")
        return CommandOutput(self.job if arguments[0] == "-j" else self.rows)


def test_the_shorter_limit_of_queue_and_job_counts() -> None:
    rows = ROW.format(queue="short.q@vm", task="<tasks>2</tasks>")
    queue = Played(rows)
    assert queue.limits(["442.2"]) == {"442.2": (3600.0, "h_rt=01:00:00 of queue short.q@vm")}
    job = Played(rows, JOB.format(h_rt="0:30:0"))
    assert job.limits(["442.2"]) == {"442.2": (1800.0, "h_rt=0:30:0 of job 442")}


def test_each_queue_and_job_is_asked_once_and_those_that_do_not_run_are_left_out() -> None:
    played = Played(
        "".join(ROW.format(queue="all.q@vm", task=f"<tasks>{task}</tasks>") for task in (1, 2))
    )
    limits = played
    for _ in range(2):
        assert limits.limits(["442.1", "442.2", "442.3"]) == dict.fromkeys(
            ["442.1", "442.2"], Limit(math.inf)
        )
    assert played.asked == ["qstat -xml -s", "qstat -j 442", "qconf -sq all.q@vm", "qstat -xml -s"]


@pytest.mark.parametrize("told", ["", "<job_list>", "<job_list><tasks>1</tasks></job_list>"])
def test_other_output_gives_no_diagnosis(told: str) -> None:
    assert Played(told).limits(["442.1"]) == {}


@pytest.mark.parametrize(
    ("h_rt", "h_cpu", "seconds"),
    [
        ("INFINITY", "INFINITY", math.inf),
        ("02:00:00", "INFINITY", 7200),
        ("7200", "3600", 3600),
        ("INFINITY", "00:10:00", 600),
    ],
)
def test_a_queue_s_limits_are_those_that_end_a_job(h_rt: str, h_cpu: str, seconds: float) -> None:
    assert parse_limit(QUEUE.format(h_rt=h_rt, h_cpu=h_cpu), "it").seconds == seconds


@pytest.fixture(autouse=True)
def _no_library_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "_linked", lambda environment: [])


def found(**environment: str) -> list[tuple[str, CheckState, str]]:
    return [(one.check, one.state, one.text) for one in findings({"PATH": "", **environment})]


def test_without_root_command_and_library_there_is_no_grid_engine() -> None:
    text = "SGE_ROOT is not set, and there is neither qconf nor a DRMAA library"
    assert found() == [("environment", CheckState.ABSENT, text)]


def test_with_the_command_alone_the_root_is_missing(tmp_path: Path) -> None:
    (tmp_path / "qconf").touch(mode=0o755)
    assert found(PATH=str(tmp_path)) == [("environment", CheckState.ABSENT, "SGE_ROOT is not set")]


@pytest.mark.parametrize(
    ("named", "state", "words"),
    [
        ("mpi", CheckState.OK, r"Cores\(n\) uses smp, Ranks\(n\) mpi$"),
        ("nosuch", CheckState.BROKEN, "there is no mpi environment nosuch, which GRID"),
        ("", CheckState.OK, r"Cores\(n\) uses smp$"),
    ],
)
def test_the_parallel_environment_for_ranks_is_told_and_must_be_there(
    monkeypatch: pytest.MonkeyPatch, named: str, state: CheckState, words: str
) -> None:
    class Here(Diagnostics):
        def parallel_environments(self) -> dict[str, str]:
            return {"mpi": "$fill_up", "smp": "$pe_slots"}

    monkeypatch.setenv("GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT", "smp")
    monkeypatch.setenv("GRIDENGINE_GRID_ENGINE_MPI_ENVIRONMENT", named)
    finding = diagnostics._parallel_environments(Here({"PATH": ""}))
    assert finding.state is state
    assert re.search(words, finding.text)


def test_a_library_that_is_not_where_it_should_be_is_named(tmp_path: Path) -> None:
    ((check, state, text),) = found(DRMAA_LIBRARY_PATH=f"{tmp_path}/libdrmaa.so")
    assert (check, state) == ("library", CheckState.BROKEN)
    assert (
        text == f"there is no DRMAA library where DRMAA_LIBRARY_PATH says: {tmp_path}/libdrmaa.so"
    )
