"""A batch system of three shell scripts, `put`, `look` and `drop`, in a folder: what a site may add
of its own. A scheduler for it is `TinyScheduler`, which a package with an entry point names.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gridengine.schedulers.batch_commands import BatchCommands, Seen, WorkerArray
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus

COMMANDS = {
    "put": """
name=$1 count=$2 log=$3 script=$4
number=$(($(ls | grep -c '^[0-9]*\\.1$') + 1))
for ((task = 1; task <= count; task++)); do
    job=$number.$task; mkdir $job; echo $name >$job/name
    setsid bash -c 'echo $$ >'$job'/pid; "$0"; echo $? >'$job'/status' "$script" \
        >"${log//%t/$task}" 2>&1 </dev/null &
done
echo $number
""",
    "look": """
[[ ! -e away ]] || { echo "look: no server" >&2; exit 1; }
for job in $(grep -lsx -- "$1" [0-9]*/name | xargs -rn1 dirname); do
    if [[ -s $job/status ]]; then echo $job ended $(<$job/status); else echo $job runs; fi
done
""",
    "drop": """
for job in "${@:2}" $(grep -lsx -- "$1" [0-9]*/name | xargs -rn1 dirname); do
    [[ -s $job/status ]] || { kill -TERM -- -$(<$job/pid); echo 143 >$job/status; }
done
""",
}


class TinyCommands(BatchCommands):
    """Its names and words: all that a system is."""

    key, title, commands = "tiny", "Tiny", ("put", "look", "drop")

    def cores(self, count: int) -> list[str]:
        return []

    def memory(self, size: int) -> list[str]:
        return []

    def time(self, seconds: float) -> list[str]:
        return []

    def submit(self, array: WorkerArray) -> list[str]:
        return ["put", array.name, str(array.count), array.log("%t"), str(array.script)]

    def ids(self, output: str, count: int) -> list[str]:
        return [f"{output.strip()}.{task}" for task in range(1, count + 1)]

    def listing(self, name: str) -> list[str]:
        return ["look", name]

    def parse(self, output: str) -> dict[str, Seen]:
        rows = (line.split() for line in output.splitlines())
        return {id: Seen(_state(*state)) for id, *state in rows}

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["drop", "", *ids]

    def cancel_all(self, name: str) -> list[str]:
        return ["drop", name]


def _state(word: str, status: str = "") -> WorkerStatus:
    if word == "runs":
        return WorkerStatus.RUNNING
    return WorkerStatus.ENDED if status == "0" else WorkerStatus.FAILED


class TinyScheduler(CommandScheduler):
    """Runs calls in jobs of it."""

    _commands = TinyCommands


def install(folder: Path, entry: str = "") -> None:
    """Write its commands into a folder; with an entry (`tiny = tests.support...`), too what an
    installed package has whose entry point that is.
    """
    for name, text in COMMANDS.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\ncd {shlex.quote(str(folder))} || exit\n{text}")
        path.chmod(0o755)
    if entry:
        info = folder / "tiny_batch-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-batch\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[gridengine.schedulers]\n{entry}\n")
