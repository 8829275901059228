"""What a dispatcher's launcher has launched, kept in a file: the launcher of a dispatcher that is
started again goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gridengine.dispatcher.core.events import Launched
from gridengine.errors import ConfigurationError
from gridengine.resources.demand import Demand
from gridengine.resources.encoding import decode_demand, encode_demand
from gridengine.schedulers.launcher import Handle, Launcher, Report, WorkerStatus
from gridengine.wire.connection_file import load_private, replace_private, to_json

log = logging.getLogger("gridengine")

ENDED = WorkerStatus.ENDED, WorkerStatus.FAILED


class _Group(Struct, frozen=True):
    """Workers for one demand, as `encode_demand` has it: their ids and logs."""

    parts: list[tuple[str, list[Any]]]
    factor: float
    handles: list[tuple[str, str]]


class _Facts(Struct, frozen=True):
    groups: list[_Group]
    facts: dict[str, str]


class LaunchRecord:
    """The workers that were launched and not seen to end, and what else their launcher is to know
    again (`facts`). All methods are for one thread.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: there is one that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.exists = path.exists()
        """Whether there is one, of this process or of one before it."""
        self._changed = not self.exists
        self.handles: dict[Handle, Demand] = {}
        self.facts: Mapping[str, str] = {}
        if self.exists:
            known = load_private(path, _Facts)
            self.facts = known.facts
            for group in known.groups:
                demand = decode_demand(group.parts, group.factor)
                self.handles |= {Handle(*one): demand for one in group.handles}

    def launched(self) -> list[Launched]:
        """Return what was launched, as an event for each demand."""
        return [Launched(handles, demand) for demand, handles in self._by_demand().items()]

    def _by_demand(self) -> dict[Demand, list[Handle]]:
        found: dict[Demand, list[Handle]] = {}
        for handle, demand in self.handles.items():
            found.setdefault(demand, []).append(handle)
        return found

    def add(self, handles: Iterable[Handle], demand: Demand) -> None:
        """Note workers that were launched."""
        self.handles |= dict.fromkeys(handles, demand)
        self._changed = True

    def note_reports(self, reports: Mapping[Handle, Report]) -> None:
        """Forget the workers that have ended."""
        self.remove(handle for handle, report in reports.items() if report.state in ENDED)

    def remove(self, handles: Iterable[Handle]) -> None:
        """Forget workers: they have ended, or are being stopped."""
        for handle in handles:
            self._changed = self.handles.pop(handle, None) is not None or self._changed

    def save(self, launcher: Launcher) -> None:
        """Write the file, if anything has changed, and have the launcher know what it has."""
        if not self._changed:
            return
        groups, noted = [], list[Handle]()
        for demand, handles in self._by_demand().items():
            try:
                parts, factor = encode_demand(demand)
            except ConfigurationError as error:
                log.warning("some workers will be unknown to who goes on here: %s", error.message)
                continue
            groups.append(_Group(parts, factor, [(one.id, one.log) for one in handles]))
            noted += handles
        replace_private(self._path, to_json(_Facts(groups, dict(launcher.facts()))))
        self.exists = True
        launcher.keep(noted)
        self._changed = False

    def delete(self) -> None:
        """Remove the file: all that was launched has been stopped."""
        self._path.unlink(missing_ok=True)
