"""The findings of `gridengine doctor`: its rows, and the checks of this machine and of a batch
system that is used by its commands (those of Grid Engine: `grid_engine/diagnostics`).
"""

from __future__ import annotations

import enum
import functools
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gridengine.errors import ConfigurationError
from gridengine.schedulers.batch_commands import BatchCommands
from gridengine.schedulers.command import CommandOutput, CommandRunner
from gridengine.schedulers.requests import first_match
from gridengine.settings.values import Setting, sources
from gridengine.system import usable_processors


class CheckState(enum.Enum):
    """The result of one check."""

    OK = "ok"
    ABSENT = "absent"
    BROKEN = "broken"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of a scheduler ("here" is this machine), its result, and the remedy."""

    of: str
    check: str
    state: CheckState
    text: str
    remedy: str = ""


def setting_of(setting: str) -> Setting:
    """Return a setting and its source; both empty if unreadable, which another check reports."""
    try:
        return sources()[setting]
    except ConfigurationError:
        return Setting("", "")


def check_names(finding: Finding, setting: str, there: Collection[str]) -> Finding:
    """Return the finding that these names exist, unless the setting names others: then return a
    broken finding with the source of the setting. Patterns and groups of hosts are left for the
    batch system to judge.
    """
    one = setting_of(setting)
    names = [name.strip().partition("@")[0] for name in one.value.split(",")]
    missing = [name for name in names if name not in there and re.fullmatch(r"[^*?\[\]|&!]+", name)]
    if not missing:
        return finding
    what = setting.rpartition(".")[2].replace("_", " ")
    return replace(
        finding,
        state=CheckState.BROKEN,
        text=f"there is no {what} {', '.join(missing)}, which {one.by} names; there are: "
        + listed(there),
        remedy=f"correct {one.by}",
    )


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them, for people."""
    return ", ".join(names) or "none"


def machine_findings() -> Iterator[Finding]:
    """Check this machine's processors."""
    text = f"{usable_processors()} of {os.cpu_count()} may be used"
    yield Finding("processes", "processors", CheckState.OK, text)


def findings(system: BatchCommands, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check a batch system's commands, its server and its queues."""
    finding = functools.partial(Finding, system.key)
    path = environment.get("PATH")
    found = {name: shutil.which(name, path=path) for name in system.commands}
    missing = [name for name, place in found.items() if not place]
    if len(missing) == len(found):
        yield finding(
            "commands",
            CheckState.ABSENT,
            f"there is no {system.commands[0]} in PATH",
            f"load your site's module, where {system.title} is; it takes {listed(system.commands)}",
        )
        return
    if missing:
        packages = f" ({system.package})" if system.package else ""
        yield finding(
            "commands",
            CheckState.BROKEN,
            f"not in PATH: {', '.join(missing)}",
            f"install {system.title}'s commands{packages}, all of them",
        )
        return
    runner = CommandRunner(system, environment)
    first, *others = map(str, found.values())
    doubt = "" if system.tested else "which gridengine's authors have not run; tell them"
    words = [first, line_of(runner.answer(system.version()).output, 0), *others, doubt]
    yield finding("commands", CheckState.OK, ", ".join(filter(None, words)))
    answer = runner.answer(system.ping())
    if answer.failure or not system.is_up(answer.output):
        said = "; ".join(filter(None, [*answer.output.splitlines(), answer.failure]))
        remedy = first_match(said, system.unavailable) or "ask whoever runs it"
        yield finding(system.server_name, CheckState.BROKEN, said, remedy)
        return
    yield finding(system.server_name, CheckState.OK, line_of(answer.output, 0) or "answers")
    if system.queues():
        yield _queues(system, runner.answer(system.queues()))


def line_of(text: str, place: int) -> str:
    """Return the first (0) or last (-1) line that is not blank; empty if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[place] if lines else ""


def _queues(system: BatchCommands, answer: CommandOutput) -> Finding:
    name = system.queue_name
    finding = functools.partial(Finding, system.key, f"{name}s")
    if answer.failure:
        return finding(
            CheckState.BROKEN, answer.failure, f"look at what `{system.queues()[0]}` says"
        )
    found = system.parse_queues(answer.output)
    words = listed(f"{one.name} ({one.words})" for one in found)
    if not any(one.open for one in found):
        return finding(CheckState.BROKEN, f"none is up: {words}", "ask whoever runs it")
    there = [one.name.rstrip("*") for one in found]
    return check_names(finding(CheckState.OK, words), f"{system.key}.{name}", there)
