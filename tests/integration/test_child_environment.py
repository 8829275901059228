"""What calls find around them in their process: signals, threads, flags, and what `multiprocessing` hands to a child."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gridengine.protocol import CRASH, TIMEOUT, Crashed, Hello, Stop
from tests.integration.script_driver import MakeScript
from tests.integration.test_worker_process import Office

# ---------------------------------------------------------------- signals

INHERITED = {
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM})",
    "ignored": "[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM)]",
}


@pytest.mark.parametrize("how", INHERITED)
def test_a_death_and_a_timeout_are_noticed_whatever_signals_are_blocked_or_ignored(script: MakeScript, how: str) -> None:
    done = script(f"""
        import os, signal, time
        {INHERITED[how]}

        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        def state():
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            return sorted(mask), signal.getsignal(signal.SIGCHLD), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)

        with gridengine.Executor(scheduler=gridengine.ProcessScheduler(1), timeout=0.5) as executor:
            print([int(one) if isinstance(one, int) else one for one in executor.submit(state).result()])
            print(type(executor.submit(die).exception()).__name__)
            print(type(executor.submit(time.sleep, 60).exception()).__name__)
            print(executor.submit(abs, -1).result())
    """).run()
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[[], 0, 0, 0]", "WorkerCrashed", "TimeoutError", "1"]


def block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})


def ignore() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("inherit", [block, ignore])
@pytest.mark.parametrize("how", ["killed", "late"])
def test_a_worker_that_inherits_such_signals_tells_of_deaths_and_timeouts(tmp_path: Path, inherit: object, how: str) -> None:
    office = Office(tmp_path, preexec=inherit)
    try:
        if how == "killed":
            office.assign(lambda _: os.kill(os.getpid(), signal.SIGKILL), None)
        else:
            office.assign(lambda _: signal.pause(), None, timeout=0.2)
        crashed, _ = office.until_heard(Crashed)
        assert isinstance(crashed, Crashed)
        ended = (CRASH, -signal.SIGKILL) if how == "killed" else (TIMEOUT, -signal.SIGTERM)
        assert (crashed.reason, crashed.exitcode) == ended
        office.server.send(office.peer, Stop())
        assert office.process.wait(30) == 0
    finally:
        office.close()


@pytest.mark.parametrize("inherit", [block, ignore])
def test_a_worker_that_inherits_such_signals_is_ended_by_sigterm(tmp_path: Path, inherit: object) -> None:
    office = Office(tmp_path, preexec=inherit)
    try:
        office.until_heard(Hello)
        office.process.terminate()
        assert office.process.wait(30) == 0
    finally:
        office.close()


# ---------------------------------------------------------------- threads and processes that calls leave running

LEAVING = """
        import multiprocessing, os, threading
        from concurrent.futures import ThreadPoolExecutor
        from pathlib import Path

        def later(folder):
            while not (folder / "go").exists():
                threading.Event().wait(0.01)
            print("the rest", flush=True)

        def thread(folder):
            threading.Thread(target=later, args=(folder,)).start()

        def executor(folder):
            global kept
            kept = ThreadPoolExecutor(2)
            kept.submit(later, folder)

        def process(folder):
            multiprocessing.get_context("fork").Process(target=later, args=(folder,)).start()

        def failing(folder):
            thread(folder)
            raise ValueError("this is told")

        folder = Path.cwd()
        scheduler = gridengine.ProcessScheduler(1)
"""


@pytest.mark.parametrize("target", ["thread", "executor", "process", "failing"])
def test_a_job_ends_with_the_threads_and_processes_that_it_leaves(script: MakeScript, target: str) -> None:
    done = script(f"""{LEAVING}
        job = gridengine.Job(target={target}, args=(folder,), scheduler=scheduler)
        job.start()
        job.join(0.5)
        alive = job.is_alive()
        (folder / "go").touch()
        job.join()
        again = gridengine.map(abs, [-1], scheduler=scheduler)
        print(alive, job.exitcode, again)
    """).run()
    code = 1 if target == "failing" else 0
    assert sorted(done.stdout.splitlines()) == [f"True {code} [1]", "the rest"]


def test_a_job_may_be_ended_while_it_waits_for_its_threads(script: MakeScript) -> None:
    done = script(f"""{LEAVING}
        job = gridengine.Job(target=thread, args=(folder,), scheduler=scheduler)
        job.start()
        job.join(0.5)
        job.terminate()
        job.join()
        print(job.exitcode)
    """).run()
    assert (done.stdout, done.stderr) == ("-15\n", "")


def test_threads_that_calls_leave_end_their_work_when_the_executor_is_closed(script: MakeScript) -> None:
    done = script(f"""{LEAVING}
        with gridengine.Executor(scheduler=scheduler) as executor:
            executor.submit(thread, folder).result()
        (folder / "go").touch()
        scheduler.close()
    """).run()
    assert (done.stdout, done.stderr) == ("the rest\n", "")


def test_threads_that_never_end_are_cut_off_after_the_grace_time_with_a_word(script: MakeScript) -> None:
    done = script(f"""{LEAVING}
        os.environ["GRIDENGINE_GRACE_SECONDS"] = "0.2"
        gridengine.map(thread, [folder], scheduler=scheduler)
    """).run()
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == "threads that calls have left running go on for more than 0.2 s, and are cut off\n"
