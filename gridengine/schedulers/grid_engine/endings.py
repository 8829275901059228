"""How a job ended, by what DRMAA tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gridengine.schedulers.grid_engine.drmaa_systems import GRID_ENGINE


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, as DRMAA told."""

    reason: str
    clean: bool = False
    deleted: bool = False
    started: bool = True
    killed: bool = False
    usage: Mapping[str, str] = field(default_factory=dict)


def ending_of(told: Mapping[str, Any], kind: str = GRID_ENGINE) -> Ending:
    """Return what DRMAA's exit information means, as told by a library for this kind of system.

    Grid Engine's `wait` says only "aborted" of a job that was deleted and of one that failed to
    start; but it gives the time of the start of the first, none for the second, and no usage at all
    for one that was deleted while it waited. Others say less.
    """
    if "status" in told:
        return Ending(f"exit status {told['status']}", clean=told["status"] == 0)
    if "signal" in told:
        return Ending(f"killed by {told['signal']}", killed=True, usage=told.get("usage") or {})
    if not told.get("aborted"):
        return Ending(told.get("words") or "the batch system does not say how it ended")
    if kind != GRID_ENGINE:
        return Ending("aborted: deleted, killed, or not even started")
    usage = told.get("usage") or {}
    if not usage:
        return Ending("deleted while it waited", deleted=True, started=False)
    if float(usage.get("start_time") or 0) > 0:
        return Ending("deleted while it ran", deleted=True)
    return Ending("could not be started", started=False)
