"""What a Slurm allows, and what its refusals mean."""

from __future__ import annotations

import pytest

from gridengine.errors import SchedulerUnavailable, SubmissionRefused
from gridengine.schedulers.command import error_text
from gridengine.schedulers.launcher import TryAgain
from gridengine.schedulers.refusals import TooMany, refusal, unavailable
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.schedulers.slurm.site import Site, parse_sizes, site_of

SLURM = SlurmCommands()

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


def test_the_highest_index_of_an_array_is_one_less_than_its_size() -> None:
    assert site_of(CONFIG, PARTITIONS, NODES, "").largest == 1000
    assert site_of(CONFIG.replace("1001", "0"), PARTITIONS, NODES, "").largest == 0


@pytest.mark.parametrize(
    ("partitions", "memory"), [("", "1500M"), ("big", "4000M"), ("big,main", "1500M")]
)
def test_where_a_job_without_memory_is_given_all_of_a_node_the_share_of_a_core_is_asked_for(
    partitions: str, memory: str
) -> None:
    assert site_of(CONFIG, PARTITIONS, NODES, partitions).memory == f"--mem-per-cpu={memory}"


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        (CONFIG, "kind"),
        (CONFIG.replace("DefMemPerNode           = UNLIMITED", "DefMemPerCPU = 100"), ""),
        (CONFIG.replace("CR_CORE_MEMORY", "CR_CORE"), ""),
        (CONFIG, "nosuch"),
    ],
)
def test_where_the_site_has_a_default_for_memory_or_gives_none_out_nothing_is_asked_for(
    config: str, partitions: str
) -> None:
    assert site_of(config, PARTITIONS, NODES, partitions) == Site(1000, "", accounts=False)
    assert parse_sizes("main|0|0\nmain|n/a|\n", ["main"]) == []


def test_no_more_memory_is_asked_for_a_core_than_a_job_may_have() -> None:
    """For more, Slurm gives a job more cores."""
    config = CONFIG.replace("DefMemPerNode           = UNLIMITED", "MaxMemPerCPU            = 1000")
    assert site_of(config, PARTITIONS, NODES, "").memory == "--mem-per-cpu=1000M"
    partitions = PARTITIONS.replace("Default=YES", "Default=YES MaxMemPerCPU=700")
    assert site_of(config, partitions, NODES, "").memory == "--mem-per-cpu=700M"
    assert site_of(config, PARTITIONS, NODES, "kind").memory == ""


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        (CONFIG + "SelectType              = select/linear\n", PARTITIONS),
        (CONFIG, PARTITIONS.replace("Default=YES", "Default=YES OverSubscribe=EXCLUSIVE")),
        (CONFIG, PARTITIONS.replace("Default=YES", "Default=YES Exclusive=NODE")),
    ],
)
def test_where_jobs_are_given_whole_nodes_the_smallest_is_known(
    config: str, partitions: str
) -> None:
    assert site_of(config, partitions, NODES, "").whole_cores == 2
    assert site_of(CONFIG, PARTITIONS, NODES, "").whole_cores == 0


def test_of_what_a_site_does_not_show_nothing_is_assumed() -> None:
    assert site_of(CONFIG, "", "", "") == Site(1000, hides_memory=True)
    assert site_of(CONFIG, PARTITIONS, "", "") == Site(1000, hides_memory=True)
    assert site_of(CONFIG, PARTITIONS, "", "kind") == Site(1000)
    assert site_of(CONFIG.replace("CR_CORE_MEMORY", "CR_CORE"), "", "", "") == Site(1000)


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
    meaning = refusal(SLURM, words, [], 100)
    assert isinstance(meaning, TooMany)
    assert meaning.limit is None


def test_a_limit_on_the_size_of_arrays_is_met_by_smaller_ones() -> None:
    meaning = refusal(
        SLURM, "Batch job submission failed: Invalid job array specification", [], 100
    )
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
        ("unrecognized option '--nosuch'", SubmissionRefused, "`sbatch --help`"),
        ("Invalid --time specification", SubmissionRefused, "time='2:00:00'"),
        ("Invalid --mem-per-cpu specification", SubmissionRefused, "mem='4G'"),
        (
            "Batch job submission failed: Requested time limit is invalid (missing or exceeds some "
            "limit)",
            SubmissionRefused,
            "`sinfo --format='%P %l'`",
        ),
        (
            "Batch job submission failed: Invalid generic resource (gres) specification",
            SubmissionRefused,
            "`sinfo --format='%P %G'`",
        ),
        ("Batch job submission failed: Invalid qos specification", SubmissionRefused, "qos="),
        ("project X is closed", SubmissionRefused, "a rule of the site may refuse it"),
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
    meaning = refusal(SLURM, words, ["--mem=1"], 100)
    assert isinstance(meaning, kind)
    assert words in str(meaning)
    assert told in str(meaning)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Munge encode failed: Failed to access /run/munge/munge.socket.2", "munge -n"),
        ("Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("Could not establish a configuration source", "SLURM_CONF"),
        ("sbatch is not installed here, or not on the PATH", "gridengine doctor"),
    ],
)
def test_who_cannot_be_reached_is_named_with_a_remedy(words: str, remedy: str) -> None:
    assert remedy in str(unavailable(SLURM, words))


def test_what_a_command_says_is_told_once_and_without_its_name() -> None:
    words = (
        'sbatch: error: no way\nsbatch: error: no way\nsbatch: fatal: it is over\nTry "sbatch '
        '--help" for more information\n'
    )
    assert error_text(words) == "no way; it is over"
