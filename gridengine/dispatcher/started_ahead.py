"""The first worker elsewhere, which starts while this process imports the rest of the dispatcher:
both take some 50 ms. This module imports only what the worker needs to find its dispatcher.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple, Self

from gridengine.dispatcher.remote_workers import RemoteWorkers
from gridengine.dispatcher.run_directory import new_run_id
from gridengine.dispatcher.thread_queues import EventQueue
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import Handle, Launcher, LaunchesAhead
from gridengine.settings.values import Settings
from gridengine.wire.processes import THREADS, check_threads


class StartedAhead(NamedTuple):
    """What a dispatcher takes over: its queue of events, the link to its workers, and a launcher,
    which has begun to start the worker for calls that request no resources of their own.
    """

    queue: EventQueue[Any]
    link: RemoteWorkers
    launcher: Launcher
    begun: LaunchesAhead

    @classmethod
    def begin(cls, scheduler: Scheduler, settings: Settings, calls: str) -> Self:
        """Begin to start a worker for the calls of this name. If that fails, the first launch fails
        again, and tells the reason.

        Raises:
            ConfigurationError: no socket, or no run directory, can be made, or this process may not
            start the dispatcher's threads.
        """
        check_threads(THREADS)
        queue, held = EventQueue[Any](), scheduler.worker_resources
        link = RemoteWorkers(scheduler, run_id=new_run_id(), settings=settings, wake=queue.wake)
        try:
            launcher = scheduler.launcher(link.context)
        except BaseException:
            link.close()
            raise
        launcher.label = calls
        ahead = cls(queue, link, launcher, list)
        try:
            return ahead._replace(
                begun=launcher.launch_ahead(ANY if held is None else Demand(held))
            )
        except Exception:
            return ahead
        except BaseException:  # a Ctrl-C
            ahead.close()
            raise

    def handles(self) -> list[Handle]:
        """Return the handle of the worker, if the batch system starts it. Waits for its answer."""
        return self.begun()

    def close(self) -> None:
        """End the worker, and the link: no dispatcher has taken them over."""
        with contextlib.ExitStack() as steps:  # in reverse order, and all of them even if one fails
            steps.callback(self.link.close)
            steps.callback(self.launcher.close)
            # An srun that is killed before its answer leaves a node unusable for seconds.
            steps.callback(self.begun)
