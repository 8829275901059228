"""The environment of calls, beside the standard library: globals, modules, streams, processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.differences.conftest import BOTH, Compare
from tests.support.script_driver import MakeScript


def test_calls_find_registrations_of_the_script_s_imports(compare: Compare, tmp_path: Path) -> None:
    modules = {
        "registry": "HOOKS = []",
        "plugin": "import registry\nregistry.HOOKS.append(len)",
        "fails": "import os, registry\nassert os.getpid() == registry.CALLER",
        "maps": "import gridengine\ngridengine.map(abs, [1])\n",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert compare("""
import gridengine, registry, plugin, maps
registry.CALLER = os.getpid()
import fails

def count(_): return len(registry.HOOKS)
def nested(_): return gridengine.map(count, [0])

if __name__ == "__main__":
    tell(
        ours=gridengine.map(count, [0]),
        another=gridengine.map(lambda _: len(registry.HOOKS), [0]),
        nested=gridengine.map(nested, [0]),
    )
""") == {"ours": [1], "another": [1], "nested": [[1]]}


def test_formulas_and_queries_find_the_variables_of_the_script(compare: Compare) -> None:
    pytest.importorskip("pandas")
    answers = {"query": 2, "evaluated": [3, 4, 5], "by_name": 2, "noted": True}
    assert (
        compare("""
import gridengine, pandas
limit, frame, large = 1, pandas.DataFrame({"y": [1, 2, 3]}), bytes(2_000_000)
def double(x): return 2 * x
def query(_): return len(frame.query("y > @limit"))
def evaluated(_): return list(frame.eval("y + @double(@limit)"))
def by_name(_): return globals()["double"](limit)
def misses(_): return frame.query("y > @large")

if __name__ == "__main__":
    told = {f.__name__: gridengine.map(f, [0])[0] for f in (query, evaluated, by_name)}
    error = gridengine.map(misses, [0], reraise=False)[0]
    noted = "the script has a variable large" in error.__notes__[0]
    tell(**{name: list(map(int, x)) if isinstance(x, list) else int(x) for name, x in told.items()})
    tell(noted=noted)
""")
        == answers
    )


@pytest.mark.promise
def test_changes_of_a_module_after_its_import_do_not_travel(
    compare: Compare, tmp_path: Path
) -> None:
    (tmp_path / "helpers.py").write_text("K = 1\ndef look(_=None): return K\n")
    assert compare("""
import functools, helpers
if __name__ == "__main__":
    helpers.K = 5
    with fork.Pool(1) as forked, spawn.Pool(1) as spawned:
        tell(fork=forked.map(helpers.look, [0]), spawn=spawned.map(helpers.look, [0]))
    set_k = functools.partial(setattr, helpers, "K", 5)
    tell(ours=gridengine.map(helpers.look, [0], scheduler=ProcessScheduler(1)))
    with Executor(max_workers=1, initializer=set_k) as executor:
        tell(initialized=executor.submit(helpers.look).result())
""") == {"fork": [5], "spawn": [1], "ours": [1], "initialized": 5}


def test_the_start_method_of_the_script_is_not_that_of_calls(compare: Compare) -> None:
    assert compare("""
def ask(_=None):
    return multiprocessing.get_start_method()
def use(_):
    with multiprocessing.Pool(1) as pool:
        return pool.map(ask, [0])
def choose(_):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(len, ["of a module"])
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with spawn.Pool(1) as spawned:
        tell(theirs=spawned.map(ask, [0]))
    tell(ours=gridengine.map(ask, [0], scheduler=ProcessScheduler(1)))
    tell(within=gridengine.map(use, [0], scheduler=ProcessScheduler(1)))
    tell(chosen=gridengine.map(choose, [0], scheduler=ProcessScheduler(1)))
""") == {"theirs": ["spawn"], "ours": ["fork"], "within": [["fork"]], "chosen": [[11]]}


def test_names_that_stand_in_quotes_alone_do_not_travel_with_annotations(compare: Compare) -> None:
    assert compare("""
import typing
class Config: ...
def quoted(x: "Config"): ...
def named(x: "Config"): return Config
def hints(f):
    return [one.__name__ for one in typing.get_type_hints(f).values()]
if __name__ == "__main__":
    for name, f in {"quoted": quoted, "named": named}.items():
        with fork.Pool(1) as forked:
            theirs = forked.apply(hints, (f,))
        ours = gridengine.map(hints, [f], scheduler=ProcessScheduler(1), reraise=False)
        tell(**{name: [theirs, ours[0] if ours[0] == theirs else type(ours[0]).__name__]})
""") == {"quoted": [["Config"], "NameError"], "named": [["Config"], ["Config"]]}


@pytest.mark.promise
def test_a_function_of_the_script_brings_the_globals_of_the_moment(compare: Compare) -> None:
    assert compare("""
K = 1
def look(_):
    return K
with fork.Pool(1) as theirs, Pool(1) as ours:
    tell(theirs=theirs.map(look, [0]), ours=ours.map(look, [0]))
    K = 2
    tell(theirs_later=theirs.map(look, [0]), ours_later=ours.map(look, [0]))
""") == {"theirs": [1], "ours": [1], "theirs_later": [1], "ours_later": [2]}


def test_functions_of_the_script_share_its_globals_in_each_process(compare: Compare) -> None:
    told = compare("""
cache = {}
def prepare(k):
    global K
    K = k
def first(x):
    cache[x] = K
def second(_):
    return sorted(cache.items()), K
kinds = dict(theirs=fork.Pool, pool=Pool, executor=Executor)
kinds["inline"] = lambda _, *given: Pool(None, *given, scheduler="inline")
for name, kind in kinds.items():
    with kind(1, prepare, (3,)) if name != "executor" else kind(1, None, prepare, (3,)) as pool:
        tell(**{name: [*pool.map(first, "ab"), *pool.map(second, [0])]})
""")
    found = [None, None, [[["a", 3], ["b", 3]], 3]]
    assert told == dict.fromkeys(("theirs", "pool", "executor", "inline"), found)


@pytest.mark.promise
def test_a_script_needs_no_guard(script: MakeScript) -> None:
    guardless = """
print("begins", flush=True)
{use}
print("ends", flush=True)
"""
    ours = script(
        guardless.format(use="gridengine.map(abs, [-1], scheduler=gridengine.ProcessScheduler(1))")
    )
    done = ours.run()
    assert (done.stdout, done.stderr) == ("begins\nends\n", "")
    spawned = script(
        guardless.format(
            use="import multiprocessing as mp; p = mp.get_context('spawn').Process(target=abs)\n"
            "p.start(); p.join(); assert p.exitcode == 1"
        )
    ).run()
    assert spawned.stdout == "begins\nbegins\nends\n"
    assert "bootstrapping phase" in spawned.stderr


@pytest.mark.promise
def test_lambdas_closures_and_local_classes_travel_only_here(compare: Compare) -> None:
    assert compare("""
def local():
    class Local:
        x = 3
    return Local, lambda local: local.x

Local, look = local()
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(
        pool=tried(pool.map, look, [1]) in ("AttributeError", "PicklingError"),
        executor=tried(executor.submit(look, 1).result) in ("AttributeError", "PicklingError"),
    )
[here] = gridengine.map(lambda local: local, [Local()], scheduler=ProcessScheduler(1))
tell(ours=look(here), own_class=type(here) is Local)
""") == {"pool": True, "executor": True, "ours": 3, "own_class": True}


@pytest.mark.promise
def test_calls_have_the_folder_of_their_map_whatever_earlier_ones_did(compare: Compare) -> None:
    assert compare("""
def go(_):
    os.chdir("/")
def where(_):
    return os.getcwd() == home
home = os.getcwd()
with fork.Pool(1) as theirs, Pool(1) as ours:
    for pool in (theirs, ours):
        pool.map(go, [0])
    tell(theirs=theirs.map(where, [0]), ours=ours.map(where, [0]))
""") == {"theirs": [False], "ours": [True]}


@pytest.mark.promise
def test_globals_that_a_call_sets_are_found_by_later_calls_of_its_process(
    compare: Compare, tmp_path: Path
) -> None:
    (tmp_path / "helpers.py").write_text("seen = []\n")
    assert compare("""
def leave(word):
    import helpers
    helpers.seen.append(word)
    return helpers.seen
scheduler = ProcessScheduler(1)
with fork.Pool(1) as one, fork.Pool(1) as other:
    tell(theirs=[one.apply(leave, "a"), other.apply(leave, "b")])
with Executor(scheduler=scheduler) as one, Executor(scheduler=scheduler) as other:
    tell(shared=[one.submit(leave, "a").result(), other.submit(leave, "b").result()])
with Executor(max_workers=1) as one, Executor(max_workers=1) as other:
    tell(own=[one.submit(leave, "a").result(), other.submit(leave, "b").result()])
""") == {"theirs": [["a"], ["b"]], "shared": [["a"], ["a", "b"]], "own": [["a"], ["b"]]}


@pytest.mark.linux
@pytest.mark.promise
def test_there_are_as_many_processes_as_cpus_that_the_script_may_use(compare: Compare) -> None:
    told = compare("""
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
with fork.Pool() as pool:
    tell(theirs=pool._processes)
tell(ours=ProcessScheduler().max_workers, cpus=os.cpu_count())
""")
    assert told["theirs"] == (1 if sys.version_info >= (3, 13) else told["cpus"])
    assert told["ours"] == 1


@pytest.mark.promise
def test_processes_start_with_the_first_call(compare: Compare) -> None:
    assert compare("""
import psutil
def children():
    return len(psutil.Process().children())
with fork.Pool(2):
    tell(theirs=children())
with Pool(2) as pool:
    tell(ours=children(), first=pool.apply(abs, (-1,)), later=children() > 0)
""") == {"theirs": 2, "ours": 0, "first": 1, "later": True}


@pytest.mark.promise
def test_a_call_may_start_processes_and_a_daemon_too(compare: Compare) -> None:
    assert compare("""
def child(_=None):
    return ended(fork.Process, abs, -1)
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(pool=tried(pool.map, child, [0]), executor=executor.submit(child).result())
tell(
    daemon=ended(fork.Process, child, daemon=True),
    ours=gridengine.map(child, [0], scheduler=ProcessScheduler(1)),
    ours_daemon=ended(Job, child, daemon=True, scheduler=ProcessScheduler(1)),
)
""") == {"pool": "AssertionError", "executor": 0, "daemon": 1, "ours": [0], "ours_daemon": 0}


@pytest.mark.promise
def test_logging_that_the_script_has_set_up_is_not_set_up_in_calls(compare: Compare) -> None:
    assert compare("""
import logging
def setup(_=None):
    return [logging.getLogger().level, len(logging.getLogger().handlers)]
logging.basicConfig(level=logging.ERROR)
with fork.Pool(1) as pool, Pool(1, initializer=logging.basicConfig) as ours:
    tell(theirs=pool.apply(setup), initialized=ours.apply(setup))
tell(ours=gridengine.map(setup, [0], scheduler=ProcessScheduler(1)))
""") == {"theirs": [40, 1], "ours": [[30, 0]], "initialized": [30, 1]}


@pytest.mark.promise
def test_processes_are_seeded_by_chance_whatever_the_script_has_seeded(compare: Compare) -> None:
    assert compare("""
import numpy
def draw(_=None):
    return float(numpy.random.random())

numpy.random.seed(0)
first = draw()
numpy.random.seed(0)
theirs = set()
for _ in range(2):
    with fork.Pool(1) as pool:
        theirs.add(pool.apply(draw))
ours = set()
for _ in range(2):
    with ProcessScheduler(1) as scheduler:
        ours.add(gridengine.map(draw, [0], scheduler=scheduler)[0])
tell(theirs=theirs == {first}, ours=len(ours), seen=first in ours)
""") == {"theirs": True, "ours": 2, "seen": False}


@pytest.mark.promise
def test_exit_handlers_that_calls_register_are_called_when_their_process_ends(
    script: MakeScript,
) -> None:
    done = script(
        BOTH
        + """
import atexit
from multiprocessing.util import Finalize
def register(word):
    atexit.register(os.write, 1, word)
def prepare():
    Finalize(None, os.write, args=(1, b"finalized "), exitpriority=1)
ended(fork.Process, register, b"their process ")
with ProcessScheduler(1) as scheduler:
    words = [b"second of a map ", b"first of a map "]
    gridengine.map(register, words, scheduler=scheduler, initializer=prepare)
os.write(1, b"closed ")
ended(Job, register, b"job")
os.write(1, b"joined ")
"""
    ).run()
    theirs = "their process " if sys.version_info >= (3, 13) else ""
    assert done.stdout == f"{theirs}finalized first of a map second of a map closed joined job"
    assert done.stderr == ""
