"""What calls ask for, in Slurm's words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import (
    ZERO,
    Capacity,
    Cores,
    GPUs,
    Memory,
    Node,
    Nodes,
    Ranks,
    Resource,
    Token,
    WTime,
)
from gridengine.resources.demand import Demand
from gridengine.schedulers.batch_commands import Queue, WorkerArray
from gridengine.schedulers.checks import CheckState, findings
from gridengine.schedulers.command import command_environment
from gridengine.schedulers.requests import own_options, worker_options
from gridengine.schedulers.slurm.answers import SlurmLimits
from gridengine.schedulers.slurm.commands import EARLY_SECONDS, SIGNAL_SECONDS, SlurmCommands
from gridengine.settings.values import SlurmSite

SLURM = SlurmCommands()


def test_arguments_become_options() -> None:
    given = {"partition": "main", "cpus_per_task": 2, "exclusive": True, "hold": False}
    assert shlex.join(own_options(SLURM, given, "--nice=5 -C 'a&b'")) == (
        "--partition=main --cpus-per-task=2 --exclusive --nice=5 -C 'a&b'"
    )


class Seats(Capacity):
    def native_options(self, system: str) -> Sequence[str]:
        return [f"--licenses=seats:{self.count}"]


def slurm(
    resources: Resource, factor: float = 1.0, *own: str, site: SlurmSite | None = None
) -> list[str]:
    return worker_options(SLURM, own, Demand(resources, factor), site or SlurmSite())


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4), ["--cpus-per-task=4"]),
        (Memory(8), ["--mem=8192M"]),
        (Memory(0.0001), ["--mem=1M"]),
        (WTime("2:00:00"), ["--time=122", "--signal=B:TERM@30"]),
        (WTime(61), ["--time=4", "--signal=B:TERM@30"]),
        (WTime(softT=60), []),
        (GPUs(2), ["--gres=gpu:2"]),
        (Token("big"), ["--constraint=big"]),
        (Capacity(3), []),
        (Seats(2), ["--licenses=seats:2"]),
        (Ranks(8), ["--ntasks=8"]),
        (
            Ranks(8) & Cores(2) & Memory(3),
            ["--ntasks=8", "--cpus-per-task=2", "--mem-per-cpu=1536M"],
        ),
        (
            Ranks(8) & Cores(2, [0, 1]) & Memory(3),
            ["--ntasks=8", "--cpus-per-task=2", "--mem-per-cpu=1536M"],
        ),
        (Ranks(2) & Memory(1), ["--ntasks=2", "--mem-per-cpu=1024M"]),
        (Ranks(8, nodes=2), ["--ntasks=8", "--nodes=2", "--ntasks-per-node=4"]),
        (Ranks(5, nodes=2), ["--ntasks=5", "--nodes=2"]),
        (
            Nodes(4) & Cores(16),
            ["--ntasks=4", "--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=16"],
        ),
        (
            Node(2, 1) & WTime(60),
            ["--cpus-per-task=2", "--mem=1024M", "--time=3", "--signal=B:TERM@30"],
        ),
    ],
)
def test_each_kind_has_its_words_for_slurm(resources: Resource, words: list[str]) -> None:
    assert slurm(resources) == words


def test_slurm_s_signal_comes_after_the_call_s_time_even_if_it_comes_early() -> None:
    for seconds in range(1, 400):
        limit = int(slurm(WTime(seconds))[0].removeprefix("--time=")) * 60
        assert limit - SIGNAL_SECONDS - EARLY_SECONDS > seconds


def test_a_slurm_site_has_its_own_names() -> None:
    site = SlurmSite(
        partition="main",
        account="lab",
        gpus="--gpus-per-task={n} --ntasks=1",
        native="--nice=10",
        tokens={"big": "-p big"},
    )
    assert " ".join(slurm(GPUs(1), site=site)) == (
        "--gpus-per-task=1 --ntasks=1 --partition=main --account=lab --nice=10"
    )
    assert " ".join(slurm(Token("big"), site=site)) == "-p big --account=lab --nice=10"
    own = ("-pshort", "--account", "mine")
    assert slurm(ZERO, 1.0, *own, site=site) == [*own, "--nice=10"]


def test_quoted_text_in_site_settings_is_one_word() -> None:
    said = "--comment='a sweep'"
    site = SlurmSite(native=said, gpus=said, tokens={"big": said})
    assert slurm(GPUs(1) & Token("big"), site=site) == ["--comment=a sweep"] * 3


def test_the_scheduler_s_own_memory_is_multiplied_for_slurm_too() -> None:
    assert slurm(ZERO, 2, "--mem=4G", "--mem-per-cpu=100", "--time=60") == [
        "--mem=8192M",
        "--mem-per-cpu=200M",
        "--time=60",
    ]


@pytest.mark.parametrize(
    ("resources", "own", "more"),
    [
        (Memory(8), "--mem=4G", ""),
        (Memory(8), "--mem-per-cpu=4G", ""),
        (Cores(4), "-c2", ""),
        (Token("big"), "-Csmall", ""),
        (WTime("2:00:00"), "--time=60", "02:01:00"),
    ],
)
def test_a_slurm_option_of_scheduler_and_call_is_an_error_that_names_both(
    resources: Resource, own: str, more: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        slurm(resources, 1.0, own)
    assert all(word in str(caught.value) for word in (repr(resources), own, more))


def test_a_longer_time_of_the_scheduler_s_serves_on_slurm_too() -> None:
    assert slurm(WTime("2:00:00"), 1.0, "--time=1-0") == ["--time=1-0", "--signal=B:TERM@30"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-0:0:1", 86401),
        ("UNLIMITED", 0),
        ("", 0),
    ],
)
def test_times_are_read_as_slurm_does(text: str, seconds: float) -> None:
    assert SLURM.parse_time(text) == seconds


class Loud(Capacity):
    def native_options(self, system: str) -> Sequence[str]:
        return ["-o/tmp/loud"]


def test_options_that_would_be_dropped_are_refused_whoever_says_them() -> None:
    for resources, site in (
        (ZERO, SlurmSite(native="--output=/tmp/log")),
        (Token("big"), SlurmSite(tokens={"big": "-C big -J big"})),
        (ZERO, SlurmSite(native="--clusters=all")),
        (ZERO, SlurmSite(native="--mem=1 : --mem=2")),
        (Loud(1), SlurmSite()),
    ):
        with pytest.raises(ConfigurationError, match="is not for users to set"):
            slurm(resources, site=site)


def command(
    run: Path = Path("/runs/r"), count: int = 3, options: tuple[str, ...] = ()
) -> list[str]:
    slurm = SlurmCommands(SlurmLimits() if count else SlurmLimits(largest=0))
    log = f"{run}/logs/worker.1.{{}}.log".format
    return slurm.submit(WorkerArray("me", count or 1, run / "worker.sh", options, log))


def test_an_array_is_submitted_in_one_command() -> None:
    assert shlex.join(command(options=("--time=5", "--requeue"))) == (
        "sbatch --parsable --no-requeue --time=5 --requeue --job-name=me --array=1-3 "
        "--output=/runs/r/logs/worker.1.%a.log --chdir=/runs/r /runs/r/worker.sh"
    )


def test_without_arrays_a_single_job_is_submitted() -> None:
    assert "--output=/runs/r/logs/worker.1.1.log" in command(count=0)
    assert not any(word.startswith("--array") for word in command(count=0))


def test_percent_signs_in_the_run_directory_are_no_placeholders() -> None:
    assert "--output=/a%%j/logs/worker.1.%a.log" in command(Path("/a%j"))
    assert "--chdir=/a%j" in command(Path("/a%j"))


def test_a_backslash_in_the_run_directory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="backslash"):
        command(Path("/a\\b"))


def test_variables_of_the_job_that_we_are_in_are_not_handed_on() -> None:
    given = {
        "SLURM_JOB_ID": "3",
        "SLURM_CONF": "/c",
        "SBATCH_WAIT": "1",
        "SBATCH_ACCOUNT": "a",
        "SQUEUE_FORMAT": "%i",
        "HOME": "/h",
    }
    assert command_environment(SlurmCommands(), given) == {
        "SLURM_CONF": "/c",
        "SBATCH_ACCOUNT": "a",
        "HOME": "/h",
        "SLURM_BITSTR_LEN": "0",
        "SLURM_TIME_FORMAT": "standard",
    }


@pytest.mark.parametrize(
    "output",
    [
        "17\n",
        "17;cluster\n",
        "Submitted batch job 17\n",
        "Submitted batch job 17 on cluster two\n",
        "Welcome to the cluster\nYou have 4000 hours left\n17\n",
        "17;cluster\nremember the outage on 3 May\n",
    ],
)
def test_the_number_of_a_job_is_found_beside_the_additions_of_a_site(output: str) -> None:
    assert SLURM.ids(output, 2) == ["17_1", "17_2"]


@pytest.mark.parametrize("output", ["", "thank you\n", "sbatch: error: 17\n", "17\n18\n"])
def test_an_output_without_one_number_names_no_job(output: str) -> None:
    assert SLURM.ids(output, 2) == []


VERSION = "slurm-wlm 22.05.8"


COMMANDS = {
    "sbatch": f"echo {VERSION}",
    "squeue": "true",
    "scancel": "true",
    "scontrol": "echo Slurmctld is UP",
    "sinfo": "echo 'main*|up|2'",
}


def found(folder: Path, **commands: str) -> list[tuple[str, CheckState, str]]:
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return [
        (one.check, one.state, one.text) for one in findings(SlurmCommands(), {"PATH": str(folder)})
    ]


def test_a_slurm_that_works_is_told_with_its_version_and_partitions(tmp_path: Path) -> None:
    assert found(tmp_path, **COMMANDS) == [
        (
            "commands",
            CheckState.OK,
            f"{tmp_path}/" + f", {tmp_path}/".join(["sbatch, " + VERSION, *list(COMMANDS)[1:]]),
        ),
        ("controller", CheckState.OK, "Slurmctld is UP"),
        ("partitions", CheckState.OK, "main* (up, 2 nodes)"),
    ]


def test_without_any_command_there_is_no_slurm(tmp_path: Path) -> None:
    assert found(tmp_path) == [("commands", CheckState.ABSENT, "there is no sbatch in PATH")]


@pytest.mark.parametrize(
    ("changed", "check", "text"),
    [
        ({"scontrol": "echo Slurmctld is DOWN"}, "controller", "Slurmctld is DOWN"),
        ({"scontrol": "echo no >&2; exit 1"}, "controller", "no"),
        ({"sinfo": "echo 'main*|down|1'"}, "partitions", "none is up: main* (down, 1 node)"),
        ({"sinfo": "echo no >&2; exit 1"}, "partitions", "no"),
    ],
)
def test_the_first_failing_check_is_told_and_is_the_last(
    tmp_path: Path, changed: dict[str, str], check: str, text: str
) -> None:
    assert found(tmp_path, **{**COMMANDS, **changed})[-1] == (check, CheckState.BROKEN, text)


def test_a_partition_that_a_setting_names_and_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_SLURM_PARTITION", "main,nosuch")
    assert found(tmp_path, **COMMANDS)[-1] == (
        "partitions",
        CheckState.BROKEN,
        "there is no partition nosuch, which GRIDENGINE_SLURM_PARTITION names; there are: main",
    )


def test_commands_that_are_missing_are_named(tmp_path: Path) -> None:
    some = {name: COMMANDS[name] for name in ("sbatch", "scontrol")}
    assert found(tmp_path, **some) == [
        ("commands", CheckState.BROKEN, "not in PATH: squeue, scancel, sinfo")
    ]


def test_the_names_states_and_sizes_of_partitions_are_read() -> None:
    assert SlurmCommands().parse_queues("main*|up|1\nclosed|down|12\n\nodd\n") == [
        Queue("main*", "up, 1 node"),
        Queue("closed", "down, 12 nodes", open=False),
    ]
