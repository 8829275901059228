"""What calls and jobs print arrives: whole, in whole lines, however slow the reader is, from
workers here and elsewhere.
"""

from __future__ import annotations

import os
import select
import subprocess

import pytest

from tests.support.script_driver import MakeScript, Script
from tests.support.waiting import wait_until

HEAD = """
import contextlib, os, subprocess, sys, time
from pathlib import Path
os.environ["GRIDENGINE_RUN_DIRECTORY"] = str(Path.cwd() / "runs")
from gridengine import Client, Job, JobDispatcher, LocalDispatcher, ProcessScheduler
from gridengine.schedulers.local import ProcessLauncher
from tests.support.tcp_scheduler import TcpScheduler

class OverTcp(TcpScheduler):
    "Workers of this machine whose output goes to a log file, as a cluster's does."
    log = "worker.log"

@contextlib.contextmanager
def ByAClient(count):
    "At a dispatcher in a process of its own."
    with LocalDispatcher(count) as dispatcher, Client(dispatcher.address) as client:
        yield client

def say(who, lines, width=26):
    for number in range(lines):
        print(f"{who} line {number:05d} ".ljust(width - 1, "x"))

def fail():
    raise ValueError("no such dog")

def done(*jobs):
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return jobs[0]
"""
WHERE = ["ProcessScheduler", "OverTcp", "ByAClient"]


@pytest.fixture
def with_head(script: MakeScript) -> MakeScript:
    return lambda source: script(HEAD + source)


def read_late(script: Script) -> tuple[list[str], int]:
    """Run a script whose output nobody reads until it has filled the pipe; return its lines,
    sorted, and its exit status.
    """
    process = script.start(stdout=subprocess.PIPE)
    assert process.stdout is not None
    writing = os.open(
        f"/proc/self/fd/{process.stdout.fileno()}", os.O_WRONLY
    )  # the other end of the pipe
    poll = select.poll()
    poll.register(writing, select.POLLOUT)

    def is_full() -> bool:
        assert process.poll() is None, "it has ended, and waited for nobody"
        return not poll.poll(0)

    wait_until(is_full)
    os.close(writing)
    out, _ = process.communicate()
    return sorted(out.splitlines()), process.returncode


def lines_of(*speakers: str, lines: int, width: int = 26) -> list[str]:
    return sorted(
        f"{who} line {number:05d} ".ljust(width - 1, "x")
        for who in speakers
        for number in range(lines)
    )


@pytest.mark.parametrize("where", WHERE)
def test_all_that_jobs_print_arrives_at_a_late_reader(where: str, with_head: MakeScript) -> None:
    found = read_late(
        with_head(f"""
with {where}(4) as scheduler:
    names = [f"job {{number}}" for number in range(4)]
    jobs = [Job(target=say, args=(name, 1000, 1000), scheduler=scheduler) for name in names]
    done(*jobs)
""")
    )
    assert found == (lines_of(*[f"job {number}" for number in range(4)], lines=1000, width=1000), 0)


@pytest.mark.parametrize("where", WHERE)
def test_output_of_a_job_is_there_after_join(where: str, with_head: MakeScript) -> None:
    done = with_head(f"""
def speak():
    print("out")
    print("no end of line", end="")
    subprocess.run(["sh", "-c", "echo a child, >&2"])
    print("err", file=sys.stderr)

with {where}(1) as scheduler:
    job = done(Job(target=speak, scheduler=scheduler))
    print(" joined", flush=True)
    print("joined", file=sys.stderr)
    assert job.stdout() == "out\\nno end of line"
""").run()
    assert (done.stdout, done.stderr, done.returncode) == (
        "out\nno end of line joined\n",
        "a child,\nerr\njoined\n",
        0,
    )


@pytest.mark.parametrize("where", WHERE)
def test_output_of_a_job_comes_while_it_runs(where: str, with_head: MakeScript) -> None:
    process = with_head(f"""
def speak(go):
    print("I am here")
    while not Path(go).exists():
        time.sleep(0.01)

with {where}(1) as scheduler:
    done(Job(target=speak, args=(str(Path.cwd() / "go"),), scheduler=scheduler))
""")
    running = process.start(stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == "I am here\n"
    (process.folder / "go").touch()
    running.communicate()
    assert running.returncode == 0


@pytest.mark.parametrize("where", [*WHERE, "gridengine.InlineScheduler"])
def test_the_traceback_of_a_job_is_its_callers_to_see(where: str, with_head: MakeScript) -> None:
    scheduler = f"{where}()" if "Inline" in where else f"{where}(1)"
    done = with_head(f"""
with {scheduler} as scheduler:
    job = done(Job(target=fail, name="the dog", scheduler=scheduler))
    print("all done", job.exitcode)
""").run()
    assert (done.stdout, done.returncode) == ("all done 1\n", 0)
    first, *_, last = done.stderr.splitlines()
    assert (first, last) == ("Process the dog:", "ValueError: no such dog")


@pytest.mark.parametrize("where", WHERE)
def test_a_job_that_cannot_even_begin_says_why(where: str, with_head: MakeScript) -> None:
    done = with_head(f"""
Path("fleeting.py").write_text("def work(): pass")
import fleeting
Path("fleeting.py").unlink()
import shutil; shutil.rmtree("__pycache__", ignore_errors=True)
with {where}(1) as scheduler:
    print(done(Job(target=fleeting.work, scheduler=scheduler)).exitcode)
""").run()
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert "ModuleNotFoundError: No module named 'fleeting'" in done.stderr.splitlines()


@pytest.mark.promise
def test_output_of_calls_at_a_local_dispatcher_is_printed_once_and_whole(
    with_head: MakeScript,
) -> None:
    done = with_head("""
with ByAClient(2) as client:
    client.starmap(say, [("call", 1000)] * 2)
    done(Job(target=say, args=("job", 10), scheduler=client))
    client.submit(lambda: print("oh", file=sys.stderr)).result()
print("after all")
""").run()
    *lines, last = done.stdout.splitlines()
    assert (done.stderr, last) == ("oh\n", "after all")
    assert sorted(lines) == sorted(2 * lines_of("call", lines=1000) + lines_of("job", lines=10))


def test_output_at_an_unclosed_local_dispatcher_is_there_at_the_end(with_head: MakeScript) -> None:
    done = with_head("""
client = Client(LocalDispatcher(2).address)
client.starmap(say, [("call", 1000)] * 2)
Job(target=say, args=("job", 1000), scheduler=client).start()
""").run()
    assert sorted(done.stdout.splitlines()) == sorted(
        2 * lines_of("call", lines=1000) + lines_of("job", lines=1000)
    )


@pytest.mark.promise
def test_output_of_calls_elsewhere_goes_to_logs_whose_folder_is_logged(
    with_head: MakeScript,
) -> None:
    done = with_head("""
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
with OverTcp(2) as scheduler:
    gridengine.starmap(say, [("call", 3)] * 2, scheduler=scheduler)
""")
    ran = done.run()
    assert ran.stdout == ""
    [log] = done.folder.glob("runs/*/worker.log")
    assert (
        f"INFO what calls print goes to the workers' logs below {log.parent}"
        in ran.stderr.splitlines()
    )
    assert sorted(log.read_text().splitlines()) == sorted(2 * lines_of("call", lines=3))


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_logged_with_the_lost_bytes_and_has_python_s_exit_status(
    unbuffered: str, with_head: MakeScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        process = with_head("gridengine.starmap(say, [('call', 1000)] * 2)").start(
            stdout=full, stderr=subprocess.PIPE
        )
        _, err = process.communicate()
    assert err.splitlines()[:2] == [
        "the output of runners cannot be written to standard output: No space left on device",
        "52000 bytes that runners printed were not written to standard output: No space left on "
        "device",
    ]
    assert process.returncode == 120


def test_lost_output_is_marked_when_there_is_room_again(with_head: MakeScript) -> None:
    script = with_head("""
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with ProcessScheduler(1) as scheduler:
    gridengine.map(abs, [1], scheduler=scheduler)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    gridengine.starmap(say, [("call", 1000)], scheduler=scheduler)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
""")
    with open(script.folder / "out", "w+") as out:
        process = script.start(stdout=out)
        process.communicate()
        out.seek(1000)
        assert out.read() == "[... 25000 bytes lost ...]\n"
    assert process.returncode == 0


def test_a_closed_output_is_no_error(with_head: MakeScript) -> None:
    script = with_head("""
file = open("data", "w+")
assert file.fileno() == 1
gridengine.starmap(say, [('call', 10)], scheduler=ProcessScheduler(1))
assert Path("data").read_text() == ""
""")
    process = script.start(stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    _, err = process.communicate()
    assert (err, process.returncode) == ("", 0)
