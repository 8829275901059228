"""`Finding`: one result of `gridengine doctor`; and the checks of this machine."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gridengine.errors import ConfigurationError
from gridengine.settings.values import Setting, sources


class State(enum.Enum):
    """What a look at one thing found."""

    OK = "ok"
    ABSENT = "absent"
    BROKEN = "broken"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Finding:
    """One look: of which scheduler ("here" is this machine), at what, what was found, and what to
    do about it.
    """

    of: str
    check: str
    state: State
    text: str
    remedy: str = ""


def setting_of(setting: str) -> Setting:
    """Return a setting and who said it; an empty one when the settings cannot be read, which is
    told elsewhere.
    """
    try:
        return sources()[setting]
    except ConfigurationError:
        return Setting("", "")


def check_names(finding: Finding, setting: str, there: Collection[str]) -> Finding:
    """Return a finding of the names that there are; a broken one if a setting names others, with
    who said it. Patterns, and groups of hosts, are left for the batch system to judge.
    """
    one = setting_of(setting)
    names = [name.strip().partition("@")[0] for name in one.value.split(",")]
    missing = [name for name in names if name not in there and re.fullmatch(r"[^*?\[\]|&!]+", name)]
    if not missing:
        return finding
    what = setting.rpartition(".")[2].replace("_", " ")
    return replace(
        finding,
        state=State.BROKEN,
        text=f"there is no {what} {', '.join(missing)}, which {one.by} names; there are: "
        + listed(there),
        remedy=f"correct {one.by}",
    )


def listed(names: Iterable[str]) -> str:
    """Return names with commas between, for people."""
    return ", ".join(names) or "none"


def machine_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what there is of this machine's processors."""
    text = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} may be used"
    yield Finding("processes", "processors", State.OK, text)
