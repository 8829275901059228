"""What a cluster is asked for, and what its answers mean, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError, OutOfMemory, TimeoutError
from gridengine.schedulers import GridEngineScheduler
from gridengine.schedulers.detect import library_paths
from gridengine.schedulers.grid_engine.diagnostics import (
    Diagnostics,
    Failure,
    parse_accounting,
    parse_error_reasons,
    parse_id,
    parse_master_log,
    parse_scheduling,
)
from gridengine.schedulers.grid_engine.drmaa import DrmaaRefused, drmaa_environment
from gridengine.schedulers.grid_engine.endings import ending_of
from gridengine.schedulers.grid_engine.request import Request, parse_memory, parse_time
from gridengine.schedulers.launcher import TryAgain
from gridengine.schedulers.logs import log_tail
from gridengine.schedulers.script import launch_script

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
11/20/2026 21:43:47|worker|node1|W|job 26.1 failed on host node7 assumedly after job because: job 26.1 died through signal SEGV (11)
11/20/2026 21:43:48|worker|node1|W|job 29.1 failed on host node7 general opening input/output file because: \
11/20/2026 21:43:47 [1001:30356]: error: can't open output file "/nosuch/x": No such file or directory
11/20/2026 21:44:54|worker|node1|W|job 39.1 failed on host node7 qmaster enforced h_rt, h_cpu, or h_vmem limit because: \
job 39.1 died through signal KILL (9)
"""

QSTAT = """\
==============================================================
job_number:                 43
hard_queue_list:            closed.q
error reason          1:      11/20/2026 21:50:12 [1001:3004]: error: can't open output file "/nosuch/x": No such file or directory
scheduling info:            queue instance "closed.q@node7" dropped because it is disabled
                            queue instance "all.q@node7" dropped because it is full
                            All queues dropped because of overload or full
"""


def specification(**given: object) -> str:
    return Request(**given).specification()  # type: ignore[arg-type]


def test_resources_become_one_l_option() -> None:
    assert (
        specification(resources={"h_vmem": "10G", "h_rt": 7200, "gpu": True})
        == "-l h_vmem=10G,h_rt=7200,gpu=true"
    )


def test_queue_parallel_environment_and_native_follow_the_resources() -> None:
    given = specification(
        queue="all.q", parallel_environment="smp 4", native=" -P physics ", resources={"gpu": 1}
    )
    assert given == "-l gpu=1 -q all.q -pe smp 4 -P physics"


@pytest.mark.parametrize(
    ("text", "size"), [("10G", 10 * 2**30), ("10g", 10**10), ("512", 512), ("INFINITY", 0), ("", 0)]
)
def test_amounts_of_memory_are_read_as_grid_engine_does(text: str, size: float) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("02:00:00", 7200), ("7200", 7200), ("::30", 30), ("1:30", 90), ("INFINITY", 0)],
)
def test_times_are_read_as_grid_engine_does(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("usage", "environment", "fault"),
    [
        ({"ru_wallclock": "61.0", "maxvmem": "1000.0"}, None, TimeoutError),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**30)}, None, OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**30)}, "smp 2", None),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**31)}, "smp 2", OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**31)}, "smp 2-8", OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": "1000.0"}, None, None),
        ({}, None, None),
    ],
)
def test_which_limit_a_killed_task_reached_is_told_from_its_usage(
    usage: dict[str, str], environment: str | None, fault: type[Exception] | None
) -> None:
    request = Request(
        parallel_environment=environment, resources={"h_rt": "00:01:00", "h_vmem": "1G"}
    )
    assert request.fault(usage) is fault


def test_memory_that_is_not_counted_per_slot_is_one_limit_for_all() -> None:
    request = Request(
        parallel_environment="smp 2", resources={"h_vmem": "1G"}, memory_per_slot=False
    )
    assert request.fault({"ru_wallclock": "5.0", "maxvmem": str(2**30)}) is OutOfMemory


def test_nothing_asked_for_is_an_empty_specification() -> None:
    assert specification() == ""


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"h_vmem": None}, TypeError),
        ({"h_vmem": "10 G"}, ConfigurationError),
        ({"h_vmem": "10G,h_rt=1"}, ConfigurationError),
        ({"queue": 3}, TypeError),
        ({"queue": "all.q -now y"}, ConfigurationError),
        ({"parallel_environment": "smp"}, ConfigurationError),
        ({"parallel_environment": ("smp", 4)}, TypeError),
        ({"native": None}, TypeError),
        ({"max_workers": 0}, ConfigurationError),
        ({"max_workers": "4"}, TypeError),
        ({"jobs_per_worker": 0}, ConfigurationError),
        ({"prologue": [1]}, TypeError),
        ({"environment": ["A=1"]}, TypeError),
        ({"environment": {"A": 1}}, TypeError),
        ({"environment": {"A B": "1"}}, ConfigurationError),
        ({"python": Path("/usr/bin/python3")}, TypeError),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(
    given: dict[str, object], error: type[Exception]
) -> None:
    ((name, value),) = given.items()
    with pytest.raises(error) as caught:
        GridEngineScheduler(**given)  # type: ignore[arg-type]
    assert name in str(caught.value)
    text = repr(next(iter(value)) if isinstance(value, (dict, list)) else value).strip("'")
    assert text in str(caught.value)


def run_script(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "worker.sh"
    path.write_text(script)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        ["bash", str(path)], capture_output=True, text=True, env=environment, check=False
    )


def test_the_launch_script_quotes_what_it_is_given(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import os, sys; print(sys.argv[1:], os.environ['ODD'])",
        "a 'b'; $HOME",
    ]
    script = launch_script(command, prologue=(), environment={"ODD": "it's $HOME"}, path="")
    assert run_script(script, tmp_path).stdout == """["a 'b'; $HOME"] it's $HOME\n"""


def test_a_failing_prologue_line_keeps_the_worker_from_starting_and_says_so(tmp_path: Path) -> None:
    done = run_script(
        launch_script(["echo", "worker"], prologue=["false", "true"], environment={}, path=""),
        tmp_path,
    )
    assert done.returncode == 1
    assert "worker\n" not in done.stdout
    assert "the prologue failed with status 1" in done.stderr


def test_after_a_prologue_the_worker_starts_with_its_variables(tmp_path: Path) -> None:
    script = launch_script(
        ["printenv", "A", "B"],
        prologue=["export A=1", "export B=1"],
        environment={"B": "2"},
        path="",
    )
    assert run_script(script, tmp_path).stdout == "1\n2\n"


def test_the_package_s_folder_comes_before_a_path_that_the_prologue_sets(tmp_path: Path) -> None:
    script = launch_script(
        ["printenv", "PYTHONPATH"],
        prologue=["export PYTHONPATH=/site"],
        environment={},
        path="/check out",
    )
    assert run_script(script, tmp_path).stdout == "/check out:/site\n"


@pytest.mark.parametrize(
    ("id", "parts"),
    [("29.1", ("29", "1")), ("29", ("29", "1")), ("node.29", ("", "")), ("29.1.2", ("", ""))],
)
def test_only_ids_of_grid_engine_s_form_are_taken_apart(id: str, parts: tuple[str, str]) -> None:
    assert parse_id(id) == parts


def test_the_accounts_tell_why_a_task_failed_and_where() -> None:
    assert parse_accounting(ACCOUNTING, "1") == Failure("changing into working directory", "node7")


@pytest.mark.parametrize("task", ["2", "3"])
def test_the_accounts_tell_nothing_of_a_task_that_did_not_fail_or_is_not_there(task: str) -> None:
    assert parse_accounting(ACCOUNTING, task) is None


def test_the_master_s_log_tells_why_a_job_failed() -> None:
    words = """opening input/output file: can't open output file "/nosuch/x": No such file or directory"""
    assert parse_master_log(MASTER_LOG, "29.1") == Failure(words, "node7")


def test_the_master_s_log_tells_of_a_limit() -> None:
    found = parse_master_log(MASTER_LOG, "39.1")
    assert found is not None
    assert found.words.startswith("qmaster enforced h_rt, h_cpu, or h_vmem limit")


def test_of_a_signal_the_master_s_log_adds_the_host_alone() -> None:
    assert parse_master_log(MASTER_LOG, "26.1") == Failure("", "node7")


def test_the_master_s_log_tells_nothing_of_another_job() -> None:
    assert parse_master_log(MASTER_LOG, "9.1") is None


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


def test_a_log_s_tail_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert log_tail(str(log)).splitlines()[-1] == "line 9999"
    assert len(log_tail(str(log)).splitlines()) == 20
    assert log_tail(str(tmp_path / "none")) == ""


def test_how_a_job_ended_is_told_in_words() -> None:
    assert ending_of({"status": 0, "usage": {}}).clean
    assert ending_of({"status": 3, "usage": {}}).reason == "exit status 3"
    assert ending_of({"signal": "SIGKILL", "usage": {}}).reason == "killed by SIGKILL"


def test_an_aborted_job_that_had_started_was_deleted() -> None:
    end = ending_of({"aborted": True, "usage": {"start_time": "1795211090.0000"}})
    assert (end.deleted, end.started) == (True, True)


def test_an_aborted_job_without_usage_was_deleted_while_it_waited() -> None:
    end = ending_of({"aborted": True, "usage": {}})
    assert (end.deleted, end.started) == (True, False)


def test_an_aborted_job_without_a_start_could_not_be_started() -> None:
    end = ending_of({"aborted": True, "usage": {"submission_time": "1795211089.0000"}})
    assert (end.deleted, end.started) == (False, False)


def test_a_job_that_is_no_longer_known_did_not_end_well() -> None:
    assert not ending_of({"words": "does not exist"}).clean


@pytest.mark.parametrize(
    ("words", "for_now"),
    [
        ("job rejected: only 10 jobs are allowed per user (current job count: 10)", True),
        ("job rejected: you tried to submit a job with more than 75000 tasks", False),
        ('unknown resource "nosuch"', False),
        (
            "job rejected: your user id 0 is lower than minimum user id 1000 of cluster "
            "configuration",
            False,
        ),
        ("error: no suitable queues", False),
        ("requested memory exceeds the maximum allowed", False),
    ],
)
def test_only_a_refusal_for_a_limit_is_for_now(words: str, for_now: bool) -> None:
    assert DrmaaRefused("DeniedByDrmException", words).for_now is for_now


def test_what_the_library_itself_calls_later_is_for_now() -> None:
    assert DrmaaRefused(
        "TryLaterException", "job rejected: only 1 jobs are allowed per cluster"
    ).for_now


def test_the_library_that_the_user_names_is_the_only_one() -> None:
    assert library_paths(
        {"DRMAA_LIBRARY_PATH": "/opt/lib/libdrmaa.so", "SGE_ROOT": "/opt/sge"}
    ) == ["/opt/lib/libdrmaa.so"]


def test_grid_engine_s_own_library_comes_first(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "lx-amd64" / "libdrmaa.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert library_paths({"SGE_ROOT": str(tmp_path)})[0] == str(library)


def test_the_room_for_the_library_is_added_to_other_tunables() -> None:
    assert drmaa_environment({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, "x")[
        "GLIBC_TUNABLES"
    ] == ("glibc.malloc.arena_max=1:glibc.rtld.optional_static_tls=8192")


def test_relative_folders_of_the_python_path_are_not_passed_on() -> None:
    assert "here" not in drmaa_environment({"PYTHONPATH": "here:/there:"}, "x")["PYTHONPATH"].split(
        ":"
    )
    assert "/there" in drmaa_environment({"PYTHONPATH": "here:/there:"}, "x")["PYTHONPATH"].split(
        ":"
    )


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
