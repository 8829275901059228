"""`gridengine dispatcher` as processes: started in one shell, used, asked and ended in others."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from gridengine.calls.remote import RemoteDispatcher
from tests.support.dispatchers import Shell
from tests.support.waiting import wait_until

HERE = ("--scheduler", "processes", "--max-workers", "2")
MAP = """
import gridengine
client = gridengine.Client("sweeps")
print(sum(gridengine.map(lambda x: x * x, range(100), scheduler=client)))
"""
PRINTS = """
import gridengine
def speak(words):
    print(words, "speaks")
def call(number):
    speak(f"call {number}")
def start():
    run(None)
def run(scheduler, words="a job of a call"):
    job = gridengine.Job(target=speak, args=(words,), scheduler=scheduler)
    job.start()
    job.join()
with gridengine.Client("sweeps") as client:
    run(client, "a job")
    client.map(call, range(3))
    client.submit(start).result()
"""
LONG_CALL = """
import gridengine, pathlib, sys, time
def call(begun, go_on):
    pathlib.Path(begun).touch()
    while not pathlib.Path(go_on).exists():
        time.sleep(0.01)
    return "ended"
client = gridengine.Client("sweeps")
print(client.submit(call, *sys.argv[1:]).result())
"""
SLOW_MAP = """
import gridengine, pathlib, sys, time
def call(number):
    pathlib.Path(begun).touch()
    time.sleep(0.02)
    return number * number
begun = sys.argv[1]
client = gridengine.Client("sweeps")
print(gridengine.map(call, range(200), scheduler=client) == [x * x for x in range(200)])
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.kill_all()


@contextmanager
def begun(shell: Shell, code: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Have a script run, of which a call has begun; and the file by which its call goes on."""
    first, go_on = (shell.folder / name for name in ("begun", "go_on"))
    words = [*shell.command()[:1], "-c", code, str(first), str(go_on)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=shell.environment, stdout=pipe, stderr=pipe, text=True
    ) as script:
        wait_until(first.exists)
        yield script, go_on


def test_a_dispatcher_that_one_shell_starts_is_used_and_ended_by_others(shell: Shell) -> None:
    assert "sweeps runs: process" in shell.done("dispatcher", "start", "sweeps", *HERE)
    assert shell.python(MAP) == "328350\n"
    assert shell.python(MAP) == "328350\n"
    told = shell.status("sweeps")
    assert (told["state"], told["done"], told["failed"]) == ("running", 200, 0)
    assert psutil.pid_exists(told["pid"])
    assert "running" in shell.done("dispatcher", "list")
    assert "has ended" in shell.done("dispatcher", "stop", "sweeps")
    assert shell.processes() == []
    status, output = shell.run("dispatcher", "status", "sweeps")
    assert status == 3, output
    assert "ended" in shell.done("dispatcher", "list")
    assert "does not run" in shell.done("dispatcher", "stop", "sweeps")


def test_the_folder_is_closed_to_others_and_no_key_is_on_a_command_line(shell: Shell) -> None:
    before = os.umask(0)
    try:
        shell.done("dispatcher", "start", "sweeps", *HERE)
    finally:
        os.umask(before)
    folder = shell.dispatchers / "sweeps"
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if path.is_file()}
    assert set(modes.values()) == {0o600}, modes
    [process] = shell.processes()
    assert process.cmdline()[-7:-1] == [str(folder), *process.cmdline()[-6:-1]]


def test_output_at_a_dispatcher_is_found_by_logs_and_a_job_s_by_its_caller_too(
    shell: Shell,
) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    assert shell.python(PRINTS) == "a job speaks\na job of a call speaks\n"
    shell.done("dispatcher", "stop", "sweeps")  # all is written by then
    path = shell.dispatchers / "sweeps" / "logs" / "local-workers.log"
    shell.done("dispatcher", "start", "sweeps")
    told = shell.done("logs", "sweeps").split(f"==> {path} <==\n")[1]
    assert sorted(told.splitlines()) == [
        "a job of a call speaks",
        "a job speaks",
        *[f"call {number} speaks" for number in range(3)],
    ]
    assert "speaks" not in (path.parents[1] / "dispatcher.log").read_text()


def test_a_killed_dispatcher_is_told_as_killed_and_started_as_before(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    pid = shell.status("sweeps")["pid"]
    psutil.Process(pid).kill()
    wait_until(lambda: shell.run("dispatcher", "status", "sweeps")[0] == 1)

    def explains() -> bool:
        status, output = shell.run("explain", "sweeps")
        return status == 1 and "the dispatcher 'sweeps' was killed" in output

    wait_until(explains)  # what it has forked may hold its socket for a moment
    shell.done("dispatcher", "start", "sweeps")
    told = shell.status("sweeps")
    assert told["state"] == "running"
    assert told["pid"] != pid
    assert shell.python(MAP) == "328350\n"


def test_without_its_supervisor_a_dispatcher_goes_on(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE, "--restart")
    pid = shell.status("sweeps")["pid"]
    [supervisor] = [one for one in shell.processes() if one.pid != pid]
    supervisor.kill()
    supervisor.wait(60)
    assert shell.status("sweeps")["pid"] == pid
    assert shell.python(MAP) == "328350\n"
    shell.done("dispatcher", "stop", "sweeps")
    assert shell.processes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_ends_one_in_order(shell: Shell, number: signal.Signals) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    psutil.Process(shell.status("sweeps")["pid"]).send_signal(number)
    wait_until(lambda: not shell.processes())
    assert shell.run("dispatcher", "status", "sweeps")[0] == 3
    assert not (shell.dispatchers / "sweeps" / "client.json").exists()


def test_stop_waits_for_the_calls_that_run(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    with begun(shell, LONG_CALL) as (script, go_on):
        with closing(RemoteDispatcher(shell.dispatchers / "sweeps" / "client.json")) as remote:
            remote.control("stop")
        for _ in range(3):  # one that did not wait would be gone before others have asked
            assert shell.status("sweeps")["running"] == 1
        go_on.touch()
        assert script.communicate()[0] == "ended\n"
    wait_until(lambda: not shell.processes())


def test_stop_now_ends_the_calls_that_run(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    with begun(shell, LONG_CALL) as (script, _):
        shell.done("dispatcher", "stop", "sweeps", "--now")
        assert "DispatcherGone" in script.communicate()[1]
    assert shell.processes() == []


def test_stop_now_ends_one_that_does_not_answer(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    psutil.Process(shell.status("sweeps")["pid"]).suspend()
    shell.done("dispatcher", "stop", "sweeps", "--now")
    assert shell.processes() == []


def test_restart_loses_no_call_of_its_clients(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE)
    pid = shell.status("sweeps")["pid"]
    with begun(shell, SLOW_MAP) as (script, _):
        shell.done("dispatcher", "restart", "sweeps")
        assert shell.status("sweeps")["pid"] != pid
        output, errors = script.communicate()
    assert output == "True\n", errors


def test_with_restart_a_map_survives_the_death_of_its_dispatcher_and_stop_ends_both_processes(
    shell: Shell,
) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE, "--restart")
    pid = shell.status("sweeps")["pid"]
    assert len(shell.processes()) == 2
    with begun(shell, SLOW_MAP) as (script, _):
        psutil.Process(pid).kill()
        output, errors = script.communicate()
    assert output == "True\n", errors
    assert shell.status("sweeps")["pid"] != pid
    shell.done("dispatcher", "stop", "sweeps")
    assert shell.processes() == []


def test_a_dispatcher_that_cannot_start_says_why_and_leaves_no_process(shell: Shell) -> None:
    shell.environment = {**shell.environment, "GRIDENGINE_HOST": "no.such.host.example"}
    for more in ((), ("--restart",)):
        status, output = shell.run("dispatcher", "start", "sweeps", *HERE, *more)
        assert status == 1
        assert "no.such.host.example" in output
        assert "Traceback" not in output
    assert shell.processes() == []
    assert "there are none" in shell.done("dispatcher", "list")


def test_a_dispatcher_whose_journal_is_refused_is_not_started_again(shell: Shell) -> None:
    shell.done("dispatcher", "start", "sweeps", *HERE, "--restart")
    folder, pid = shell.dispatchers / "sweeps", shell.status("sweeps")["pid"]
    with closing(sqlite3.connect(folder / "journal.sqlite")) as file, file:
        file.execute("INSERT INTO clients VALUES (5000, x'', x'', 0)")
        file.execute("UPDATE counters SET value = 99 WHERE name = 'protocol'")
    psutil.Process(pid).kill()
    wait_until(lambda: not shell.processes())
    log = (folder / "dispatcher.log").read_text()
    assert "it is in protocol 99, and this one speaks" in log
    assert "Traceback" not in log
