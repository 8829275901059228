"""The rows of docs/differences.md: the same few lines with the standard library and with ours."""

from __future__ import annotations

import concurrent.futures
import inspect
import itertools
import json
import multiprocessing.pool
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import gridengine
from tests.support.script_driver import MakeScript

BOTH = """
import concurrent.futures, json, multiprocessing, os, sys, time
from gridengine import Executor, Job, Pool, ProcessScheduler

os.environ["GRIDENGINE_SCHEDULER"] = "processes"
fork, spawn = map(multiprocessing.get_context, ("fork", "spawn"))

def ProcessPoolExecutor(*arguments, mp_context=fork, **options):
    return concurrent.futures.ProcessPoolExecutor(*arguments, mp_context=mp_context, **options)

def tried(call, *arguments, **options):
    "Return the result, or the name of the exception's class."
    try:
        return call(*arguments, **options)
    except BaseException as error:
        return type(error).__name__

def ended(kind, target, *arguments, **options):
    "Return the exit code of a process or job."
    process = kind(target=target, args=arguments, **options)
    process.start()
    process.join()
    return process.exitcode

def lines(path):
    return len(open(path).readlines()) if os.path.exists(path) else 0

def tell(**facts):
    print(json.dumps(facts), flush=True)

"""
Compare = Callable[[str], dict[str, Any]]


@pytest.fixture
def compare(script: MakeScript) -> Compare:
    """Run a script, and return what it tells."""

    def run(source: str) -> dict[str, Any]:
        done = script(BOTH + source).run()
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert told, done.stderr
        return {name: value for facts in told for name, value in facts.items()}

    return run


# ---------------------------------------------------------------- names


def lacks(ours: type, theirs: type) -> set[str]:
    """Return what of theirs ours has not: methods, attributes, and arguments in their order."""
    missing = {name for name in dir(theirs) if name[0] != "_" and not hasattr(ours, name)}
    for name in {"__init__", *(name for name in dir(theirs) if name[0] != "_")} - missing:
        if callable(getattr(theirs, name)):
            wanted, had = (
                list(inspect.signature(getattr(kind, name)).parameters) for kind in (theirs, ours)
            )
            missing |= {f"{name}({one})" for one, other in pairs(wanted, had) if one != other}
    return missing


def pairs(wanted: list[str], had: list[str]) -> Iterable[tuple[str, str | None]]:
    return itertools.zip_longest(wanted, had[: len(wanted)])


@pytest.mark.promise
@pytest.mark.parametrize(
    ("ours", "theirs", "lacking"),
    [
        (gridengine.Executor, concurrent.futures.ProcessPoolExecutor, set()),
        (gridengine.Pool, multiprocessing.pool.Pool, {"Process", "__init__(context)"}),
        (gridengine.Job, multiprocessing.Process, set()),
    ],
)
def test_methods_and_arguments_are_those_of_the_standard_library(
    ours: type, theirs: type, lacking: set[str]
) -> None:
    assert lacks(ours, theirs) == lacking


# ---------------------------------------------------------------- what calls find


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


@pytest.mark.promise
def test_an_object_of_a_function_stays_as_earlier_calls_of_its_process_left_it(
    compare: Compare,
) -> None:
    assert compare("""
class Total:
    value = 0
    def add(self, x):
        self.value += x
        return self.value
total = Total()
with ProcessPoolExecutor(1) as theirs, Executor(1) as ours:
    tell(theirs=list(theirs.map(total.add, [1, 1, 1])), ours=list(ours.map(total.add, [1, 1, 1])))
    later = ours.submit(total.add, 1).result()
    total.value = 10
    tell(later=later, changed=ours.submit(total.add, 1).result())
""") == {"theirs": [1, 1, 1], "ours": [1, 2, 3], "later": 4, "changed": 11}


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


# ---------------------------------------------------------------- arguments and results


@pytest.mark.promise
def test_an_argument_is_taken_as_it_is_when_it_is_submitted(compare: Compare) -> None:
    assert compare("""
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
def late(executor):
    "Change an argument while the calls before it keep the process busy."
    busy = [executor.submit(wait_for, "changed") for _ in range(4)]
    argument = ["old"]
    future = executor.submit(max, argument)
    argument[0] = "new"
    open("changed", "w").close()
    result = future.result()
    os.remove("changed")
    return result
with ProcessPoolExecutor(1) as theirs, Executor(max_workers=1) as ours:
    tell(theirs=late(theirs), ours=late(ours))
""") == {"theirs": "new", "ours": "old"}


@pytest.mark.promise
def test_the_arguments_of_a_job_are_pickled_and_those_of_a_forked_process_not(
    compare: Compare,
) -> None:
    assert compare("""
import threading
lock = threading.Lock()
def use(given):
    with lock:
        return list(given)
tell(
    theirs=ended(fork.Process, use, (x for x in range(3))),
    ours=tried(ended, Job, use, (x for x in range(3))),
    function=tried(gridengine.map, use, [[1]], scheduler=ProcessScheduler(1)),
    spawned=tried(ended, spawn.Process, use, (x for x in range(3))),
)
""") == {
        "theirs": 0,
        "ours": "PicklingError",
        "function": "PicklingError",
        "spawned": "TypeError",
    }


@pytest.mark.promise
def test_an_unpicklable_argument_is_named(compare: Compare) -> None:
    told = compare("""
def generator(x):
    return (y for y in range(x))
def words(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return [type(error).__name__, str(error)]
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(
        pool=words(pool.map, generator, [3])[0],
        executor=words(executor.submit(generator, 3).result)[0],
        theirs=words(pool.map, len, [iter(generator(3))])[0],
    )
scheduler = ProcessScheduler(1)
tell(
    result=words(gridengine.map, generator, [3], scheduler=scheduler),
    argument=words(gridengine.map, len, ["", generator(3)], scheduler=scheduler),
)
""")
    assert [told[name] for name in ("pool", "executor", "theirs")] == [
        "MaybeEncodingError",
        "TypeError",
        "TypeError",
    ]
    assert told["result"][0] == told["argument"][0] == "PicklingError"
    assert "the result of call 0" in told["result"][1]
    assert "the argument of call 1" in told["argument"][1]


def test_an_exception_that_pickle_cannot_rebuild_arrives_and_breaks_nothing(
    compare: Compare,
) -> None:
    assert compare("""
class Two(Exception):
    def __init__(self, a, b):
        super().__init__("two")
def fail(_=None):
    raise Two(1, 2)
with ProcessPoolExecutor(1) as executor:
    tell(executor=tried(executor.submit(fail).result), next=tried(executor.submit, abs, 1))
with Executor(max_workers=1) as ours:
    tell(ours=tried(ours.submit(fail).result), ours_next=ours.submit(abs, 1).result())
with fork.Pool(1) as pool:
    tell(pool=tried(pool.map_async(fail, [0]).get, 1))
""") == {
        "executor": "BrokenProcessPool",
        "next": "BrokenProcessPool",
        "pool": "TimeoutError",
        "ours": "Two",
        "ours_next": 1,
    }


@pytest.mark.promise
def test_queues_and_values_are_arguments_of_calls_too_if_they_are_of_the_spawn_context(
    compare: Compare,
) -> None:
    assert compare("""
def use(queue, value):
    queue.put("sent")
    with value.get_lock():
        value.value += 1
def made(context):
    return context.Queue(), context.Value("i", 0)
def used(call, context):
    queue, value = made(context)
    end = tried(call, queue, value)
    return [end, queue.get(), value.value] if end in (0, None) else end

if __name__ == "__main__":
    with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
        tell(
            process=used(lambda *both: ended(fork.Process, use, *both), fork),
            pool=used(lambda *both: pool.apply(use, both), spawn),
            executor=used(lambda *both: executor.submit(use, *both).result(), spawn),
        )
    scheduler = ProcessScheduler(1)
    with Executor(scheduler=scheduler) as executor:
        tell(
            job=used(lambda *both: ended(Job, use, *both, scheduler=scheduler), spawn),
            call=used(lambda *both: executor.submit(use, *both).result(), spawn),
            forked=used(lambda *both: ended(Job, use, *both, scheduler=scheduler), fork),
        )
""") == {
        "process": [0, "sent", 1],
        "pool": "RuntimeError",
        "executor": "RuntimeError",
        "job": [0, "sent", 1],
        "call": [None, "sent", 1],
        "forked": "PicklingError",
    }


# ---------------------------------------------------------------- calls


@pytest.mark.promise
def test_a_map_takes_several_iterables_and_a_pool_s_map_a_chunksize(compare: Compare) -> None:
    assert compare("""
with fork.Pool(1) as pool, Pool(1) as ours:
    tell(theirs=pool.map(abs, [-1], 10), ours=ours.map(abs, [-1], 10))
scheduler = ProcessScheduler(1)
tell(
    zipped=gridengine.map(pow, [2, 3], [3, 2], scheduler=scheduler),
    number=tried(gridengine.map, abs, [-1], 10, scheduler=scheduler),
)
""") == {"theirs": [1], "ours": [1], "zipped": [8, 9], "number": "TypeError"}


@pytest.mark.promise
def test_a_call_that_fails_costs_the_others_of_its_chunk_nothing(compare: Compare) -> None:
    assert compare("""
def taken(results):
    "Take results until there are no more, whatever some raise."
    found, results = [], iter(results)
    while len(found) < 9:
        try:
            found.append(next(results))
        except StopIteration:
            return found
        except ZeroDivisionError:
            found.append("failed")
def fail_at_3(x):
    if x == 3:
        raise ZeroDivisionError
    return x
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(
        executor=taken(executor.map(fail_at_3, range(6), chunksize=6)),
        imap=taken(pool.imap(fail_at_3, range(6), 3)),
    )
with Pool(1) as pool, Executor(max_workers=1) as executor:
    tell(
        ours=taken(executor.map(fail_at_3, range(6), chunksize=6)),
        our_imap=taken(pool.imap(fail_at_3, range(6), 3)),
    )
""") == {
        "executor": ["failed"],
        "imap": [0, 1, 2, "failed"],
        "ours": [0, 1, 2, "failed"],
        "our_imap": [0, 1, 2, "failed", 4, 5],
    }


def test_a_failed_map_ends_its_later_calls(compare: Compare) -> None:
    assert compare("""
import functools
def run(path, x):
    if x == 0:
        raise ValueError(x)
    time.sleep(0.01)
    print(x, file=open(path, "a"))
for name, pool in ("theirs", fork.Pool(1)), ("pool", Pool(1)):
    with pool:
        tried(pool.map, functools.partial(run, name), range(10), 1)
    tell(**{name: lines(name)})
with ProcessScheduler(1) as scheduler:
    ours = functools.partial(run, "ours")
    tried(gridengine.map, ours, range(1000), chunksize=1, scheduler=scheduler)
tell(ours=lines("ours") < 900)
""") == {"theirs": 9, "pool": 9, "ours": True}


@pytest.mark.promise
def test_imap_takes_its_arguments_as_its_results_are_taken(compare: Compare) -> None:
    told = compare("""
import itertools
def counted(taken):
    for number in range(20_000):
        taken.append(number)
        yield number
for name, pool in ("theirs", fork.Pool(1)), ("ours", Pool(1)):
    taken = []
    with pool:
        results = pool.imap(abs, counted(taken))
        next(results)
        while name == "theirs" and len(taken) < 20_000:
            time.sleep(0.01)
        tell(**{name: len(taken)})
with Executor(max_workers=1) as executor:
    executor.map(abs, counted(taken := []))
    tell(executor=len(taken))
tell(endless=next(gridengine.imap(abs, itertools.count(1), scheduler=ProcessScheduler(1))))
""")
    assert told.pop("ours") < 10_000
    assert told == {"theirs": 20_000, "executor": 20_000, "endless": 1}


@pytest.mark.promise
def test_futures_are_awaited(compare: Compare) -> None:
    assert compare("""
import asyncio
async def awaited(executor):
    try:
        return await executor.submit(abs, -2)
    except TypeError as error:
        return type(error).__name__
with ProcessPoolExecutor(1) as theirs, Executor(1) as ours:
    for name, executor in {"theirs": theirs, "ours": ours}.items():
        tell(**{name: asyncio.run(awaited(executor))})
""") == {"theirs": "TypeError", "ours": 2}


# ---------------------------------------------------------------- failures


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
