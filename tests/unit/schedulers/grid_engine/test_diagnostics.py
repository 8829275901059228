"""What Grid Engine's commands and log say of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.schedulers.grid_engine.diagnostics import (
    Diagnostics,
    Failure,
    parse_accounting,
    parse_error_reasons,
    parse_id,
    parse_master_log,
    parse_scheduling,
)
from gridengine.schedulers.launcher import TryAgain

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
    ("id", "parts"),
    [("29.1", ("29", "1")), ("29", ("29", "1")), ("node.29", ("", "")), ("29.1.2", ("", ""))],
)
def test_only_ids_of_grid_engine_s_form_are_taken_apart(id: str, parts: tuple[str, str]) -> None:
    assert parse_id(id) == parts


@pytest.mark.parametrize(
    ("task", "told"),
    [("1", Failure("changing into working directory", "node7")), ("2", None), ("3", None)],
)
def test_the_accounts_tell_why_and_where_a_task_failed_if_it_did(
    task: str, told: Failure | None
) -> None:
    assert parse_accounting(ACCOUNTING, task) == told


LIMIT = "qmaster enforced h_rt, h_cpu, or h_vmem limit: job 39.1 died through signal KILL"
NO_FILE = (
    'opening input/output file: can\'t open output file "/nosuch/x": No such file or directory'
)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("29.1", Failure(NO_FILE, "node7")),
        ("39.1", Failure(f"{LIMIT} (9)", "node7")),
        ("26.1", Failure("", "node7")),  # of a signal the host alone is news
        ("9.1", None),
    ],
)
def test_the_master_s_log_tells_why_a_job_failed(job: str, told: Failure | None) -> None:
    assert parse_master_log(MASTER_LOG, job) == told


def test_an_error_state_has_its_reason() -> None:
    assert parse_error_reasons(QSTAT) == [
        """can't open output file "/nosuch/x": No such file or directory"""
    ]


def test_of_other_queues_than_those_asked_for_nothing_is_said() -> None:
    assert parse_scheduling(QSTAT) == [
        'queue instance "closed.q@node7" dropped because it is disabled',
        "All queues dropped because of overload or full",
    ]


def test_where_scheduling_information_is_off_nothing_is_said() -> None:
    assert parse_scheduling(
        "job_number: 43\nscheduling info: (Collecting of scheduler job information is turned off)\n"
    ) == ["(Collecting of scheduler job information is turned off)"]
    assert parse_scheduling("job_number: 43\n") == []


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
