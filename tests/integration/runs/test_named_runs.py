"""Runs with a name: a script that is run again goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.script_driver import MakeScript, Script

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


def test_a_waiting_script_gets_the_run_when_the_other_has_ended(run: Runner) -> None:
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


LOCAL_CLASS = """
def main():
    class Point:
        def __init__(self, x):
            self.x = x
    def move(point):
        note(point.x)
        return point
    print([one.x for one in gridengine.map(move, [Point(1)], name="local", scheduler=place)])
main()
"""


def test_a_result_of_a_class_that_came_in_an_argument_is_taken_and_read(run: Runner) -> None:
    run(LOCAL_CLASS)
    output, log = run(LOCAL_CLASS)
    assert (output, run.made) == ("[1]\n", [])
    assert "1 result taken from the journal, 0 new" in log
    assert run("print(gridengine.run_named('local').results()[0].x)")[0] == "1\n"


@pytest.mark.promise
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
while LIMITED and not executor._submitter._named_run._file.writer.failure:
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
