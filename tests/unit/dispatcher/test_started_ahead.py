"""The first worker elsewhere, which begins to start before there is a dispatcher."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gridengine.dispatcher import started_ahead
from gridengine.dispatcher.started_ahead import StartedAhead
from gridengine.errors import ConfigurationError, SchedulerUnavailable
from gridengine.resources import Cores
from gridengine.resources.demand import Demand
from gridengine.schedulers.base import Scheduler
from gridengine.schedulers.launcher import Handle, LaunchContext, LaunchesAhead
from gridengine.settings.schema import Settings

HANDLE = Handle("7", "/runs/r/worker.log")


class Link:
    """The link to workers elsewhere, without a socket."""

    closed = False

    def __init__(self, scheduler: object, *, run_id: str, **options: object) -> None:
        self.context = LaunchContext(run_id, Path("/runs/r"), Path("/runs/r/c.json"), print)

    def close(self) -> None:
        self.closed = True


class Launcher:
    label, closed = "", False

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def launch_ahead(self, demand: Demand) -> LaunchesAhead:
        if self._error is not None:
            raise self._error
        self.demand = demand
        return lambda: [HANDLE]

    def close(self) -> None:
        self.closed = True


class Elsewhere(Scheduler):
    local = False

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(max_workers=1)
        self._error = error
        self.made: list[Launcher] = []

    def launcher(self, run: LaunchContext) -> Any:
        self.made.append(Launcher(self._error))
        return self.made[-1]


@pytest.fixture(autouse=True)
def links(monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    made: list[Link] = []

    def make(scheduler: object, **options: Any) -> Link:
        made.append(Link(scheduler, **options))
        return made[-1]

    monkeypatch.setattr(started_ahead, "RemoteWorkers", make)
    return made


def test_a_worker_begins_to_start_for_calls_of_this_name() -> None:
    ahead = StartedAhead.begin(Elsewhere(), Settings(), "simulate")
    assert (ahead.launcher.label, ahead.handles()) == ("simulate", [HANDLE])


def test_a_worker_that_calls_share_is_requested_with_all_that_it_holds() -> None:
    scheduler = Elsewhere()
    scheduler._hold(Cores(4))
    ahead: Any = StartedAhead.begin(scheduler, Settings(), "simulate")
    assert ahead.launcher.demand == Demand(Cores(4))


def test_nothing_begins_in_a_process_that_may_not_start_the_dispatcher_s_threads(
    links: list[Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ConfigurationError, match="may not start"):
        StartedAhead.begin(Elsewhere(), Settings(), "f")
    assert links == []


@pytest.mark.parametrize(
    "error", [SchedulerUnavailable("no Slurm"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_start_that_fails_is_left_to_the_first_launch(error: Exception) -> None:
    ahead = StartedAhead.begin(Elsewhere(error), Settings(), "f")
    assert ahead.handles() == []


def test_a_ctrl_c_while_a_worker_begins_to_start_leaves_neither_link_nor_launcher(
    links: list[Link],
) -> None:
    scheduler = Elsewhere(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        StartedAhead.begin(scheduler, Settings(), "f")
    assert [one.closed for one in links] == [one.closed for one in scheduler.made] == [True]


def test_link_and_launcher_are_closed_though_the_batch_system_s_answer_is_an_error() -> None:
    def fail() -> list[Handle]:
        raise OSError(errno.EAGAIN, "no process can be made")

    ahead: Any = StartedAhead.begin(Elsewhere(), Settings(), "f")._replace(begun=fail)
    with pytest.raises(OSError, match="no process"):
        ahead.close()
    assert ahead.launcher.closed
    assert ahead.link.closed


def test_a_worker_ends_that_no_dispatcher_has_taken_over() -> None:
    ahead: Any = StartedAhead.begin(Elsewhere(), Settings(), "f")
    ahead.close()
    assert ahead.launcher.closed
    assert ahead.link.closed
