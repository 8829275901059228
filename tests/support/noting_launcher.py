"""A launcher that starts nothing and notes what it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.launcher import Handle, LaunchContext, Report, WorkerStatus

FIRST, SECOND, THIRD = (Handle(f"{n}", f"/runs/logs/worker.{n}.1.log") for n in range(1, 4))
CONTEXT = LaunchContext("run", Path(), Path(), lambda *_: None, epoch=2)


class NotingLauncher:
    """Of the workers that it is asked for the first has always ended."""

    label = request_words = ""

    def __init__(self, run: LaunchContext = CONTEXT) -> None:
        self.adopted: tuple[object, object] | None = None
        self.asked: list[Handle] = []
        self.cancelled: list[Handle] = []
        self.kept: list[Handle] | None = None
        self.closed = False

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        return [FIRST, SECOND][:count]

    def poll(self, handles: Sequence[Handle]) -> dict[Handle, Report]:
        self.asked += handles
        return {FIRST: Report(WorkerStatus.ENDED)}

    def cancel(self, handles: Sequence[Handle]) -> None:
        self.cancelled += handles

    def explain(self, handles: object) -> str:
        return ""

    def facts(self) -> dict[str, str]:
        return {"name": "night"}

    def adopt(self, handles: object, facts: object) -> None:
        self.adopted = handles, facts

    def keep(self, handles: list[Handle]) -> None:
        self.kept = handles

    def close(self) -> None:
        self.closed = True
