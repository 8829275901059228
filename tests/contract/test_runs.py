"""Runs that outlive the process that began them: with a name, and at a stand-alone dispatcher."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clusters import said
from tests.support.contract import at, everywhere
from tests.support.scenario import QUICK, nothing_is_left, play
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.places import Place

SHORT_LEASE = {**QUICK, "GRIDENGINE_LEASE_SECONDS": "4", "GRIDENGINE_BEAT_SECONDS": "0.2"}
"""That workers whose dispatcher was killed leave soon."""
NAMED = """
import contextlib, threading


def call(index):
    while index > 3 and not os.path.exists(GO):
        time.sleep(0.02)
    return index


def watch():
    done = 0
    while done < 4:
        time.sleep(0.05)
        with contextlib.suppress(gridengine.JournalError):  # there is none yet
            done = gridengine.run_named("killed", journal=JOURNAL).done
    tell(kept=done)


if FIRST:
    threading.Thread(target=watch, daemon=True).start()
else:
    import logging
    logging.basicConfig(level=logging.INFO, format="%(message)s")
with CLUSTER(max_workers=2) as scheduler:
    results = gridengine.map(
        call, range(8), name="killed", chunksize=1, scheduler=scheduler, journal=JOURNAL
    )
tell(results=results)
"""


@everywhere
def test_a_named_run_whose_script_is_killed_goes_on_when_it_is_run_again(
    place: Place, shared_folder: str
) -> None:
    names = f"JOURNAL, GO = {shared_folder + '/runs.sqlite'!r}, {shared_folder + '/go'!r}\n"
    first = play(place, f"{names}FIRST = True\n{NAMED}", environment=SHORT_LEASE)
    wait_until(lambda: first.told() or first.process.poll() is not None)
    assert first.told() == {"kept": 4}, first.errors
    first.process.kill()
    first.process.wait()
    Path(shared_folder, "go").touch()
    second = play(place, f"{names}FIRST = False\n{NAMED}", environment=SHORT_LEASE)
    assert second.result()["results"] == list(range(8))
    assert "4 results taken from the journal, 4 new" in second.errors


@pytest.fixture
def shared_folder(place: Place) -> str:
    """A folder that several scripts use."""
    folder = place.folder / "shared"
    folder.mkdir()
    place._give(folder)
    return str(folder)


NIGHT = """
import subprocess

calls, go = FOLDER / "calls", FOLDER / "go"
calls.touch()
os.environ["GRIDENGINE_RUN_DIRECTORY"] = str(FOLDER / "runs")
connection = FOLDER / "runs/dispatchers/night/client.json"


def start():
    "Start the dispatcher, and wait until clients can connect."
    connection.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, *COMMAND])
    while not connection.exists():
        assert process.poll() is None
        time.sleep(0.05)
    return process


def where(number):
    return number * number, os.getppid()


dispatcher = start()
with gridengine.Client(str(connection)) as first:
    squares = [gridengine.map(where, range(20), scheduler=first)]
with gridengine.Client(str(connection)) as second:
    squares.append(gridengine.map(where, range(20), scheduler=second))
    done = second.status().done
workers = len({worker for one in squares for _, worker in one})
maps = [[square for square, _ in one] for one in squares]
restarted = begun = None
if IS_REMOTE:
    client = gridengine.Client(str(connection))
    with gridengine.Executor(scheduler=client, retries=0) as executor:
        futures = [executor.submit(hold, number) for number in range(6)]
        while len(list(FOLDER.glob("began *"))) < 2:
            time.sleep(0.05)
        dispatcher.kill()
        dispatcher.wait()
        dispatcher = start()
        while client.status().running < 2:
            time.sleep(0.05)
        go.touch()
        restarted = [future.result(100) for future in futures]
    client.disconnect()
    begun = sorted(int(path.name.split()[1]) for path in FOLDER.glob("began *"))
dispatcher.terminate()
dispatcher.wait()
tell(maps=maps, done=done, workers=workers, restarted=restarted, begun=begun)
"""


@pytest.fixture(scope="module")
def night(place: Place) -> dict[str, Any]:
    """What scripts had of a stand-alone dispatcher, which is killed where its workers live on."""
    names = f"COMMAND, IS_REMOTE = {place.dispatcher}, {place.is_remote}\n"
    scenario = play(place, names + NIGHT, environment=QUICK)
    return {**scenario.result(), "calls": scenario.begun()}


@everywhere
def test_clients_come_and_go_at_a_stand_alone_dispatcher_that_leaves_nothing(
    place: Any, night: dict[str, Any]
) -> None:
    assert night["maps"] == [[x * x for x in range(20)]] * 2
    assert night["done"] == 40
    assert night["workers"] <= 2
    nothing_is_left(place, night["calls"])
    if place.has_queue:
        wait_until(lambda: not place.jobs())


@at(lambda kind: kind.is_remote)
def test_workers_outlive_a_dispatcher_that_is_killed_and_calls_begin_once(
    place: Place, night: dict[str, Any]
) -> None:
    assert night["restarted"] == night["begun"] == list(range(6))


WHERE = """
import logging

said = []
logger = logging.getLogger("gridengine")
logger.setLevel(logging.INFO)
logger.addHandler(handler := logging.Handler())
handler.emit = lambda record: said.append(record.getMessage())
best = type(gridengine.schedulers.best_available()).__name__
logger.setLevel(logging.NOTSET)


def place(number):
    return first_of(JOB), os.getpid()


places = [gridengine.map(place, range(3), scheduler=NAME) for _ in range(2)]
tell(best=best, said=said, places=places)
"""


@at(lambda kind: kind.has_name)
def test_the_best_available_and_the_one_of_that_name_are_the_place_s_and_nothing_is_printed(
    place: Any,
) -> None:
    alone = {} if place.has_queue else {"PATH": "/nosuch"}
    scenario = play(place, f"NAME = {place.name!r}\n{WHERE}", environment={**QUICK, **alone})
    told = scenario.result()
    assert told["best"] == place.scheduler
    words = f"{place.title} takes jobs of this user" if place.has_queue else "SGE_ROOT is not set"
    assert words in "\n".join(told["said"])
    first, second = told["places"]
    assert len({pid for _, pid in first + second}) <= 3, "the second has workers of the first"
    assert ({job for job, _ in first} != {"none"}) == place.has_queue
    assert said(scenario.errors) == []
