"""Jobs start as processes do: at once, however many there are; under a scheduler's limit it is said
what waits for what.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

import gridengine
from gridengine.system import processors
from gridengine.worker import multiprocessing_state
from tests.support.script_driver import MakeScript
from tests.support.waiting import wait_until

HEAD = """
import os, socket, sys, time
from pathlib import Path
import gridengine
from gridengine import Job, JobDispatcher, Pool, ProcessScheduler
from gridengine.system import processors

FOLDER = Path.cwd()

def meet(number, of, folder=FOLDER):
    "Wait until all the others are here."
    Path(folder, f"here {number}").touch()
    while len(list(Path(folder).glob("here *"))) < of:
        time.sleep(0.01)

def never_end():
    time.sleep(1e6)
"""


@pytest.fixture
def with_head(script: MakeScript) -> MakeScript:
    return lambda source: script(HEAD + source)


def test_jobs_that_wait_for_one_another_meet(with_head: MakeScript) -> None:
    many = 3 * len(processors())
    done = with_head(f"""
jobs = [Job(target=meet, args=(number, {many})) for number in range({many})]
for job in jobs:
    job.start()
for job in jobs:
    job.join()
print({{job.exitcode for job in jobs}}, len({{job.pid for job in jobs}}))
""").run()
    assert (done.stdout, done.returncode) == (f"{{0}} {many}\n", 0), done.stderr


def test_a_pool_works_beside_endless_daemon_jobs(with_head: MakeScript) -> None:
    done = with_head("""
for _ in processors():
    Job(target=never_end, daemon=True).start()
with Pool() as pool:
    print(pool.map(abs, [1, -2]))
print(gridengine.map(abs, [-3]))
""").run()
    assert (done.stdout, done.returncode) == ("[1, 2]\n[3]\n", 0), done.stderr


def test_more_jobs_than_open_files_are_allowed_for_are_no_error(with_head: MakeScript) -> None:
    done = with_head("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
jobs = [Job(target=meet, args=(number, 100)) for number in range(100)]
for job in jobs:
    job.start()
for job in jobs:
    job.join()
print({job.exitcode for job in jobs})
""").run()
    assert (done.stdout, done.stderr, done.returncode) == ("{0}\n", "", 0)


def test_a_shortage_of_processes_is_logged_and_the_other_jobs_have_their_turn(
    with_head: MakeScript,
) -> None:
    done = with_head("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (240, 240))
jobs = [Job(target=time.sleep, args=(0.1,)) for number in range(100)]
for job in jobs:
    job.start()
for job in jobs:
    job.join()
print({job.exitcode for job in jobs})
""").run()
    assert (done.stdout, done.returncode) == ("{0}\n", 0), done.stderr
    assert "processes can be started (Too many open files)" in done.stderr


@pytest.mark.promise
def test_a_job_that_asks_for_resources_waits_for_them(with_head: MakeScript) -> None:
    done = with_head("""
from gridengine.resources import Cores
all_of_it = Cores(len(processors()))
options = dict(daemon=True, resources=all_of_it)
first, second = (Job(target=meet, args=(number, 3), **options) for number in range(2))
first.start()
second.start()
gridengine.Job(target=meet, args=(2, 1)).start()  # asks for nothing, and so waits for nobody
while first.pid is None:
    time.sleep(0.01)
print(second.pid)
""").run()
    assert (done.stdout, done.returncode) == ("None\n", 0), done.stderr


def test_under_a_limit_the_log_says_which_jobs_wait_for_which(with_head: MakeScript) -> None:
    done = with_head("""
import logging
scheduler = ProcessScheduler(2)
options = dict(daemon=True, scheduler=scheduler)
jobs = [
    Job(target=meet, args=(number, 3), name=f"part {number}", **options) for number in range(3)
]

class Until(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.getMessage(), flush=True)
        Path("here 2").touch()

logging.getLogger("gridengine").addHandler(Until())
for job in jobs:
    job.start()
for job in jobs:
    job.join()
print({job.exitcode for job in jobs})
""").run()
    said = (
        "WARNING waiting for a free worker for 10 s: part 2; these hold all of them "
        "(max_workers=2): part 0, part 1\n"
    )
    assert (done.stdout, done.returncode) == (said + "{0}\n", 0), done.stderr


def until_there(path: str) -> None:
    wait_until(Path(path).exists)


def leave_a_child(path: str, said: str) -> str:
    tell = multiprocessing_state._tell

    def tell_and_note(what: str) -> None:
        tell(what)
        Path(said).touch()

    multiprocessing_state.SAY_SECONDS, multiprocessing_state._tell = 0, tell_and_note
    child = multiprocessing.get_context("fork").Process(
        target=until_there, args=(path,), name="Left"
    )
    child.start()
    return f"the process Left ({child.pid})"


@pytest.mark.promise
def test_a_job_says_for_which_children_it_waits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    go, said = tmp_path / "go", tmp_path / "said"
    job = gridengine.Job(target=leave_a_child, args=(str(go), str(said)), name="train")
    job.start()
    wait_until(said.exists)
    assert job.is_alive()
    go.touch()
    left = job.result(60)
    printed = capfd.readouterr().err
    told = f"job train waits for processes or threads that its function left running: {left}"
    assert told in printed
    assert "before the function returns" in printed
