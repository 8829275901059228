"""A real agent with its fork server and runners, driven without a transport: cancelling, time
limits, orphans, spoilt channels.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.wire.messages import CANCELLED, Cancel, Crashed, Returned
from tests.support.agent_driver import (
    PATIENCE,
    ROOT,
    Dispatcher,
    alive,
    leave_a_grandchild,
    square,
    start,
    written,
)
from tests.support.waiting import wait_until

# Orphans


@pytest.mark.promise
def test_leftover_processes_of_a_call_end_with_its_runner(
    dispatcher: Dispatcher, tmp_path: Path
) -> None:
    path = tmp_path / "pid"

    def call(x: int) -> None:
        leave_a_grandchild(str(path))
        wait_until(written(path))
        os._exit(1)

    dispatcher.run(call, [0])
    dispatcher.wait_for(Crashed)
    dispatcher.wait_until(lambda: not alive(int(path.read_text())))


def leave_a_process(folder: Path, on_sigterm: str) -> None:
    """Start a process outside of the runner's group, which is killed at once, that has the shell do
    something when it is asked to end; write its id down when it is ready for that.
    """
    script = (
        f"trap '{on_sigterm}' TERM; echo $$ > {folder}/pid.new; mv {folder}/pid.new "
        f"{folder}/pid; while :; do sleep 0.05; done"
    )
    subprocess.Popen(["sh", "-c", script], process_group=0)
    wait_until(written(folder / "pid"))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatcher]:
    """An agent that gives orphans time however slow the machine is."""
    monkeypatch.setattr("gridengine.worker.forkserver._TERMINATION_SECONDS", float(PATIENCE))
    made = start()
    yield made
    made.agent.close()


@pytest.mark.promise
def test_leftover_processes_may_tidy_up(patient: Dispatcher, tmp_path: Path) -> None:
    def call(x: int) -> None:
        leave_a_process(tmp_path, f"echo done > {tmp_path}/tidied; exit")
        os._exit(1)

    patient.run(call, [0])
    patient.wait_for(Crashed)
    patient.wait_until(lambda: not alive(int((tmp_path / "pid").read_text())))
    assert (tmp_path / "tidied").read_text() == "done\n"


@pytest.mark.parametrize(
    "calls", [3, 200]
)  # of many the runner looks only now and then whether there is something else to do
def test_a_process_forked_by_a_call_sends_nothing_and_runs_no_further_calls(
    dispatcher: Dispatcher, tmp_path: Path, calls: int
) -> None:
    def call(x: int) -> bool:
        (tmp_path / f"{x}-{os.getpid()}").touch()
        return x == 0 and os.fork() == 0

    run = dispatcher.run(call, range(calls))
    assert dispatcher.results(run, calls) == [False] * calls
    assert len(list(tmp_path.iterdir())) == calls


AGENT_ALONE = """
from tests.support.agent_driver import (start, wait_with_a_grandchild)
d = start()
d.run(wait_with_a_grandchild, [{path!r}])
d.wait_until(lambda: d.agent.broken)
"""


@pytest.mark.promise
@pytest.mark.parametrize("victim", ["agent", "fork server"])
def test_when_the_agent_or_its_fork_server_is_killed_no_runner_goes_on(
    victim: str, tmp_path: Path
) -> None:
    path, other = tmp_path / "pids", tmp_path / "pids.grandchild"
    agent = subprocess.Popen(
        [sys.executable, "-P", "-c", AGENT_ALONE.format(path=str(path))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wait_until(written(path))
    wait_until(written(other))
    runner_pid, fork_server_pid = map(int, path.read_text().split())
    grandchild = int(other.read_text())
    os.kill(agent.pid if victim == "agent" else fork_server_pid, signal.SIGKILL)
    try:
        wait_until(
            lambda: (
                not any(
                    map(
                        alive,
                        [runner_pid, fork_server_pid, *([grandchild] if victim == "agent" else [])],
                    )
                )
            )
        )
        assert agent.wait(PATIENCE) == (-signal.SIGKILL if victim == "agent" else 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(grandchild, signal.SIGKILL)


# Cancelling and time limits


def wait_at(path: str) -> None:
    Path(path).touch()
    signal.pause()


def test_a_cancelled_run_is_ended_and_the_others_are_given_back(
    dispatcher: Dispatcher, tmp_path: Path
) -> None:
    path = tmp_path / "begun"
    first, second = dispatcher.assign(wait_at, [[str(path)], [str(tmp_path / "never")]])
    dispatcher.wait_until(path.exists)
    dispatcher.agent.handle(Cancel([first], signal.SIGTERM))
    crashed = dispatcher.wait_for(Crashed)
    assert (crashed.run, crashed.index, crashed.exitcode, crashed.reason) == (
        first,
        0,
        -signal.SIGTERM,
        CANCELLED,
    )
    assert dispatcher.wait_for(Returned).runs == [second]
    assert not (tmp_path / "never").exists()


# Results that end their runner when they are pickled


@pytest.mark.parametrize("deadly", [0, 1])
def test_a_result_that_ends_its_process_when_it_is_pickled_is_a_crash_of_its_call(
    deadly: int, dispatcher: Dispatcher
) -> None:
    class Deadly:
        def __reduce__(self) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return ""

    runs = dispatcher.assign(lambda x: Deadly() if x == deadly else x, [[0], [1]])
    crashed = dispatcher.wait_for(Crashed)
    assert (crashed.run, crashed.index) == (runs[deadly], 0)
    other = runs[not deadly]
    # On a slow machine the result of the first is sent before the second is made.
    dispatcher.wait_until(lambda: dispatcher.messages(Returned) or (other, 0) in dispatcher.values)
    returned = [] if (other, 0) in dispatcher.values else [Returned([other])]
    assert dispatcher.messages(Returned) == returned


def test_pickling_of_results_does_not_count_against_a_memory_limit(dispatcher: Dispatcher) -> None:
    _, second = dispatcher.assign(bytes, [[1], [50_000_000]], memory=80_000_000)
    dispatcher.wait_until(lambda: len(dispatcher.values) + len(dispatcher.raised) == 2)
    assert dispatcher.raised == {}
    assert dispatcher.values[second, 0] == bytes(50_000_000)


# Runners that spoil what they share


def test_a_runner_that_closes_all_its_files_crashes_and_the_next_works(
    dispatcher: Dispatcher,
) -> None:
    run = dispatcher.run(lambda x: os.closerange(0, 100), [0])
    assert dispatcher.wait_for(Crashed).run == run
    again = dispatcher.run(square, [3])
    assert dispatcher.results(again, 1) == [9]


def test_leftover_processes_may_tidy_up_when_the_agent_ends(
    patient: Dispatcher, tmp_path: Path
) -> None:
    def call(x: int) -> None:
        leave_a_process(tmp_path, f"echo done > {tmp_path}/tidied; exit")

    assert patient.results(patient.run(call, [0]), 1) == [None]
    patient.agent.close()
    assert (tmp_path / "tidied").read_text() == "done\n"
