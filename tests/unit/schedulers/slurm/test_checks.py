"""What `gridengine doctor` finds of a Slurm whose commands are these scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.schedulers.batch_commands import Queue
from gridengine.schedulers.checks import State, findings
from gridengine.schedulers.slurm.commands import SlurmCommands

VERSION = "slurm-wlm 22.05.8"
COMMANDS = {
    "sbatch": f"echo {VERSION}",
    "squeue": "true",
    "scancel": "true",
    "scontrol": "echo Slurmctld is UP",
    "sinfo": "echo 'main*|up|2'",
}


def found(folder: Path, **commands: str) -> list[tuple[str, State, str]]:
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
            State.OK,
            f"{tmp_path}/" + f", {tmp_path}/".join(["sbatch, " + VERSION, *list(COMMANDS)[1:]]),
        ),
        ("controller", State.OK, "Slurmctld is UP"),
        ("partitions", State.OK, "main* (up, 2 nodes)"),
    ]


def test_without_any_command_there_is_no_slurm(tmp_path: Path) -> None:
    assert found(tmp_path) == [("commands", State.ABSENT, "there is no sbatch in PATH")]


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
    assert found(tmp_path, **{**COMMANDS, **changed})[-1] == (check, State.BROKEN, text)


def test_a_partition_that_a_setting_names_and_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_SLURM_PARTITION", "main,nosuch")
    assert found(tmp_path, **COMMANDS)[-1] == (
        "partitions",
        State.BROKEN,
        "there is no partition nosuch, which GRIDENGINE_SLURM_PARTITION names; there are: main",
    )


def test_commands_that_are_missing_are_named(tmp_path: Path) -> None:
    some = {name: COMMANDS[name] for name in ("sbatch", "scontrol")}
    assert found(tmp_path, **some) == [
        ("commands", State.BROKEN, "not in PATH: squeue, scancel, sinfo")
    ]


def test_the_names_states_and_sizes_of_partitions_are_read() -> None:
    assert SlurmCommands().parse_queues("main*|up|1\nclosed|down|12\n\nodd\n") == [
        Queue("main*", "up, 1 node"),
        Queue("closed", "down, 12 nodes", open=False),
    ]
