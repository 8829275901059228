"""Dispatchers of scripts are found and asked from another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gridengine
from gridengine.client.connect import dispatcher_of
from gridengine.errors import ClusterError
from gridengine.watching import connections, dispatcher_lookup
from tests.support.waiting import stop_process, wait_until


def wait_for_one() -> None:
    wait_until(lambda: bool(connections.sockets()))


def test_a_dispatcher_that_is_stopped_does_not_answer_and_nobody_waits_for_ever(
    process: subprocess.Popen[str],
) -> None:
    [path] = connections.sockets()
    stop_process(process.pid)
    with (
        connections.Watched(path, seconds=0.2) as one,
        pytest.raises(ClusterError, match="does not answer"),
    ):
        one.ask()


def test_leftovers_of_a_killed_script_are_removed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert len(connections.sockets()) == 1
    assert connections.answers() == ([], [])
    assert connections.sockets() == []


def test_a_nonsense_request_is_refused_and_the_run_goes_on() -> None:
    with gridengine.ProcessScheduler(1) as scheduler:
        gridengine.map(abs, [1], scheduler=scheduler)
        wait_for_one()
        with dispatcher_lookup.connect() as one, pytest.raises(ClusterError, match="it refuses"):
            one.ask("nonsense")
        assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]


FOLLOW = """
from gridengine.watching.dispatcher_lookup import connect

with connect() as watched:
    watched.follow(interval=0.1, most=1000)
    watched.next_answer()
    print("here", flush=True)
    try:
        while True:
            watched.next_answer()
    except Exception as error:
        print(error.message, flush=True)
"""


def test_a_stopped_follower_is_dropped_while_calls_go_on() -> None:
    with (
        gridengine.ProcessScheduler(1) as scheduler,
        gridengine.Executor(scheduler=scheduler) as executor,
    ):
        executor.submit(abs, -1).result()
        wait_for_one()
        served = dispatcher_of(scheduler)._loop._watch
        words = [sys.executable, "-c", FOLLOW]
        follower = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert follower.stdout is not None
        assert follower.stdout.readline() == "here\n"
        stop_process(follower.pid)
        wait_until(lambda: executor.submit(abs, -1).result() and not served._watchers)
        assert dispatcher_of(scheduler)._core.state.log.events is None
        os.kill(follower.pid, signal.SIGCONT)
        assert "has ended" in follower.communicate(timeout=60)[0]


def test_a_running_script_is_found_by_its_name_and_its_followers_learn_its_end(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    with dispatcher_lookup.connect("sweep") as one:
        assert one.ask().identity.pid == process.pid
        one.follow(interval=60.0)
        first = one.next_answer().status
        assert [run.call for run in first.runs] == ["call 1 of slow", "call 2 of slow"]
        assert (first.done, first.waiting, first.running) == (0, 3, 2)
        (tmp_path / "over").touch()
        last = one.next_answer().status
        assert (last.done, last.running) == (5, 0)
        assert sum(event.count for event in last.events if event.kind == "call done") == 5
        with pytest.raises(ClusterError, match="has ended"):
            one.next_answer()
    assert process.wait() == 0
    assert connections.sockets() == []
