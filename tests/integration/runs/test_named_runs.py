"""Runs with a name: a script that is run again goes on where it was."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.script_driver import MakeScript, Script
from tests.support.waiting import wait_until

HEAD = """
import dataclasses, logging, os, sys, time
logging.basicConfig(level=logging.INFO, format="%(message)s")
os.environ["GRIDENGINE_RUN_DIRECTORY"] = os.path.abspath("runs")
place = gridengine.ProcessScheduler(2)

def note(x):
    with open("made", "a") as file:
        print(x, file=file, flush=True)
"""


@pytest.fixture
def run(script: MakeScript, tmp_path: Path) -> Runner:
    return Runner(script, tmp_path)


class Runner:
    """Runs scripts one after the other in one folder; `made` are the calls that the last made."""

    def __init__(self, script: MakeScript, folder: Path) -> None:
        self._script = script
        self.folder = folder

    def prepare(self, source: str) -> Script:
        self.path.unlink(missing_ok=True)
        return self._script(HEAD + source)

    def __call__(self, source: str) -> tuple[str, str]:
        done = self.prepare(source).run()
        assert not done.returncode, done.stderr
        return done.stdout, done.stderr

    @property
    def path(self) -> Path:
        return self.folder / "made"

    @property
    def made(self) -> list[str]:
        return sorted(self.path.read_text().split()) if self.path.exists() else []


SQUARES = """
def square(x):
    note(x)
    return x * x
print(sum(gridengine.map(square, range({count}), name="squares", scheduler=place)))
"""


def test_what_has_a_result_is_not_run_again(run: Runner) -> None:
    first = run(SQUARES.format(count=10))
    assert len(run.made) == 10
    second = run(SQUARES.format(count=10))
    assert (run.made, second[0]) == ([], first[0])
    assert "10 results taken from the journal, 0 new" in second[1]


def test_new_arguments_are_run_alone(run: Runner) -> None:
    run(SQUARES.format(count=10))
    run(SQUARES.format(count=13))
    assert run.made == ["10", "11", "12"]


def test_changed_code_is_run_again_and_the_log_says_what_has_changed(run: Runner) -> None:
    source = "SCALE = {}\n" + SQUARES.replace("x * x", "x * SCALE").format(count=3)
    run(source.replace("{}", "1"))
    output, log = run(source.replace("{}", "2"))
    assert (output, len(run.made)) == ("6\n", 3)
    assert "3 new: square changed since (SCALE)" in log


def test_results_of_older_code_are_taken_when_asked_for(run: Runner) -> None:
    run(SQUARES.format(count=3))
    source = SQUARES.replace("x * x", "x + 100").replace("name=", 'resume="anyway", name=')
    output, _ = run(source.format(count=4))
    assert (output, run.made) == ("108\n", ["3"])


def test_a_run_begins_anew_when_asked_to(run: Runner) -> None:
    run(SQUARES.format(count=3))
    run(SQUARES.replace("name=", "resume=False, name=").format(count=3))
    assert len(run.made) == 3
    run(SQUARES.format(count=3))
    assert run.made == []


FAILS = """
def check(x):
    note(x)
    if x == 2 and not os.path.exists("repaired"):
        raise ValueError("two")
    return x
print(gridengine.map(check, range(4), name="checks", scheduler=place, reraise=False{more}))
"""


def test_what_has_failed_is_tried_again(run: Runner) -> None:
    run(FAILS.format(more=""))
    (run.folder / "repaired").touch()
    output, log = run(FAILS.format(more=""))
    assert (output, run.made) == ("[0, 1, 2, 3]\n", ["2"])
    assert "1 new: 1 had failed" in log


def test_failures_are_kept_when_asked_for(run: Runner) -> None:
    first = run(FAILS.format(more=""))
    second = run(FAILS.format(more=", retry_failed=False"))
    assert (run.made, second[0]) == ([], first[0])


def test_results_of_the_scripts_own_classes_are_of_its_class(run: Runner) -> None:
    source = """
@dataclasses.dataclass
class Point:
    x: int
def make(x):
    note(x)
    return [Point(x)]
results = gridengine.map(make, range(3), name="points", scheduler=place)
print(results, all(type(one[0]) is Point for one in results))
"""
    run(source)
    assert run(source)[0] == "[[Point(x=0)], [Point(x=1)], [Point(x=2)]] True\n"
    assert run.made == []


def test_a_call_made_several_times_has_as_many_results(run: Runner) -> None:
    source = """
def draw(x):
    note(x)
    return os.urandom(4).hex()
results = gridengine.map(draw, [0] * 20, name="draws", scheduler=place)
print(sorted(results), len(set(results)))
"""
    first = run(source)[0]
    assert run(source)[0] == first
    assert first.endswith(" 20\n")
    assert run.made == []


def test_imap_takes_known_results_in_their_place(run: Runner) -> None:
    source = """
def square(x):
    note(x)
    return x * x
for {names} in gridengine.imap{kind}(square, iter(range({count})), name="i", scheduler=place{more}):
    print({names})
"""
    unordered = {"kind": "_unordered", "names": "at, x", "more": ", with_index=True"}
    run(source.format(count=30, kind="", names="x", more=""))
    output, _ = run(source.format(count=40, **unordered))
    assert sorted(map(eval, output.replace(" ", ",").split())) == [(n, n * n) for n in range(40)]
    assert run.made == sorted(map(str, range(30, 40)))


NIGHT = """
def add(x, y=0):
    note(f"{x}+{y}")
    if x == 3:
        raise ValueError("three")
    return x + y
with gridengine.Executor(name="night", scheduler=place) as executor:
    futures = [executor.submit(add, x, y=1) for x in range(count)]
    futures += [executor.submit(add, x) for x in range(count)]
    print([future.exception() or future.result() for future in futures])
    print([*executor.map(add, range(100, 110))])
"""


def test_single_calls_of_an_executor_are_known_again(run: Runner) -> None:
    first = run("count = 6" + NIGHT)[0]
    assert len(run.made) == 22
    assert run("count = 6" + NIGHT)[0] == first
    assert run.made == ["3+0", "3+1"]
    run("count = 7" + NIGHT)
    assert run.made == ["3+0", "3+1", "6+0", "6+1"]


def test_results_are_there_after_the_script_was_killed(run: Runner) -> None:
    source = """
def slow(x):
    note(x)
    time.sleep(0 if x < 5 or os.path.exists("quick") else 1000)
    return x
print(gridengine.map(slow, range(8), name="killed", scheduler=place, chunksize=1))
"""
    one = run.prepare(source)
    process = subprocess.Popen([*one.command], cwd=one.folder, env=one.environment())
    file = run.folder / "runs" / "named" / "killed.sqlite"

    def kept() -> bool:
        if not file.exists():
            return False
        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        try:
            query = "SELECT sum(stop - start) FROM results"
            return connection.execute(query).fetchone() == (5,)
        except sqlite3.OperationalError:  # it has no tables yet
            return False
        finally:
            connection.close()

    wait_until(kept)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (run.folder / "quick").touch()
    output, log = run(source)
    assert output == f"{[*range(8)]}\n"
    assert run.made == ["5", "6", "7"]
    assert "5 results taken from the journal, 3 new" in log


def test_two_scripts_cannot_have_one_run_at_once(run: Runner) -> None:
    source = """
if len(sys.argv) == 1:
    import subprocess
    executor = gridengine.Executor(name="one", scheduler=place)
    executor.submit(abs, -1).result()
    second = subprocess.run([sys.executable, __file__, "again"], capture_output=True, text=True)
    print(os.getpid(), second.stderr)
    executor.shutdown()
    again = [sys.executable, __file__, "again"]
    print(subprocess.run(again, capture_output=True, text=True).stdout)
else:
    print(gridengine.map(abs, [-1, -2], name="one", scheduler=place))
"""
    output, _ = run(source)
    pid = output.split()[0]
    assert f'JournalError: the run "one" is in use by process {pid} on' in output
    assert output.endswith("[1, 2]\n\n")


def test_who_waits_gets_the_run_when_the_other_has_ended(run: Runner) -> None:
    source = """
if len(sys.argv) == 1:
    import subprocess
    executor = gridengine.Executor(name="one", scheduler=place)
    assert executor.submit(abs, -1).result() == 1
    again = [sys.executable, __file__, "again"]
    second = subprocess.Popen(again, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "waiting for it to end" not in (line := second.stderr.readline()):
        assert line
    executor.shutdown()
    print(second.communicate()[0])
else:
    print(gridengine.map(abs, [-1, -2], name="one", scheduler=place, wait=True))
"""
    assert run(source)[0] == "[1, 2]\n\n"


def test_a_damaged_file_is_told_of_and_stays(run: Runner) -> None:
    run(SQUARES.format(count=3))
    file = run.folder / "runs" / "named" / "squares.sqlite"
    file.write_bytes(b"SQLite format 3\0" + b"nonsense" * 1000)
    before = file.read_bytes()
    done = run.prepare(SQUARES.format(count=3)).run()
    assert "JournalError: the file of the run 'squares' cannot be read" in done.stderr
    assert file.read_bytes() == before
    assert run.made == []


def test_a_file_of_a_newer_version_is_told_of(run: Runner) -> None:
    run(SQUARES.format(count=3))
    file = run.folder / "runs" / "named" / "squares.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = run.prepare(SQUARES.format(count=3)).run()
    assert "was written by a newer version of gridengine (format 99" in done.stderr


def test_a_journal_may_lie_elsewhere(run: Runner) -> None:
    source = SQUARES.replace("name=", 'journal="here.sqlite", name=').format(count=3)
    run(source)
    run(source)
    assert run.made == []
    assert (run.folder / "here.sqlite").exists()
    assert oct((run.folder / "here.sqlite").stat().st_mode) == "0o100600"


def test_large_results_are_kept(run: Runner) -> None:
    source = """
import numpy
def large(x):
    note(x)
    return numpy.full(300_000, x), x
results = gridengine.map(large, range(3), name="large", scheduler=place)
results[1][0][0] = 7
print([array.sum() for array, _ in results])
"""
    first = run(source)[0]
    assert run(source)[0] == first
    assert run.made == []


SCRIPT_OF_KEYS = """
import enum
from gridengine.journal.call_keys import CallKeys
@dataclasses.dataclass
class Point:
    x: int
    def length(self): return abs(self.x)
class Colour(enum.Enum):
    RED = 1
WORDS = {"one", "two", "three", "four"}
def helper(x): return x in {"u", "v", "w"} or x in WORDS
def train(x): return helper(x) and Point(x).length()
keys = CallKeys()
print(keys.of_function(train).digest.hex())
function = lambda x: helper(x)
for call in (1, "a", Point(1), Colour.RED, WORDS, [frozenset(WORDS)], {"a": WORDS}, function):
    print(keys.of_call(call, 0).hex())
"""


def test_the_keys_of_calls_are_the_same_in_each_process(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = set()
    for seed in "123":
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        outputs.add(run("#\n" * int(seed) + SCRIPT_OF_KEYS)[0])
    [output] = outputs
    assert len(set(output.split())) == 9


POINTS = """
@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5
def make(x):
    if x == 2 and not os.path.exists("repaired"):
        raise ValueError("two")
    return Point(x)
print(gridengine.map(make, range(4), name="points", scheduler=place, reraise=False))
"""
ELSEWHERE = """
run = gridengine.run_named("points")
[same] = gridengine.runs()
print(same, run.script == os.path.abspath("script.py"), run.size > 1000, run.when <= time.time())
print(run.results())
print(run.failures())
open("repaired", "w").close()
print(run.resubmit(scheduler=place))
print(gridengine.run_named("points"))
"""


def test_another_script_reads_what_is_kept_and_makes_calls_again(run: Runner) -> None:
    run(POINTS)
    output, _ = run(ELSEWHERE)
    assert output.splitlines() == [
        "<run 'points': 3 done, 1 failed, 0 left> True True True",
        "[Point(x=0, y=0.5), Point(x=1, y=0.5), ValueError('two'), Point(x=3, y=0.5)]",
        "{2: ValueError('two')}",
        "[Point(x=2, y=0.5)]",
        "<run 'points': 4 done, 0 failed, 0 left>",
    ]
    output, log = run(POINTS)
    assert "4 results taken from the journal, 0 new" in log


def command(run: Runner, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GRIDENGINE_RUN_DIRECTORY": str(run.folder / "runs")}
    return subprocess.run(
        [sys.executable, "-m", "gridengine", *words],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_of_several_maps_of_one_name_the_last_is_shown_and_all_are_kept(run: Runner) -> None:
    source = """
def work(x):
    note(x)
    return x
for calls in [1, 2], [3]:
    gridengine.map(work, calls, name="several", scheduler=place)
print(gridengine.run_named("several").results())
"""
    assert run(source)[0] == "[3]\n"
    assert run(source)[0] == "[3]\n"
    assert run.made == []


def test_the_command_line_lists_runs(run: Runner) -> None:
    run(POINTS)
    [row] = json.loads(command(run, "runs", "--json").stdout)
    assert (row["name"], row["done"], row["failed"], row["left"]) == ("points", 3, 1, 0)
    header, line = command(run, "runs").stdout.splitlines()
    assert header.split() == ["name", "begun", "done", "failed", "left", "size", "script"]
    assert line.split()[3:6] == ["3", "1", "0"]


def test_the_command_line_writes_results(run: Runner) -> None:
    run(POINTS)
    lines = [json.loads(one) for one in command(run, "results", "points").stdout.splitlines()]
    assert lines[0] == {"result": {"x": 0, "y": 0.5}}
    assert lines[2] == {"error": "ValueError: two"}
    table = command(run, "results", "points", "--format", "csv").stdout
    assert table.splitlines() == ["x,y", "0,0.5", "1,0.5", "3,0.5"]
    file = run.folder / "points.pickle"
    done = command(run, "results", "points", "-o", str(file))
    assert "1 of 4 calls have no result" in done.stderr
    results = pickle.loads(file.read_bytes())
    assert [getattr(one, "x", None) for one in results] == [0, 1, None, 3]


def test_the_command_line_deletes_runs_when_it_is_told_to(run: Runner) -> None:
    run(POINTS)
    folder = run.folder / "runs" / "named"
    assert command(run, "forget", "points").returncode
    assert command(run, "forget", "--older", "1h", "--yes").stdout == "there is none to delete\n"
    assert (folder / "points.sqlite").exists()
    assert not command(run, "forget", "points", "--yes").returncode
    assert [*folder.iterdir()] == []


def test_the_command_line_deletes_a_run_that_lies_elsewhere(run: Runner) -> None:
    run(SQUARES.replace("name=", 'journal="here.sqlite", name=').format(count=3))
    there = "--journal", str(run.folder / "here.sqlite")
    assert command(run, "forget", "--older", "1h", *there).returncode == 2
    done = command(run, "forget", "squares", *there, "--yes")
    assert not done.returncode, done.stderr
    assert not [*run.folder.glob("here.sqlite*")]


def test_a_scheduler_that_cannot_be_had_keeps_nobody_from_the_run(run: Runner) -> None:
    source = """
import subprocess
import sys
try:
    gridengine.JobDispatcher(lambda: 1 / 0, name="jobs")
except ZeroDivisionError as error:
    kept = error
words = [sys.executable, "-m", "gridengine", "forget", "jobs", "--yes"]
print(subprocess.run(words, stdout=subprocess.DEVNULL).returncode)
"""
    assert run(source)[0] == "0\n"


def test_a_run_that_a_script_has_is_not_deleted(run: Runner) -> None:
    source = """
import subprocess
import sys
with gridengine.Executor(name="one", scheduler=place) as executor:
    executor.submit(abs, -1).result()
    words = [sys.executable, "-m", "gridengine", "forget", "one", "--yes"]
    print(subprocess.run(words, stderr=subprocess.PIPE, text=True).stderr)
assert gridengine.run_named("one").results() == [1]
"""
    assert 'the run "one" is in use by process' in run(source)[0]


def test_jobs_that_have_returned_are_not_run_again(run: Runner) -> None:
    source = """
def work(x, y=0):
    note(x)
    if x == 3 and not os.path.exists("repaired"):
        raise ValueError("three")
    return x + y
jobs = [gridengine.Job(target=work, args=(x,), kwargs={"y": 1}) for x in range(5)]
with gridengine.JobDispatcher(place, name="jobs") as dispatcher:
    dispatcher.dispatch(jobs)
    print(dispatcher.join())
print([job.exitcode for job in jobs])
"""
    first = run(source)[0]
    assert first == "[1, 2, 3, ValueError('three'), 5]\n[0, 0, 0, 1, 0]\n"
    (run.folder / "repaired").touch()
    output, log = run(source)
    assert output == "[1, 2, 3, 4, 5]\n[0, 0, 0, 0, 0]\n"
    assert run.made == ["3"]
    assert "4 results taken from the journal, 1 new: 1 had failed" in log


def test_the_calls_of_a_pool_are_known_again(run: Runner) -> None:
    source = """
def work(x, y=0):
    note(x)
    return x + y
with gridengine.Pool(scheduler=place, name="pool") as pool:
    print(pool.apply(work, (50,), {"y": 1}), pool.map(work, range(10)))
    print(pool.starmap(work, [(20, 1), (21, 1)]), [*pool.imap(work, range(30, 40))])
"""
    first = run(source)[0]
    assert len(run.made) == 23
    assert run(source)[0] == first
    assert run.made == []


def test_an_iterator_that_is_left_lets_go_of_the_run(run: Runner) -> None:
    source = """
import gc
def work(x):
    note(x)
    return x
results = gridengine.imap(work, range(1000), name="left", scheduler=place)
print(next(results), next(results))
del results
gc.collect()
command = [sys.executable, "-c", '''
import gridengine
def work(x): return x
print(gridengine.map(work, range(3), name="left", scheduler="processes", wait=True))
''']
import subprocess
print(subprocess.run(command, capture_output=True, text=True).stdout)
"""
    assert run(source)[0] == "0 1\n[0, 1, 2]\n\n"


def test_calls_that_wait_for_others_are_run_each_time(run: Runner) -> None:
    source = """
def work(x):
    note(x)
    return x + 1
with gridengine.Executor(name="chain", scheduler=place) as executor:
    print(executor.submit(work, executor.submit(work, 1)).result())
"""
    assert run(source)[0] == "3\n"
    assert run(source)[0] == "3\n"
    assert run.made == ["2"]


@pytest.mark.parametrize(
    ("odd", "made"),
    [("executor.submit(abs, 9)", ["9"]), ("Unpicklable()", [])],
    ids=["a future", "what cannot be pickled"],
)
def test_calls_beside_one_that_cannot_be_known_are_kept(
    run: Runner, odd: str, made: list[str]
) -> None:
    source = f"""
class Unpicklable:
    def __reduce__(self):
        raise TypeError("no")
def work(x):
    note(x)
    return x + 1
with gridengine.Executor(scheduler=place) as executor:
    calls = [1, 2, {odd}, 4, 5]
    results = gridengine.map(work, calls, name="odd", scheduler=place, reraise=False)
    print([type(one).__name__ if isinstance(one, Exception) else one for one in results])
"""
    first, _ = run(source)
    assert run.made == sorted(["1", "2", "4", "5", *made])
    second, _ = run(source)
    assert (second, run.made) == (first, made)


def test_a_locked_file_keeps_nobody_from_going_on(run: Runner) -> None:
    source = """
import sqlite3
def work(x):
    note(x)
    return x
print(gridengine.map(work, range(3), name="locked", scheduler=place))
other = sqlite3.connect("runs/named/locked.sqlite", isolation_level=None, timeout=60)
from gridengine.journal import run_schema, writer
writer.RETRY_SECONDS = 0.1
connect = writer.open_connection
run_schema.open_connection = lambda path: connect(path, busy_seconds=0.05)
executor = gridengine.Executor(name="locked", scheduler=place)
other.execute("BEGIN IMMEDIATE")
futures = [executor.submit(work, x) for x in range(6)]
print([future.result() for future in futures])
while not executor._submitter._kept._run._file.writer.failure:
    time.sleep(0.01)
other.execute("COMMIT")
executor.shutdown()
"""
    output, log = run(source)
    assert output == "[0, 1, 2]\n[0, 1, 2, 3, 4, 5]\n"
    assert "cannot be written: database is locked" in log
    assert "it could be written again; nothing is missing" in log
    again = source.split("other =")[0].replace("range(3)", "range(6)")
    run(again)
    assert run.made == []


GRAPH = """
def load(name):
    note(name)
    return len(name)
def add(*numbers):
    note("add%d" % len(numbers))
    return sum(numbers)
def scale(x, by=FACTOR):
    note("scale")
    return x * by
graph = {
    "a": (load, "one"), "b": (load, "three"), "c": (add, "a", "b"), "d": (scale, (add, "c", "c")),
    "e": ["c", "d"], "f": (load, "c"),
}
graph["one"], graph["three"] = "uno", "drei"
del graph["f"]
with gridengine.Executor(name="graph", scheduler=place) as executor:
    print([one.result() for one in executor.submit_graph(graph, KEYS, fuse=FUSE)])
"""


@pytest.mark.parametrize("fuse", [True, False])
def test_what_a_graph_computed_is_data_the_next_time(run: Runner, fuse: bool) -> None:
    def source(keys: list[str], factor: int) -> str:
        return f"KEYS, FACTOR, FUSE = {keys}, {factor}, {fuse}\n{GRAPH}"

    assert run(source(["c"], 2))[0] == "[7]\n"
    assert run(source(["e"], 2))[0] == "[[7, 28]]\n"
    assert run.made == ["add2", "scale"]
    assert run(source(["e", "c"], 2))[0] == "[[7, 28], 7]\n"
    assert run.made == []
    assert run(source(["e"], 3))[0] == "[[7, 42]]\n"
    assert run.made == ["add2", "scale"]


def test_a_call_of_a_graph_that_had_failed_is_told_of_once(run: Runner) -> None:
    source = """
def work(x):
    if not os.path.exists("repaired"):
        raise ValueError("no")
    return x
with gridengine.Executor(name="graph", scheduler=place) as executor:
    [future] = executor.submit_graph({"a": (work, 1)}, keys=["a"])
    future.exception()
found = gridengine.run_named("graph")
print(found.done, found.failed, len(found.results()))
"""
    assert run(source)[0] == "0 1 1\n"
    (run.folder / "repaired").touch()
    assert run(source)[0] == "1 0 1\n"


@pytest.mark.parametrize("fuse", [True, False])
def test_what_failed_of_a_graph_stays_so_when_asked_for_and_with_it_what_needs_it(
    run: Runner, fuse: bool
) -> None:
    source = f"""
def work(x):
    note(f"work{{x}}")
    if x and not os.path.exists("repaired"):
        raise ValueError(f"no {{x}}")
    return x
def add(x, y):
    note("add")
    return x + y
def ways(error):
    notes = getattr(error, "__notes__", ())
    return [note.partition(", and with it ")[0] for note in notes if "and with it" in note]
graph = {{"a": (work, 0), "b": (work, 1), "c": (add, "a", "b"), "d": (add, "c", "a")}}
with gridengine.Executor(name="graph", scheduler=place, retry_failed=RETRY) as executor:
    for future in executor.submit_graph(graph, keys=["a", "b", "d"], fuse={fuse}):
        error = future.exception()
        print(repr(error or future.result()), ways(error))
"""
    (first, _), made = run(f"RETRY = False\n{source}"), run.made
    assert made == ["work0", "work1"]
    *_, last = first.splitlines()
    assert "ValueError('no 1') [\"the call of work (node 'b')" in last
    (run.folder / "repaired").touch()
    assert (run(f"RETRY = False\n{source}")[0], run.made) == (first, [])
    again = run(f"RETRY = True\n{source}")[0]
    assert (again, run.made) == ("0 []\n1 []\n1 []\n", ["add", "add", "work1"])


def test_a_full_disk_keeps_nobody_from_going_on(run: Runner) -> None:
    source = """
import resource
from gridengine.journal import writer
writer.RETRY_SECONDS = 0.1
def work(x):
    note(x)
    return os.urandom(50_000)
executor = gridengine.Executor(name="full", scheduler=place)
executor.submit(work, -1).result()
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
if LIMITED:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limit[1]))
print(len({executor.submit(work, x).result() for x in range(30)}))
while LIMITED and not executor._submitter._kept._run._file.writer.failure:
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
executor.shutdown()
"""
    output, log = run(f"LIMITED = True\n{source}")
    assert output == "30\n"
    assert "full.sqlite cannot be written: " in log
    assert "it could be written again; nothing is missing" in log
    assert run(f"LIMITED = False\n{source}")[0] == "30\n"
    assert run.made == []


def test_calls_that_are_made_again_log_to_their_caller_and_raise_when_asked(run: Runner) -> None:
    source = """
import logging
def work(x):
    logging.getLogger("mine").warning("call of %d", x)
    if not os.path.exists("repaired"):
        raise ValueError(x)
    return x
gridengine.map(work, range(2), name="again", scheduler=place, reraise=False)
"""
    run(source)
    again = """
run = gridengine.run_named("again")
how = dict(scheduler=place, forward_logging=True, progress=False, chunksize=1, priority=1)
try:
    run.resubmit(reraise=True, **how)
except ValueError as error:
    print(error)
open("repaired", "w").close()
print(run.resubmit(**how))
"""
    output, log = run(again)
    assert output == "0\n[0, 1]\n"
    assert "call of 1" in log
