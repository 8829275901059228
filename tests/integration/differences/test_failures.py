"""Calls that fail, and processes that die, beside those of the standard library."""

from __future__ import annotations

import pytest

from tests.integration.differences.conftest import Compare
from tests.support.script_driver import MakeScript


def test_a_process_that_dies_takes_one_call_with_it_and_not_the_executor(compare: Compare) -> None:
    assert compare("""
def die(_=None):
    os._exit(3)
with ProcessPoolExecutor(1) as executor:
    tell(executor=tried(executor.submit(die).result), next=tried(executor.submit, abs, 1))
with fork.Pool(1) as pool:
    tell(pool=tried(pool.map_async(die, [0]).get, 1))
with Executor(max_workers=1) as ours:
    futures = [ours.submit(call, 1) for call in (abs, die, abs)]
    tell(ours=[tried(future.result) for future in futures])
""") == {
        "executor": "BrokenProcessPool",
        "next": "BrokenProcessPool",
        "pool": "TimeoutError",
        "ours": [1, "WorkerCrashed", 1],
    }


@pytest.mark.promise
def test_a_call_or_job_whose_process_dies_is_run_three_times_unless_retries_says_else(
    compare: Compare,
) -> None:
    assert compare("""
def die(path):
    print("begun", file=open(path, "a"), flush=True)
    os._exit(3)
with ProcessPoolExecutor(1) as executor:
    tried(executor.submit(die, "theirs").result)
with Executor(max_workers=1) as executor:
    tried(executor.submit(die, "ours").result)
    tried(executor.with_options(retries=0).submit(die, "once").result)
codes = [
    ended(fork.Process, die, "process"),
    ended(Job, die, "job"),
    ended(Job, die, "job once", retries=0),
]
names = "theirs", "ours", "once", "process", "job", "job once"
tell(**{name: lines(name) for name in names}, codes=codes)
""") == {
        "theirs": 1,
        "ours": 3,
        "once": 1,
        "process": 1,
        "job": 3,
        "job once": 1,
        "codes": [3, 3, 3],
    }


def test_a_call_that_leaves_by_sys_exit_has_ended(compare: Compare) -> None:
    assert compare("""
def leave(_=None):
    sys.exit(4)
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(pool=tried(pool.map_async(leave, [0]).get, 1))
    tell(executor=tried(executor.submit(leave).result))
with Pool(1) as pool, Executor(max_workers=1) as executor:
    tell(ours=tried(pool.map_async(leave, [0]).get), future=tried(executor.submit(leave).result))
tell(codes=[ended(fork.Process, leave), ended(Job, leave)])
""") == {
        "pool": "TimeoutError",
        "executor": "SystemExit",
        "ours": "SystemExit",
        "future": "SystemExit",
        "codes": [4, 4],
    }


@pytest.mark.promise
def test_a_sys_exit_in_a_map_says_which_call_ends_the_script(script: MakeScript) -> None:
    done = script(
        """
        import sys, gridengine

        def leave(x):
            return sys.exit(4) if x == 3 else x

        with gridengine.ProcessScheduler(1) as scheduler:
            gridengine.map(leave, range(5), scheduler=scheduler)
        """
    ).run()
    assert (done.returncode, done.stdout) == (4, "")
    assert "call 3 of leave, argument 3" in done.stderr
    assert "it called sys.exit(4)" in done.stderr


@pytest.mark.promise
def test_a_pool_whose_initializer_fails_has_calls_that_fail(compare: Compare) -> None:
    assert compare("""
def fail():
    raise ValueError
with fork.Pool(1, fail) as pool, ProcessPoolExecutor(1, initializer=fail) as executor:
    tell(pool=tried(pool.map_async(abs, [1], 1).get, 1))
    tell(executor=tried(executor.submit(abs, 1).result))
with Pool(1, fail) as pool, Executor(max_workers=1, initializer=fail) as executor:
    tell(ours=tried(pool.map, abs, [1]), future=tried(executor.submit(abs, 1).result))
""") == {
        "pool": "TimeoutError",
        "executor": "BrokenProcessPool",
        "ours": "BrokenProcessPool",
        "future": "BrokenProcessPool",
    }
