"""What jobs of the unit tests run."""

from __future__ import annotations

from typing import Any

from gridengine import Job


def add(x: int, y: int = 0) -> int:
    return x + y


def fail() -> None:
    raise ValueError("no")


def push_all(*values: object, controller: Any) -> int:
    for value in values:
        controller.push(value)
    return int(controller.job_id)


def ended(job: Job) -> Job:
    job.start()
    job.join()
    return job


class Counting(Job):
    def __init__(self, start: int, **options: Any) -> None:
        super().__init__(**options)
        self.count = start
        self.gone = True

    def run(self) -> int:  # type: ignore[override]
        self.count += 1
        del self.gone
        self.new = [self.count]
        return self.count


class FailingCounting(Counting):
    def run(self) -> int:
        super().run()
        raise ValueError("no")
