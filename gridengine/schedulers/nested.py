"""`NestedScheduler`: where calls run that a call makes, which is where it runs itself."""

from __future__ import annotations

from gridengine.schedulers.base import Scheduler


class NestedScheduler(Scheduler):
    """The scheduler that runs this process's calls, as these have it: what they make goes to its
    workers, and ends with them.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def __repr__(self) -> str:
        return "<the scheduler of the call that runs here>"

    def close(self) -> None:
        """End what this process's calls have made and what has not ended. It can be used as
        before.
        """
        if self._shared is not None:
            self._shared.close()
