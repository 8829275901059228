"""However the user's process ends, nothing that it started is left."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import termios
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.contract import at, everywhere
from tests.support.scenario import QUICK, Began, Scenario, nothing_is_left, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.places import Place

HOLDS = """
scheduler = CLUSTER(max_workers=1)
if CLOSED is not None:
    waits = gridengine.Executor(scheduler=CLUSTER(**CLOSED)).submit(abs, 1)
gridengine.map(hold, range(4), scheduler=scheduler, chunksize=1)
"""
PATIENT = {**QUICK, "GRIDENGINE_RUN_DIRECTORY": "runs"}
LEASED = {
    **PATIENT,
    "GRIDENGINE_LEASE_SECONDS": "2",
    "GRIDENGINE_BEAT_SECONDS": "0.2",
    "GRIDENGINE_GRACE_SECONDS": "0.5",
}
WITHIN_A_LEASE = 45.0
"""What is gone by then was ended: a worker that nobody told stays for a minute."""


def kill_all(scenario: Scenario) -> None:
    """Kill the script and all that it started on this machine for its clean-up, at one moment."""
    mine = psutil.Process(scenario.process.pid)
    mine.suspend()  # it starts no more
    everything = [mine, *mine.children(recursive=True)]
    # First all are stopped: else a second process of an srun may begin to end what the first ran.
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):  # a command that had just ended
                act(process)


@dataclass
class End:
    """What was there when a script was ended: calls, its processes; and what it left."""

    begun: list[Began]
    processes: list[psutil.Process]
    status: int
    ended: list[int]
    folder: Path

    def leaves_nothing(self, place: Place, *, seconds: float = WITHIN_A_LEASE) -> None:
        """Wait until all is gone: no call has gone on to its end."""
        nothing_is_left(place, self.begun, seconds=seconds)
        wait_until(lambda: not any(map(psutil.Process.is_running, self.processes)), seconds)
        assert self.ended == []


ENDS = {
    "SIGKILL": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "Ctrl-C": signal.SIGINT,
    "Ctrl-C twice": signal.SIGINT,
    "all killed": signal.SIGKILL,
}


@pytest.fixture(scope="module")
def ends(place: Any) -> dict[str, End]:
    """What scripts leave that are ended in each way while they run calls, and jobs of theirs wait:
    all at the same time.
    """
    with terminal(place) as keyboard, terminal(place) as other:
        keyboards = {"Ctrl-C": keyboard, "Ctrl-C twice": other}
        scripts = {}
        for how in ENDS if place.has_queue else [*ENDS][:4]:
            lasts = place.has_queue and how != "all killed"
            closed = f"dict({place.closed})" if lasts else None
            scripts[how] = play(
                place,
                f"CLOSED = {closed}\n{HOLDS}",
                environment=PATIENT if lasts else LEASED,
                terminal=keyboards[how][1] if how in keyboards else None,
            )
        ended: dict[str, End] = {}
        while len(ended) < len(scripts):
            # Whichever has a worker: there may be fewer slots than scripts, and no order in which
            # they are given out.
            how = wait_until(lambda: next(begun_among(scripts, ended), ""))
            ended[how] = end(scripts[how], how, keyboards.get(how, keyboard)[0])
        return ended


def begun_among(scripts: Mapping[str, Scenario], ended: Container[str]) -> Iterator[str]:
    """Yield the scripts that run a call and were not ended yet."""
    return (how for how, script in scripts.items() if how not in ended and script.begun())


def end(script: Scenario, how: str, keyboard: int) -> End:
    """End a script in this way while it runs a call."""
    begun = script.began(1)
    processes = psutil.Process(script.process.pid).children(recursive=True)
    before = termios.tcgetattr(keyboard)
    if how.startswith("Ctrl-C"):
        for _ in range(1 + how.endswith("twice")):
            os.write(keyboard, b"\x03")
    elif how == "all killed":
        kill_all(script)
    else:
        script.process.send_signal(ENDS[how])
    status = script.process.wait(300)  # not for what it prints, whose workers may hold that open
    assert termios.tcgetattr(keyboard) == before
    return End(begun, processes, status, script.ended(), script.folder)


@contextlib.contextmanager
def terminal(place: Place) -> Iterator[tuple[int, int]]:
    """Give both ends of a terminal of a place's user."""
    ours, theirs = pty.openpty()
    os.fchown(theirs, place.user.pw_uid, -1)
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


@everywhere
def test_a_script_that_is_killed_leaves_nothing(place: Place, ends: dict[str, End]) -> None:
    ends["SIGKILL"].leaves_nothing(place)


@everywhere
def test_sigterm_ends_a_script_and_leaves_nothing(place: Place, ends: dict[str, End]) -> None:
    assert ends["SIGTERM"].status == -signal.SIGTERM
    ends["SIGTERM"].leaves_nothing(place)


@everywhere
@pytest.mark.parametrize("how", ["Ctrl-C", "Ctrl-C twice"])
def test_ctrl_c_at_the_terminal_ends_a_script_and_leaves_nothing(
    place: Place, ends: dict[str, End], how: str
) -> None:
    assert ends[how].status == -signal.SIGINT
    ends[how].leaves_nothing(place)


with_a_queue = at(lambda kind: kind.has_queue)


@with_a_queue
def test_workers_whose_user_has_no_process_left_leave_with_their_lease(
    place: Place, ends: dict[str, End]
) -> None:
    ends["all killed"].leaves_nothing(place)


@with_a_queue
def test_jobs_that_wait_and_the_keys_of_a_run_go_with_a_script_that_is_killed(
    place: Any, ends: dict[str, End]
) -> None:
    runs = ends["SIGKILL"].folder / "runs"
    wait_until(lambda: {path.name for path in runs.glob("*/*")} == {"logs"})
    wait_until(lambda: not place.jobs())
