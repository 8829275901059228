"""`Finding`: one result of `gridengine doctor`; and the checks of this machine."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


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


def listed(names: Iterable[str]) -> str:
    """Return names with commas between, for people."""
    return ", ".join(names) or "none"


def findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what there is of this machine's processors."""
    text = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} may be used"
    yield Finding("processes", "processors", State.OK, text)
