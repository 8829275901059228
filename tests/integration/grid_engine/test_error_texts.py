"""The texts of errors, each of a failure that was really produced on a Grid Engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.scenario import QUICK, play

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

pytestmark = pytest.mark.grid_engine

NONSENSE = """
import sys, time
from pathlib import Path
from gridengine.worker.agent import make_hello
from gridengine.wire.messages import Assign, Result, Results
from gridengine.wire.connection_file import Connection
from gridengine.wire.client import Client

connection = Connection.load(Path(sys.argv[-1]))
client = Client(connection)
log = str(Path("/proc/self/fd/1").readlink())
client.send(make_hello(run_id=connection.run_id, slots=1, pid=1, log=log))
print("nonsense follows", flush=True)
while True:
    client.socket.poll(int(1000 * client.tick(time.monotonic())))
    for message, _ in client.receive():
        if isinstance(message, Assign):
            [one] = message.assignments
            facts = dict(status=0, seconds=0.0, buffers=1)
            client.send(Results([Result(run=one.run, start=99, stop=100, **facts)]), [b""])
"""

FAILURES = """
import concurrent.futures, shutil, threading


def speak(text):
    print(text, file=sys.stderr, flush=True)


def crash(x):
    speak("about to crash")
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep(x):
    speak("about to sleep")
    time.sleep(600)


def agent_of_this_call():
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for_log(agent, words):
    # What the agent has not passed on dies with it.
    while words not in Path(f"/proc/{agent}/fd/1").read_text():
        os.sched_yield()


def kill_agent(x):
    speak("about to kill")
    agent = agent_of_this_call()
    wait_for_log(agent, "about to kill")
    os.kill(agent, signal.SIGKILL)
    time.sleep(600)


def delete(x):
    import subprocess
    speak("about to delete")
    wait_for_log(agent_of_this_call(), "about to delete")
    subprocess.run(["qdel", os.environ["JOB_ID"]], stdout=subprocess.DEVNULL)
    time.sleep(600)


def fill(x):
    speak("about to fill")
    return bytearray(4_000_000_000)


def mapped(f, **given):
    scheduler = lambda: GridEngineScheduler(max_workers=1, **given)
    return gridengine.map(f, [0], scheduler=scheduler, retries=0)


def terminated():
    with GridEngineScheduler(max_workers=1) as scheduler:
        job = Job(target=hold, args=(7,), scheduler=scheduler)
        job.start()
        while not list(FOLDER.glob("began 7 *")):
            time.sleep(0.02)
        job.terminate()
        return job.result()


def of_another_version():
    package, other = Path(gridengine.__file__).parent, FOLDER / "other" / "gridengine"
    shutil.copytree(package, other, ignore=shutil.ignore_patterns("__pycache__"))
    version = other / "_version.py"
    version.write_text(version.read_text().replace(gridengine.__version__, "0.0.0"))
    line = f'PYTHONPATH={FOLDER}/other exec {sys.executable} "$@"'
    return mapped(abs, python=executable("other.sh", line))


def speaking_nonsense():
    (FOLDER / "nonsense.py").write_text(NONSENSE)
    line = f'exec {sys.executable} {FOLDER}/nonsense.py "$@"'
    return mapped(abs, python=executable("nonsense.sh", line))


def executable(name, line):
    (FOLDER / name).write_text("#!/bin/sh\\n" + line + "\\n")
    (FOLDER / name).chmod(0o700)
    return str(FOLDER / name)


def from_a_folder_that_goes():
    folder = FOLDER / "goes"
    folder.mkdir()
    os.chdir(folder)
    try:
        return mapped(lambda x: x, prologue=[f"rmdir {folder}"])
    finally:
        os.chdir(FOLDER)


def without_a_library():
    os.environ["DRMAA_LIBRARY_PATH"] = "/nosuch/libdrmaa.so"
    return mapped(abs)


WAYS = {
    "SubmissionRefused": lambda: mapped(abs, nosuch=1),
    "WorkerNotStarted": lambda: mapped(abs, python="/nosuch/python"),
    "WorkerLost": lambda: mapped(kill_agent),
    "JobDeleted": lambda: mapped(delete),
    "WorkerCrashed": lambda: mapped(crash),
    "OutOfMemory": lambda: mapped(fill, h_vmem="1500M"),
    "TimeoutError": lambda: mapped(sleep, h_rt=15),
    "Cancelled": terminated,
    "VersionMismatch": of_another_version,
    "PicklingError": lambda: mapped(lambda x: threading.Lock()),
    "ProtocolError": speaking_nonsense,
}
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    told = dict(zip(WAYS, pool.map(facts_of, WAYS.values())))
told["ConfigurationError"] = facts_of(from_a_folder_that_goes)
told["SchedulerUnavailable"] = facts_of(without_a_library)
tell(host=os.uname().nodename, **told)
"""


@pytest.fixture(scope="module")
def told(_get_place: Callable[[str], GridEngine]) -> Iterator[dict[str, Any]]:
    """What each error said."""
    place = _get_place("grid_engine")
    yield play(place, f"NONSENSE = {NONSENSE!r}\n{FAILURES}", environment=QUICK).result(300)
    place.children.clear()


def check(told: dict[str, Any], title: str, *words: str, tail: str | None = None) -> dict[str, Any]:
    """Check an error's text for the host and the cluster job's id, and for the log's path and tail
    when something stands in it.
    """
    error: dict[str, Any] = told[title]
    text = error["text"]
    for each in words:
        assert each in text
    assert told["host"] in text
    assert f"cluster job: {error['job']}\n" in text
    assert bool(error["log"]) == bool(error["log_tail"])
    assert f"log: {error['log']}\n" in text or error["log"] is None
    assert tail is None or f"    | {tail}" in text
    return error


def test_worker_not_started(told: dict[str, Any]) -> None:
    error = check(
        told,
        "WorkerNotStarted",
        "the cluster job ended before its worker connected",
        "/nosuch/python: No such file",
    )
    assert error["kind"] == "WorkerNotStarted"
    assert (
        error["log_tail"].splitlines()[-1]
        == f"gridengine: the worker could not be started on {told['host']}"
    )


def test_worker_lost(told: dict[str, Any]) -> None:
    error = check(
        told,
        "WorkerLost",
        "the worker that ran call 0 of kill_agent ended: killed by SIGKILL",
        tail="about to kill",
    )
    assert error["kind"] == "WorkerLost"
    assert f"attempt: on {told['host']} (cluster job {error['job']})" in error["text"]


def test_job_deleted(told: dict[str, Any]) -> None:
    error = check(
        told,
        "JobDeleted",
        "the worker that ran call 0 of delete",
        "deleted",
        tail="about to delete",
    )
    assert error["kind"] == "JobDeleted"


def test_worker_crashed(told: dict[str, Any]) -> None:
    error = check(
        told,
        "WorkerCrashed",
        "the process that ran call 0 of crash was killed by SIGSEGV",
        tail="about to crash",
    )
    assert error["kind"] == "WorkerCrashed"


def test_out_of_memory(told: dict[str, Any]) -> None:
    error = check(
        told,
        "OutOfMemory",
        "call 0 of fill ran out of memory",
        "its limit was 1.46 GB",
        tail="about to fill",
    )
    assert error["kind"] == "OutOfMemory"


def test_timeout_error(told: dict[str, Any]) -> None:
    error = check(
        told,
        "TimeoutError",
        "call 0 of sleep took longer than its worker may be there",
        "h_rt=",
        tail="about to sleep",
    )
    assert error["kind"] == "TimeoutError"


def test_cancelled(told: dict[str, Any]) -> None:
    error = check(told, "Cancelled", "job Job-", "was ended before it was done")
    assert error["kind"] == "Cancelled"


def test_version_mismatch(told: dict[str, Any]) -> None:
    error = check(told, "VersionMismatch", "has gridengine 0.0.0", "the dispatcher gridengine")
    assert error["kind"] == "VersionMismatch"


def test_protocol_error(told: dict[str, Any]) -> None:
    error = check(told, "ProtocolError", "broke the protocol", tail="nonsense follows")
    assert error["kind"] == "WorkerLost"


def test_submission_refused(told: dict[str, Any]) -> None:
    error = told["SubmissionRefused"]
    assert error["kind"] == "SubmissionRefused"
    assert 'unknown resource "nosuch"; it was asked for: -l nosuch=1' in error["text"]


def test_pickling_error(told: dict[str, Any]) -> None:
    error = told["PicklingError"]
    assert error["kind"] == "PicklingError"
    assert "the result of call 0" in error["text"]
    assert "_thread.lock" in error["text"]


def test_configuration_error(told: dict[str, Any]) -> None:
    error = told["ConfigurationError"]
    assert error["kind"] == "ConfigurationError"
    assert f"/goes cannot be entered on {told['host']}: No such file or directory" in error["text"]
    assert "run from a folder that every node has" in error["text"]


def test_scheduler_unavailable(told: dict[str, Any]) -> None:
    error = told["SchedulerUnavailable"]
    assert error["kind"] == "SchedulerUnavailable"
    assert "/nosuch/libdrmaa.so" in error["text"]
