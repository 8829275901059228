"""What a Slurm is asked for, and what its refusals mean, without a Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gridengine.errors import ConfigurationError, SchedulerUnavailable, SubmissionRefused
from gridengine.schedulers import SlurmScheduler
from gridengine.schedulers.batch import TooMany
from gridengine.schedulers.launcher import TryAgain
from gridengine.schedulers.slurm.commands import command_environment, sbatch_command
from gridengine.schedulers.slurm.options import own_options
from gridengine.schedulers.slurm.site import (
    Site,
    error_text,
    parse_share,
    refusal,
    site_of,
    unavailable,
)
from gridengine.schedulers.slurm.srun import Unsuitable, srun_command, srun_options

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


def command(
    run: Path = Path("/runs/r"), count: int = 3, options: tuple[str, ...] = ()
) -> list[str]:
    return sbatch_command(
        options,
        name="me",
        count=count,
        log=lambda task: f"{run}/logs/worker.1.{task}.log",
        script=run / "worker.sh",
    )


def test_an_array_is_submitted_in_one_command() -> None:
    assert command(options=("--time=5", "--requeue")) == [
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--time=5",
        "--requeue",
        "--job-name=me",
        "--array=1-3",
        "--output=/runs/r/logs/worker.1.%a.log",
        "--chdir=/runs/r",
        "/runs/r/worker.sh",
    ]


def test_without_arrays_a_single_job_is_submitted() -> None:
    assert "--output=/runs/r/logs/worker.1.1.log" in command(count=0)
    assert not any(word.startswith("--array") for word in command(count=0))


def test_srun_is_asked_for_what_sbatch_is_with_a_step_like_a_batch_script() -> None:
    script = Path("/runs/r/worker.sh")
    command = srun_command(
        ["--mem=3M"],
        name="me",
        log="/runs/r/%/worker.1.\0.log",
        script=script,
        shell=["/bin/bash", "-l"],
    )
    assert command == [
        "srun",
        "--verbose",
        "--immediate",
        "--mem=3M",
        "--nodes=1",
        "--ntasks=1",
        "--overlap",
        "--no-kill",
        "--cpu-bind=none",
        "--mpi=none",
        "--input=none",
        "--job-name=me",
        "--output=/runs/r/%%/worker.1.%t.log",
        "--chdir=/runs/r",
        "/bin/bash",
        "-l",
        "/runs/r/worker.sh",
    ]


def test_what_is_said_to_sbatch_is_said_to_srun() -> None:
    options = [
        "--mem-per-cpu=5M",
        "-C",
        "a&b",
        "-c4",
        "--time=5",
        "--signal=B:TERM@30",
        "--gres",
        "gpu:2",
    ]
    variables = {
        "SBATCH_ACCOUNT": "a",
        "SBATCH_TIMELIMIT": "9",
        "SBATCH_MEM_PER_NODE": "7",
        "HOME": "/h",
    }
    assert srun_options(options, variables) == [
        "--account=a",
        *options[:5],
        "--signal=TERM@30",
        *options[6:],
    ]


@pytest.mark.parametrize(
    "options",
    [
        ["--nodes=2"],
        ["-N", "2"],
        ["--ntasks=2"],
        ["--exclusive"],
        ["--requeue"],
        ["--export=NONE"],
        ["-n2"],
    ],
)
def test_workers_whose_options_may_mean_another_thing_to_srun_are_left_to_sbatch(
    options: list[str],
) -> None:
    with pytest.raises(Unsuitable, match=options[0].partition("=")[0]):
        srun_options(options, {})


@pytest.mark.parametrize(
    "name", ["SBATCH_EXPORT", "SBATCH_EXCLUSIVE", "SLURM_CLUSTERS", "SBATCH_SOMETHING_NEW"]
)
def test_variables_for_sbatch_that_srun_has_no_option_for_leave_workers_to_sbatch(
    name: str,
) -> None:
    with pytest.raises(Unsuitable, match=name):
        srun_options([], {name: "1"})


def test_a_backslash_in_the_run_directory_leaves_it_to_sbatch_to_say_so() -> None:
    with pytest.raises(Unsuitable, match="backslash"):
        srun_command([], name="me", log="/a\\b/1.log", script=Path("/a\\b/worker.sh"), shell=[])


def test_percent_signs_in_the_run_directory_are_no_placeholders() -> None:
    assert "--output=/a%%j/logs/worker.1.%a.log" in command(Path("/a%j"))
    assert "--chdir=/a%j" in command(Path("/a%j"))


def test_a_backslash_in_the_run_directory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="backslash"):
        command(Path("/a\\b"))


def test_arguments_become_options() -> None:
    assert own_options(
        {"partition": "main", "cpus_per_task": 2, "exclusive": True, "hold": False},
        "--nice=5 -C 'a&b'",
    ) == [
        "--partition=main",
        "--cpus-per-task=2",
        "--exclusive",
        "--nice=5",
        "-C",
        "a&b",
    ]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"array": "1-3"}, ConfigurationError, "--array is not for users to set"),
        ({"native": "-J name"}, ConfigurationError, "-J is not for users to set"),
        ({"native": "--wait"}, ConfigurationError, "--wait is not for users to set"),
        ({"native": "'"}, ConfigurationError, "cannot be read"),
        ({"native": 3}, TypeError, "native must be a string"),
        ({"partition": "a\nb"}, ConfigurationError, "partition must be one line"),
        ({"time": None}, TypeError, "time must be a string, a number or True"),
        ({"max_workers": 0}, ConfigurationError, "max_workers must be at least 1"),
        (
            {"start_timeout": 0},
            ConfigurationError,
            "start_timeout must be above zero, and finite, not 0",
        ),
        (
            {"start_timeout": float("nan")},
            ConfigurationError,
            "start_timeout must be above zero, and finite, not nan",
        ),
        ({"start_timeout": "5"}, TypeError, "start_timeout must be a number"),
        ({"strict": "no"}, TypeError, "strict must be True or False"),
    ],
)
def test_a_wrong_argument_is_named_at_once(
    given: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        SlurmScheduler(**given)


def test_a_scheduler_shows_what_it_asks_for() -> None:
    assert repr(SlurmScheduler()) == "SlurmScheduler(no special request)"
    assert (
        repr(SlurmScheduler(partition="main", time="1:00:00"))
        == "SlurmScheduler(--partition=main --time=1:00:00)"
    )


def test_variables_of_the_job_that_we_are_in_are_not_handed_on() -> None:
    given = {
        "SLURM_JOB_ID": "3",
        "SLURM_CONF": "/c",
        "SBATCH_WAIT": "1",
        "SBATCH_ACCOUNT": "a",
        "SQUEUE_FORMAT": "%i",
        "HOME": "/h",
    }
    assert command_environment(given) == {
        "SLURM_CONF": "/c",
        "SBATCH_ACCOUNT": "a",
        "HOME": "/h",
        "SLURM_BITSTR_LEN": "0",
        "SLURM_TIME_FORMAT": "standard",
    }


def test_the_highest_index_of_an_array_is_one_less_than_its_size() -> None:
    assert site_of(CONFIG, PARTITIONS, NODES, "").largest == 1000
    assert site_of(CONFIG.replace("1001", "0"), PARTITIONS, NODES, "").largest == 0


def test_where_a_job_without_memory_is_given_all_of_a_node_the_share_of_a_core_is_asked_for() -> (
    None
):
    assert site_of(CONFIG, PARTITIONS, NODES, "").memory == "--mem-per-cpu=1500M"
    assert site_of(CONFIG, PARTITIONS, NODES, "big").memory == "--mem-per-cpu=4000M"
    assert site_of(CONFIG, PARTITIONS, NODES, "big,main").memory == "--mem-per-cpu=1500M"


def test_where_the_site_has_a_default_for_memory_or_gives_none_out_nothing_is_asked_for() -> None:
    assert site_of(CONFIG, PARTITIONS, NODES, "kind").memory == ""
    assert (
        site_of(
            CONFIG.replace("DefMemPerNode           = UNLIMITED", "DefMemPerCPU = 100"),
            PARTITIONS,
            NODES,
            "",
        ).memory
        == ""
    )
    assert site_of(CONFIG.replace("CR_CORE_MEMORY", "CR_CORE"), PARTITIONS, NODES, "").memory == ""
    assert site_of(CONFIG, PARTITIONS, NODES, "nosuch") == Site(1000, "", accounts=False)
    assert parse_share("main|0|0\nmain|n/a|\n", ["main"]) == 0


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
    meaning = refusal(words, [], 100)
    assert isinstance(meaning, TooMany)
    assert meaning.limit is None


def test_a_limit_on_the_size_of_arrays_is_met_by_smaller_ones() -> None:
    meaning = refusal("Batch job submission failed: Invalid job array specification", [], 100)
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
    meaning = refusal(words, ["--mem=1"], 100)
    assert isinstance(meaning, kind)
    assert words in str(meaning)
    assert told in str(meaning)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Munge encode failed: Failed to access /run/munge/munge.socket.2", "munge -n"),
        ("Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("Could not establish a configuration source", "SLURM_CONF"),
    ],
)
def test_who_cannot_be_reached_is_named_with_a_remedy(words: str, remedy: str) -> None:
    assert remedy in str(unavailable(words))


def test_what_a_command_says_is_told_once_and_without_its_name() -> None:
    words = (
        'sbatch: error: no way\nsbatch: error: no way\nsbatch: fatal: it is over\nTry "sbatch '
        '--help" for more information\n'
    )
    assert error_text(words) == "no way; it is over"
