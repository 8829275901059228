"""What goes wrong at each place every day, and what must come of it."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clusters import GridEngine
from tests.support.contract import at, everywhere, play_at_once
from tests.support.scenario import (
    QUICK,
    bring_up,
    free_slots,
    play,
    stop_daemon,
    wait_until_confirmed,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.places import Place

LEASE_SECONDS = 3.0
HASTY = {
    **QUICK,
    "GRIDENGINE_LEASE_SECONDS": str(LEASE_SECONDS),
    "GRIDENGINE_BEAT_SECONDS": "0.2",
}


def wait_longer_than_a_lease() -> None:
    end = time.monotonic() + LEASE_SECONDS + 1.0
    wait_until(lambda: time.monotonic() > end)


# ------------------------------------------------------------------ workers that are ended

ONCE = """
def call(x, begun=str(FOLDER / "begun")):
    with open(begun, "a") as file:
        print(x, file=file)
    if x % 40 == 20:
        os._exit(1)
    return hold(x) if x == 70 else x


results = gridengine.map(
    call, range(200), scheduler=CLUSTER(max_workers=1), retries=0, chunksize=10, reraise=False
)
bad = {x: type(result).__name__ for x, result in enumerate(results) if result != x}
tell(begun=[int(line) for line in open("begun")], bad=bad)
"""


def no_retries(place: Place) -> None:
    scenario = play(place, ONCE)
    place.delete_worker(scenario.began(1)[0])
    told = scenario.result()
    assert sorted(told["begun"]) == list(range(200))
    crashed = {str(x): "WorkerCrashed" for x in range(20, 200, 40)}
    assert told["bad"] == {**crashed, "70": place.lost}


AGAIN = """
scheduler = CLUSTER(max_workers=1)
tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=scheduler, retries=1)))
"""


def retries(place: Place) -> None:
    scenario = play(place, AGAIN)
    for count in (1, 2):
        place.delete_worker(scenario.began(count)[-1])
    told = scenario.result()
    assert len(told["attempts"]) == len(scenario.begun()) == 2
    assert told["kind"] == place.lost
    if place.has_queue:
        assert place.deleted in told["text"]
        assert told["job"] == place.worker_id(scenario.begun()[-1])


WAITING = """
class Noted(CLUSTER):
    def launcher(self, run):
        launcher = super().launcher(run)
        launch = launcher.launch

        def noted(*args):
            handles = launch(*args)
            Path(FOLDER, f"launched {handles[0].id}").touch()
            return handles

        launcher.launch = noted
        return launcher


scheduler = Noted(max_workers=1, **CLOSED)
tell(**facts_of(lambda: gridengine.map(hold, range(8), scheduler=scheduler)))
"""


def waiting(place: Any) -> None:
    scenario = play(place, f"CLOSED = dict({place.closed})\n{WAITING}")
    deleted: set[str] = set()

    def delete_new() -> bool:
        launched = {path.name.split()[1] for path in scenario.folder.glob("launched *")}
        for job in {re.split("[._]", id)[0] for id in launched} - deleted:
            place.command(*place.delete_command.split(), job)
            deleted.add(job)
        return scenario.process.poll() is not None

    wait_until(delete_new)
    assert scenario.result()["kind"] == "JobDeleted"
    assert len(deleted) == 3


# ------------------------------------------------------------------ workers that do not come

NEVER = """
import shutil, threading


def spoilt(given, spoil=lambda folder: None):
    class Spoilt(CLUSTER):
        def launcher(self, run):
            launcher = super().launcher(run)
            if HAS_QUEUE:
                launcher.prepare()
            spoil(run.directory)
            return launcher

    return facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: Spoilt(**given)))


def interpreter():
    if not HAS_QUEUE:
        sys.executable = "/nosuch/python"
        return spoilt({})
    return spoilt({"python": "/nosuch/python"})


cases = {
    "interpreter": interpreter,
    "prologue": lambda: spoilt({"prologue": ["echo modules are gone", "false"]}),
    "log folder": lambda: spoilt({}, lambda folder: (folder / "logs").rmdir()),
    "working directory": lambda: spoilt({}, shutil.rmtree),
}
told = {}


def tell_of(name):
    told[name] = cases[name]()


threads = [threading.Thread(target=tell_of, args=(name,)) for name in NAMES]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tell(**told)
"""


def never(place: Place) -> None:
    names = f"NAMES, HAS_QUEUE = {list(place.never)}, {place.has_queue}\n"
    told = play(place, names + NEVER).result()
    assert told.keys() == place.never.keys()
    for case, words in place.never.items():
        error = told[case]
        assert error["kind"] == "WorkerNotStarted"
        assert words in error["text"]
        if place.has_queue:
            assert error["job"] in error["text"]
            assert error["log"] in error["text"]
    if place.has_queue:
        assert "its Python could not be run" in told["interpreter"]["text"]
        assert "a line of its prologue failed" in told["prologue"]["text"]
        assert "prologue=" in told["prologue"]["hint"]


# ------------------------------------------------------------------ suspended


def suspended(place: Place) -> None:
    scenario = play(
        place,
        "tell(results=gridengine.map(hold, [0], scheduler=CLUSTER(max_workers=1)))",
        environment=HASTY,
    )
    (one,) = scenario.began(1)
    place.suspend(one)
    wait_longer_than_a_lease()
    scenario.go()
    place.resume(one)
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1


Ends = dict[str, Future[None]]


@pytest.fixture(scope="module")
def ends(place: Place) -> Ends:
    """How the scenes of this module ended, which are played at the same time."""
    scenes = [no_retries, retries, never]
    scenes += [suspended] if place.may_suspend else []
    scenes += [waiting] if place.has_queue else []
    return play_at_once(place, scenes)


@everywhere
def test_with_no_retries_no_call_begins_twice_though_processes_die_and_workers_are_ended(
    place: Place, ends: Ends
) -> None:
    ends["no_retries"].result()


@everywhere
def test_a_call_whose_worker_is_ended_runs_again_and_is_an_error_after_as_many_retries(
    place: Place, ends: Ends
) -> None:
    ends["retries"].result()


@everywhere
def test_workers_that_never_connect_are_an_error_with_the_reason(place: Place, ends: Ends) -> None:
    ends["never"].result()


@at(lambda kind: kind.may_suspend)
def test_a_suspended_worker_is_waited_for_longer_than_a_lease_and_goes_on(
    place: Place, ends: Ends
) -> None:
    ends["suspended"].result()


@at(lambda kind: kind.has_queue)
def test_waiting_jobs_deleted_again_and_again_are_an_error_after_as_many_retries(
    place: Place, ends: Ends
) -> None:
    ends["waiting"].result()


# ------------------------------------------------------------------ restarted


@at(lambda kind: kind.daemon)
def test_a_run_outlives_a_restart_of_the_place_s_daemon_and_later_deletions_are_seen(
    place: Any,
) -> None:
    scenario = play(
        place,
        f"""
scheduler = CLUSTER(max_workers=2, {place.on_its_node})
tell(results=gridengine.map(hold, range(2), scheduler=scheduler, chunksize=1))
""",
        environment=HASTY,
    )
    first = scenario.began(2)
    if isinstance(place, GridEngine):
        wait_until_confirmed(place, first[0].job, 2)
    try:
        stop_daemon(place.daemon)
        wait_longer_than_a_lease()
    finally:
        bring_up(place.up)
    assert len(scenario.begun()) == 2
    assert all(one.lives for one in first)
    place.delete_worker(first[0])
    scenario.began(2, index=first[0].index)
    scenario.go()
    assert scenario.result()["results"] == [0, 1]
    assert scenario.ended() == [0, 1]
    if isinstance(place, GridEngine):
        free_slots()
