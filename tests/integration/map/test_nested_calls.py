"""Calls that are made inside a call, as users' scripts make them without a thought."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from gridengine.schedulers.inline import WARNING
from tests.support.script_driver import MakeScript

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

NESTED = """
import json, os, sys

import gridengine

def whoami(_=None):
    return os.getpid()

def inner(_):
    return os.getpid(), gridengine.map(whoami, range(3))

def all_alike(pairs):
    return all(set(pids) == {pid} for pid, pids in pairs)
"""

Told = Callable[..., tuple[Any, str]]


@pytest.fixture
def told(script: MakeScript) -> Told:
    def run(source: str) -> tuple[Any, str]:
        one = script(NESTED + source)
        done = one.run()
        assert done.returncode == 0, done.stderr
        assert one.leftovers() == []
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return run


def test_a_map_inside_a_call_runs_in_the_call_s_own_process_and_says_so_once(told: Told) -> None:
    pairs, errors = told("""
with gridengine.ProcessScheduler(4) as scheduler:
    print(json.dumps(gridengine.map(inner, range(40), chunksize=1, scheduler=scheduler)))
""")
    assert all(set(pids) == {pid} for pid, pids in pairs)
    assert errors.count(WARNING) == 1


@pytest.mark.parametrize(
    "calls",
    [
        "gridengine.starmap(whoami, [(1,), (2,)])",
        "list(gridengine.imap(whoami, range(3)))",
        "list(gridengine.Executor().map(whoami, range(3)))",
        "[gridengine.Executor(max_workers=3).submit(whoami).result()]",
        "gridengine.Pool().map(whoami, range(3))",
        "[gridengine.Pool(3).apply(whoami)]",
        "dispatched(gridengine.JobDispatcher())",
        "gridengine.map(lambda _: gridengine.map(whoami, range(2))[0], range(2))",
    ],
)
def test_so_does_whatever_else_names_no_scheduler(told: Told, calls: str) -> None:
    pair, errors = told(f"""
def dispatched(dispatcher):
    with dispatcher:
        dispatcher.dispatch([gridengine.Job(target=whoami) for _ in range(3)])
        return dispatcher.join()

def call(_):
    return os.getpid(), {calls}

print(json.dumps(gridengine.map(call, [0], scheduler=gridengine.ProcessScheduler(1))[0]))
""")
    assert set(pair[1]) == {pair[0]}
    assert errors.count(WARNING) == 1


def test_joblib_inside_a_call_runs_in_the_call_s_own_process(told: Told) -> None:
    pytest.importorskip("joblib", reason="joblib is not installed: pip install '.[third-parties]'")
    pair, _ = told("""
def call(_):
    import joblib
    import gridengine.joblib_backend
    with joblib.parallel_config("gridengine"):
        return os.getpid(), joblib.Parallel(n_jobs=4)(joblib.delayed(whoami)(x) for x in range(4))

print(json.dumps(gridengine.map(call, [0], scheduler=gridengine.ProcessScheduler(1))[0]))
""")
    assert set(pair[1]) == {pair[0]}


def test_a_map_of_a_worker_s_initializer_and_one_of_an_imported_module_run_in_its_process(
    told: Told,
) -> None:
    alike, errors = told("""
from pathlib import Path
BEGINS = '''
import gridengine, os
FOUND = os.getpid(), gridengine.map(abs, [-1])
def found(_): return FOUND
'''
Path("begins.py").write_text(BEGINS)

def prepare():
    global pids
    pids = os.getpid(), gridengine.map(whoami, range(3))

def prepared():
    return pids

one = gridengine.ProcessScheduler
with gridengine.Executor(scheduler=one, max_workers=1, initializer=prepare) as executor:
    first = executor.submit(prepared).result()
sys.path.insert(0, os.getcwd())
import importlib.util
call = gridengine.partial(exec, "import begins; assert begins.FOUND[1] == [1]")
gridengine.map(lambda _: call({}), [0], scheduler=gridengine.ProcessScheduler(1))
print(json.dumps(all_alike([first])))
""")
    assert alike
    assert errors.count(WARNING) == 2  # one for each scheduler's workers


def test_a_job_inside_a_call_is_a_process_beside_it(told: Told) -> None:
    pids, errors = told("""
from pathlib import Path
import time

def waits(name):
    while not Path(name).exists():
        time.sleep(0.01)
    return os.getpid()

def call(name):
    job = gridengine.Job(target=waits, args=(name,))
    job.start()
    Path(name).touch()
    return os.getpid(), job.result()

one = gridengine.ProcessScheduler(1)
print(json.dumps(gridengine.map(call, [f"{os.getcwd()}/ready"], scheduler=one)[0]))
""")
    assert pids[0] != pids[1]
    assert WARNING not in errors


def test_a_scheduler_that_is_named_is_used_inside_a_call_too(told: Told) -> None:
    pair, errors = told("""
def call(_):
    with gridengine.ProcessScheduler(2) as scheduler:
        return os.getpid(), gridengine.map(whoami, range(3), scheduler=scheduler)

print(json.dumps(gridengine.map(call, [0], scheduler=gridengine.ProcessScheduler(1))[0]))
""")
    assert pair[0] not in pair[1]
    assert WARNING not in errors


def test_a_map_inside_an_inline_call_runs_there_too(told: Told) -> None:
    alike, errors = told("""
inline = gridengine.InlineScheduler()
print(json.dumps(all_alike(gridengine.map(inner, range(3), scheduler=inline))))
""")
    assert alike
    assert errors.count(WARNING) == 1


ON_A_CLUSTER = """
if __name__ == "__main__":
    with gridengine.{kind}(max_workers=2) as scheduler:
        pairs = gridengine.map(inner, range(6), chunksize=1, scheduler=scheduler)
    print(json.dumps(all_alike(pairs)))
"""


def test_a_map_inside_a_call_on_a_cluster_submits_nothing(cluster: Cluster) -> None:
    done = cluster.run(NESTED + ON_A_CLUSTER.format(kind=cluster.scheduler))
    assert json.loads(done.stdout.splitlines()[-1])
