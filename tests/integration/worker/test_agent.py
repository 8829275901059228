"""A real agent with its fork server and runners, driven without a transport: calls, their outcomes
and their output.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.wire.messages import CRASH, Crashed, Returned
from tests.support.agent_driver import Dispatcher, square


@pytest.mark.promise
@pytest.mark.parametrize(
    ("death", "exitcode"),
    [
        (lambda: os._exit(7), 7),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
        (lambda: ctypes.string_at(0), -signal.SIGSEGV),
    ],
    ids=["hard exit", "SIGKILL", "segmentation fault"],
)
def test_a_crash_names_the_call_and_loses_no_other(
    dispatcher: Dispatcher, death: Callable[[], object], exitcode: int
) -> None:
    run = dispatcher.run(lambda x: death() if x == 50 else x, list(range(100)))
    crashed = dispatcher.wait_for(Crashed)
    assert (crashed.run, crashed.index, crashed.exitcode, crashed.reason) == (
        run,
        50,
        exitcode,
        CRASH,
    )
    assert crashed.peak_memory > 1_000_000
    again = dispatcher.run(square, [3])
    assert dispatcher.results(again, 1) == [9]


@pytest.mark.promise
def test_calls_that_ended_before_a_crash_are_answered(
    dispatcher: Dispatcher, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def call(x: int) -> int:
        if x == 50:
            fifo.read_bytes()
            os._exit(1)
        return x

    run = dispatcher.run(call, list(range(100)))
    assert dispatcher.results(run, 50) == list(range(50))
    fifo.write_bytes(b"die")
    assert dispatcher.wait_for(Crashed).index == 50


@pytest.mark.promise
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_calls_that_run_once_and_ended_before_a_crash_are_all_answered(
    dispatcher: Dispatcher, timeout: float | None
) -> None:
    first, second, third = dispatcher.assign(
        lambda x: os._exit(1) if x == 50 else x,
        [list(range(10)), list(range(10, 100)), [100]],
        once=True,
        timeout=timeout,
    )
    assert dispatcher.wait_for(Crashed).index == 40
    assert dispatcher.wait_for(Returned).runs == [third]
    answered = [*((first, x) for x in range(10)), *((second, x) for x in range(40))]
    assert list(dispatcher.values) == answered


def test_a_closed_agent_tells_which_calls_had_begun(dispatcher: Dispatcher, tmp_path: Path) -> None:
    def call(path: str) -> None:
        Path(path).touch()
        signal.pause()

    first, _ = dispatcher.assign(call, [[str(tmp_path / "a")], [str(tmp_path / "b")]])
    dispatcher.wait_until((tmp_path / "a").exists)
    assert dispatcher.agent.close() == [first]


@pytest.mark.promise
def test_the_rest_of_a_dead_runner_s_batch_is_given_back(dispatcher: Dispatcher) -> None:
    runs = dispatcher.assign(
        lambda x: os._exit(1) if x == 1 else x,
        [[0], [1], [2], [3]],
    )
    crashed = dispatcher.wait_for(Crashed)
    returned = dispatcher.wait_for(Returned)
    answered = {run for run, _ in dispatcher.values}
    assert crashed.run == runs[1]
    assert set(returned.runs) | answered == {runs[0], runs[2], runs[3]}


def test_a_runner_killed_while_idle_costs_nothing(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(lambda _: os.getpid(), [0])
    (pid,) = dispatcher.results(run, 1)
    os.kill(pid, signal.SIGKILL)
    again = dispatcher.run(lambda _: os.getpid(), [0])
    dispatcher.wait_until(lambda: (again, 0) in dispatcher.values or dispatcher.messages(Returned))
    assert dispatcher.messages(Crashed) == []


# Output


def test_all_that_a_watched_run_writes_is_kept_and_its_own(dispatcher: Dispatcher) -> None:
    def call(x: int) -> None:
        print("python", x)
        print("error", x, file=sys.stderr, end="")
        subprocess.run(["echo", f"child {x}"], check=True)
        ctypes.CDLL(None).printf(b"C %d\n", x)

    runs = dispatcher.assign(call, [[1], [2]], watched=True)
    dispatcher.wait_until(lambda: len(dispatcher.output) == 2)
    for x, run in enumerate(runs, 1):
        out, err = dispatcher.output[run]
        assert sorted(out.splitlines()) == [
            f"C {x}".encode(),
            f"child {x}".encode(),
            f"python {x}".encode(),
        ]
        assert err == f"error {x}".encode()


def test_a_crashed_run_s_output_comes_with_it(dispatcher: Dispatcher) -> None:
    def call(x: int) -> None:
        print("last words")
        os._exit(1)

    dispatcher.run(call, [0], watched=True)
    dispatcher.wait_for(Crashed)
    assert [
        list(map(bytes, buffers))
        for message, buffers in dispatcher.received
        if isinstance(message, Crashed)
    ] == [[b"last words\n", b""]]


def test_a_call_reads_nothing_from_standard_input(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(lambda _: sys.stdin.read(), [0])
    assert dispatcher.results(run, 1) == [""]


# Controllers and payloads


def test_the_agent_stays_awake_while_a_runner_does_not_read(dispatcher: Dispatcher) -> None:
    (pid,) = dispatcher.results(dispatcher.run(lambda _: os.getpid(), [0]), 1)
    os.kill(pid, signal.SIGSTOP)
    large = dispatcher.run(len, [bytes(10_000_000)])
    dispatcher.agent.on_ready()
    os.kill(pid, signal.SIGCONT)
    assert dispatcher.results(large, 1) == [10_000_000]


# Functions, folders, modules


@pytest.mark.promise
def test_a_function_that_cannot_be_loaded_fails_each_of_its_calls_and_says_where(
    dispatcher: Dispatcher, tmp_path: Path
) -> None:
    (tmp_path / "vanishing_module.py").write_text("def f(x): return x")
    sys.path.insert(0, str(tmp_path))
    try:
        import vanishing_module  # type: ignore[import-not-found]

        function = vanishing_module.f
        run = dispatcher.run(function, [1, 2], path=["/nowhere"])
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["vanishing_module"]
    for index in range(2):
        error = dispatcher.error(run, index)
        assert isinstance(error, ModuleNotFoundError)
        assert "/nowhere" in "".join(error.__notes__)


def test_user_code_does_not_find_the_worker_as_its_main_module(dispatcher: Dispatcher) -> None:
    run = dispatcher.run(
        lambda _: [name for name in vars(sys.modules["__main__"]) if not name.startswith("__")], [0]
    )
    assert dispatcher.results(run, 1) == [[]]
