"""What `gridengine doctor` looks at of a Slurm."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Mapping

from gridengine.schedulers.checks import Finding, State, check_names, listed
from gridengine.schedulers.command import Answer
from gridengine.schedulers.launcher import BatchSystemError
from gridengine.schedulers.slurm.commands import Slurm

COMMAND_SECONDS = 10.0
_finding = functools.partial(Finding, "slurm")


def findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what there is: the commands, the controller, the partitions."""
    path = environment.get("PATH")
    commands = {
        name: shutil.which(name, path=path)
        for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
    }
    missing = [name for name, found in commands.items() if not found]
    if len(missing) == len(commands):
        yield _finding(
            "commands",
            State.ABSENT,
            "there is no sbatch in PATH",
            "load your site's module, where there is a Slurm",
        )
        return
    if missing:
        yield _finding(
            "commands",
            State.BROKEN,
            f"not in PATH: {', '.join(missing)}",
            "install Slurm's commands (Debian: slurm-client), all of them",
        )
        return
    version = _answer(environment, "sbatch", "--version").output.strip()
    words = ", ".join(filter(None, [commands["sbatch"], version]))
    yield _finding("commands", State.OK, words)
    ping = _answer(environment, "scontrol", "ping")
    words = "; ".join(filter(None, [*ping.output.splitlines(), ping.failure]))
    if ping.failure or " is UP" not in ping.output:
        yield _finding(
            "controller",
            State.BROKEN,
            words,
            "is slurmctld running, and munged here? `scontrol ping` must say UP; slurm.conf "
            "must be where SLURM_CONF, or the site, says",
        )
        return
    yield _finding("controller", State.OK, words)
    yield _partitions(_answer(environment, "sinfo", "--all", "-h", "-o", "%P|%a|%D"))


def _answer(environment: Mapping[str, str], *command: str) -> Answer:
    try:
        return Answer(Slurm(environment).run(*command, seconds=COMMAND_SECONDS))
    except BatchSystemError as error:
        return Answer("", str(error))


def _partitions(answer: Answer) -> Finding:
    if answer.failure:
        return _finding("partitions", State.BROKEN, answer.failure, "look at what `sinfo` says")
    found = parse_partitions(answer.output)
    words = listed(
        f"{name} ({state}, {nodes} {'node' if nodes == '1' else 'nodes'})"
        for name, state, nodes in found
    )
    if any(state == "up" for _, state, _ in found):
        there = [name.rstrip("*") for name, _, _ in found]
        return check_names(_finding("partitions", State.OK, words), "slurm.partition", there)
    return _finding(
        "partitions", State.BROKEN, f"none is up: {words}", "ask whoever runs this Slurm"
    )


def parse_partitions(text: str) -> list[tuple[str, str, str]]:
    """Return name, state and number of nodes of each partition, from `sinfo -h -o '%P|%a|%D'`; the
    default one has a star.
    """
    return [
        (parts[0], parts[1], parts[2])
        for line in text.splitlines()
        if len(parts := line.strip().split("|")) == 3
    ]
