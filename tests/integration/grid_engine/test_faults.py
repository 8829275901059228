"""What goes wrong on a real Grid Engine every day, and what must come of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.scenario import (
    ENDS,
    HOLD_FOUR,
    IMPATIENT,
    Scenario,
    bring_up,
    changed_queue,
    free_slots,
    interrupt,
    jobs,
    nothing_is_left,
    play,
    play_to_the_end,
    stop_daemon,
    until,
    wait_until_confirmed,
)

if TYPE_CHECKING:
    from tests.conftest import GridEngine

pytestmark = pytest.mark.grid_engine
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Grid Engine")


# ------------------------------------------------------------------ calls


def test_calls_that_crash_are_tried_again_and_then_name_how_and_the_others_are_done(
    grid_engine: GridEngine,
) -> None:
    told = play(
        grid_engine,
        """
def die(how):
    Path("begun-" + str(how) + "-" + str(os.getpid())).touch()
    print("last words of", how, file=sys.stderr)
    if how == "exit":
        os._exit(3)
    if isinstance(how, int):
        os.kill(os.getpid(), how)
        time.sleep(60)
    return how

ways = ["well", "exit", 9, "fine", 11, "good"]
results = gridengine.map(die, ways, scheduler=lambda: GridEngineScheduler(max_workers=2), retries=1, reraise=False)
good = [result for result in results if isinstance(result, str)]
tell(good=good, bad=[facts(result) for result in results if not isinstance(result, str)], runs=len(list(FOLDER.glob("begun-*"))))
""",
    ).result()
    assert told["good"] == ["well", "fine", "good"]
    assert [error["kind"] for error in told["bad"]] == ["WorkerCrashed"] * 3
    for error, words in zip(
        told["bad"], ["exited with status 3", "SIGKILL", "SIGSEGV"], strict=True
    ):
        assert words in error["text"]
        assert len(error["attempts"]) == 2
        assert error["host"]
        assert error["job"] in error["text"]
        assert error["log"] in error["text"]
        assert "last words of" in error["log_tail"]
    assert told["runs"] >= 3 + 3 * 2


def test_a_call_that_gets_no_more_memory_is_out_of_memory_and_says_the_limit(
    grid_engine: GridEngine,
) -> None:
    told = play(
        grid_engine,
        """
tell(**facts_of(lambda: gridengine.map(bytearray, [4_000_000_000], scheduler=lambda: GridEngineScheduler(h_vmem="1500M"), retries=0)))
""",
    ).result()
    assert told["kind"] == "OutOfMemory"
    assert "its limit was 1.46 GB" in told["text"]
    assert told["job"] in told["text"]


def test_a_job_over_its_memory_is_out_of_memory_and_says_the_limit(grid_engine: GridEngine) -> None:
    told = play(
        grid_engine,
        """
def fill(x, folder=str(FOLDER)):
    kept = []
    try:  # Each process may have that much; Grid Engine ends a job whose processes have it together.
        while True:
            kept.append(bytearray(20_000_000))
    except MemoryError:
        hold(x, folder)

tell(**facts_of(lambda: gridengine.map(fill, [1], scheduler=lambda: GridEngineScheduler(h_vmem="1500M"), retries=1)))
""",
    ).result()
    assert told["kind"] == "OutOfMemory"
    assert "h_vmem=1500M" in told["text"]
    assert len(told["attempts"]) == 2
    assert told["job"] in told["text"]


def test_a_job_over_its_time_is_a_timeout_that_is_not_tried_again(grid_engine: GridEngine) -> None:
    scenario = play(
        grid_engine,
        """
tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: GridEngineScheduler(h_rt=3), retries=2)))
""",
    )
    told = scenario.result()
    assert told["kind"] == "TimeoutError"
    assert "took longer than its worker may be there" in told["text"]
    assert told["job"] in told["text"]
    assert len(scenario.begun()) == 1


def test_a_call_over_its_time_is_ended_and_the_others_go_on(grid_engine: GridEngine) -> None:
    scenario = play(
        grid_engine,
        """
def call(index):
    return hold(index) if index == 1 else index

scheduler = GridEngineScheduler(max_workers=2)
results = gridengine.map(call, range(4), scheduler=scheduler, timeout=1, reraise=False)
tell(good=results[:1] + results[2:], **facts(results[1]))
""",
    )
    told = scenario.result()
    assert told["good"] == [0, 2, 3]
    assert told["kind"] == "TimeoutError"
    assert "1 s" in told["text"]
    assert len(scenario.begun(1)) == 1
    assert not scenario.begun(1)[0].lives


# ------------------------------------------------------------------ deleted jobs


def test_calls_of_deleted_tasks_and_arrays_run_again_in_new_ones_whoever_deleted_them(
    grid_engine: GridEngine,
) -> None:
    scenario = play(grid_engine, HOLD_FOUR)
    first = scenario.began(4)
    one = first[0]
    grid_engine.command("qdel", one.job, "-t", one.task)
    scenario.began(2, index=one.index)
    assert len(scenario.begun()) == 5
    grid_engine.administer("qdel", one.job)
    for index in range(4):
        scenario.began(2, index=index)
    scenario.go()
    assert scenario.result()["results"] == [0, 1, 2, 3]
    again = [scenario.begun(index)[-1] for index in range(4)]
    assert one.job not in {each.job for each in again}
    assert len(scenario.begun()) == 8
    assert scenario.ended() == [0, 1, 2, 3]


def test_who_deletes_a_job_again_and_again_is_obeyed_after_as_many_retries(
    grid_engine: GridEngine,
) -> None:
    scenario = play(
        grid_engine,
        "tell(**facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: "
        "GridEngineScheduler(max_workers=4), retries=2)))",
    )
    for count in (1, 2, 3):
        grid_engine.command("qdel", scenario.began(count)[-1].job)
    told = scenario.result()
    assert told["kind"] == "JobDeleted"
    assert len(told["attempts"]) == len(scenario.begun()) == 3
    assert "somebody" in told["text"]
    assert told["job"] == f"{scenario.begun()[-1].job}.{scenario.begun()[-1].task}"


def test_who_deletes_waiting_jobs_again_and_again_is_obeyed_after_as_many_retries(
    grid_engine: GridEngine,
) -> None:
    before = set(jobs(grid_engine))
    scenario = play(
        grid_engine,
        "tell(**facts_of(lambda: gridengine.map(hold, range(8), scheduler=lambda: "
        "GridEngineScheduler(queue='closed.q'))))",
    )
    seen = set[str]()
    while scenario.process.poll() is None:
        new = set(jobs(grid_engine)) - before - seen
        if new:
            seen |= new
            grid_engine.command("qdel", *new)
        time.sleep(0.1)
    told = scenario.result()
    assert told["kind"] == "JobDeleted"
    assert len(seen) == 3


# ------------------------------------------------------------------ workers that do not come


def test_workers_that_never_call_home_are_an_error_with_the_reason_soon(
    grid_engine: GridEngine,
) -> None:
    scenario = play(
        grid_engine,
        """
import shutil, threading
from gridengine.dispatcher import io_thread

def spoilt(given, spoil=lambda folder: None):
    class Spoilt(GridEngineScheduler):
        def launcher(self, run):
            launcher = super().launcher(run)
            launcher.prepare()
            spoil(run.directory)
            return launcher
    began = time.monotonic()
    said = facts_of(lambda: gridengine.map(hold, [0], scheduler=lambda: Spoilt(**given)))
    return {**said, "seconds": time.monotonic() - began}

cases = {
    "interpreter": lambda: spoilt({"python": "/nosuch/python"}),
    "prologue": lambda: spoilt({"prologue": ["echo modules are gone", "false"]}),
    "log folder": lambda: spoilt({}, lambda folder: (folder / "logs").rmdir()),
    "working directory": lambda: spoilt({}, shutil.rmtree),
}
told = {}
threads = [threading.Thread(target=lambda name=name, case=case: told.update({name: case()})) for name, case in cases.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tell(**told)
""",
    )
    told = scenario.result(60)
    assert {case: error["kind"] for case, error in told.items()} == dict.fromkeys(
        told, "WorkerNotStarted"
    )
    words = {
        "interpreter": "/nosuch/python: No such file or directory",
        "prologue": "modules are gone",
        "log folder": "opening input/output file",
        "working directory": "changing into working directory",
    }
    assert told.keys() == words.keys()
    for case, error in told.items():
        assert words[case] in error["text"]
        assert error["job"] in error["text"]
        assert error["log"] in error["text"]
        assert error["seconds"] < 30, case


def test_what_the_cluster_refuses_is_told_in_its_own_words(grid_engine: GridEngine) -> None:
    told = play(
        grid_engine,
        "tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=lambda: "
        "GridEngineScheduler(nosuch=1))))",
    ).result()
    assert told["kind"] == "SubmissionRefused"
    assert 'unknown resource "nosuch"' in told["text"]


@as_root
def test_who_waits_for_a_disabled_queue_is_told_so_and_gets_there_when_it_is_enabled(
    grid_engine: GridEngine,
) -> None:
    scenario = play(
        grid_engine,
        "tell(results=gridengine.map(abs, [-1], scheduler=lambda: "
        "GridEngineScheduler(queue='closed.q')))",
    )
    until(lambda: "waiting for" in scenario.errors)
    assert 'queue instance "closed.q@' in scenario.errors
    assert "disabled" in scenario.errors
    with changed_queue(grid_engine, "-e", "-d", "closed.q"):
        assert scenario.result()["results"] == [1]


def test_calls_that_wait_longer_than_start_timeout_fail_with_grid_engine_s_reason_and_nothing_is_left(
    grid_engine: GridEngine,
) -> None:
    given = "queue='closed.q', start_timeout=20"
    scenario = play(
        grid_engine,
        "tell(**facts_of(lambda: gridengine.map(abs, [1], scheduler=lambda: "
        f"GridEngineScheduler({given}))))",
    )
    told = scenario.result()
    assert told["kind"] == "WorkerNotStarted"
    assert "no worker has started within 20 s (start_timeout)" in told["text"]
    assert 'queue instance "closed.q@' in told["text"]
    until(lambda: not grid_engine.knows(told["job"].partition(".")[0]))


# ------------------------------------------------------------------ stopped, cut off, restarted


def test_a_suspended_job_is_waited_for_longer_than_a_lease_and_goes_on(
    grid_engine: GridEngine,
) -> None:
    scenario = play(
        grid_engine,
        "tell(results=gridengine.map(hold, [0], scheduler=GridEngineScheduler(max_workers=2)))",
        environment=IMPATIENT,
    )
    (one,) = scenario.began(1)
    grid_engine.command("qmod", "-sj", one.job)
    until(lambda: psutil.Process(one.pid).status() == psutil.STATUS_STOPPED)
    stopped = time.monotonic()
    until(lambda: time.monotonic() - stopped > 2 * float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"]))
    scenario.go()
    grid_engine.command("qmod", "-usj", one.job)
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1


CHAOS = Path(__file__).parents[2] / "chaos"
LINE = """
import threading
from dataclasses import replace

from faults import Line
from gridengine.wire.connection import Connection
from places import LedGridEngine

scheduler = LedGridEngine(max_workers=1)
scheduler.line, scheduler.connections = Line(), []


def when(name, act):
    def wait():
        while not Path(name).exists():
            time.sleep(0.02)
        act()
        Path(name + " done").touch()

    threading.Thread(target=wait, daemon=True).start()
"""


def over_line(grid_engine: GridEngine, script: str) -> Scenario:
    """Play a script whose workers call home by a line."""
    files = {name: (CHAOS / name).read_text() for name in ("faults.py", "places.py")}
    return play(grid_engine, LINE + script, files=files, environment=IMPATIENT)


def test_a_worker_whose_line_comes_back_goes_on(grid_engine: GridEngine) -> None:
    scenario = over_line(
        grid_engine,
        """
when("down", lambda: scheduler.line.cut(down=True))
when("up", scheduler.line.up)
tell(results=gridengine.map(alone, [0], scheduler=scheduler))
""",
    )
    scenario.began(1)
    scenario.tell("down")
    down = time.monotonic()
    until(lambda: time.monotonic() - down > float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"]) / 2)
    scenario.go()
    scenario.tell("up")
    assert scenario.result()["results"] == [0]
    assert len(scenario.begun()) == 1


def test_the_calls_of_a_worker_whose_line_stays_down_run_elsewhere_when_it_has_ended_them(
    grid_engine: GridEngine,
) -> None:
    scenario = over_line(
        grid_engine,
        """
def down():
    [path] = scheduler.connections
    connection = Connection.load(path)
    path.unlink()
    port = scheduler.line.port
    replace(connection, addresses=(f"tcp://127.0.0.1:{port}",)).save(path)  # who comes next does without the line
    scheduler.line.cut(down=True)

when("down", down)
tell(results=gridengine.map(alone, [0], scheduler=scheduler))
""",
    )
    (first,) = scenario.began(1)
    scenario.tell("down")
    scenario.began(2)
    assert not (scenario.folder / "not alone").exists()
    scenario.go()
    assert scenario.result()["results"] == [0]
    assert scenario.ended() == [0]
    assert not first.lives


@as_root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("daemon", ["sge_execd", "sge_qmaster"])
def test_a_run_outlives_a_restart_of_a_daemon_and_later_deletions_are_seen(
    grid_engine: GridEngine, daemon: str
) -> None:
    scenario = play(
        grid_engine,
        "tell(results=gridengine.map(hold, range(2), scheduler=lambda: "
        "GridEngineScheduler(max_workers=2), chunksize=1))",
        environment=IMPATIENT,
    )
    first = scenario.began(2)
    wait_until_confirmed(grid_engine, first[0].job, 2)
    try:
        stop_daemon(daemon)
        stopped = time.monotonic()
        until(lambda: time.monotonic() - stopped > float(IMPATIENT["GRIDENGINE_LEASE_SECONDS"]))
    finally:
        bring_up()
    assert len(scenario.begun()) == 2
    assert all(one.lives for one in first)
    grid_engine.command("qdel", first[0].job, "-t", first[0].task)
    scenario.began(
        2, index=first[0].index, seconds=100
    )  # once in ten times Grid Engine's library does not answer for the first minute
    scenario.go()
    assert scenario.result()["results"] == [0, 1]
    assert scenario.ended() == [0, 1]
    free_slots()


# ------------------------------------------------------------------ the end of the user's process


def test_when_the_dispatcher_is_killed_its_tasks_are_deleted_and_its_workers_leave(
    grid_engine: GridEngine,
) -> None:
    scenario = play(grid_engine, HOLD_FOUR)
    begun = scenario.began(4)
    scenario.process.kill()
    nothing_is_left(grid_engine, begun)


def test_when_all_of_the_user_s_processes_are_killed_the_workers_leave_with_their_lease(
    grid_engine: GridEngine,
) -> None:
    scenario = play(grid_engine, HOLD_FOUR, environment=IMPATIENT)
    begun = scenario.began(4)
    mine = psutil.Process(scenario.process.pid)
    for process in [*mine.children(recursive=True), mine]:
        process.kill()
    nothing_is_left(grid_engine, begun)


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_in_the_cluster_at_the_end_by(grid_engine: GridEngine, end: str) -> None:
    begun, ended = play_to_the_end(grid_engine, end)
    nothing_is_left(grid_engine, begun, seconds=5)
    assert ended == []


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_at_the_terminal_ends_the_cluster_s_tasks_and_reaches_the_user(
    grid_engine: GridEngine, presses: int
) -> None:
    begun, ended = interrupt(grid_engine, presses)
    nothing_is_left(grid_engine, begun, seconds=5)
    assert ended == []
