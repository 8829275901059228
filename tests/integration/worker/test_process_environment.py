"""What calls find around them in their process: signals, threads, flags, and what `multiprocessing`
hands to a child.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gridengine.wire.messages import Hello
from tests.support.processes import completed
from tests.support.script_driver import ROOT, MakeScript, Script
from tests.support.worker_driver import WorkerDriver

# ---------------------------------------------------------------- signals

INHERITED = {
    "blocked": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM})"
    ),
    "ignored": (
        "[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGCHLD, "
        "signal.SIGTERM, signal.SIGALRM)]"
    ),
}


@pytest.mark.promise
@pytest.mark.parametrize("how", INHERITED)
def test_a_death_and_a_timeout_are_noticed_whatever_signals_are_blocked_or_ignored(
    script: MakeScript, how: str
) -> None:
    done = script(f"""
        import os, signal, time
        {INHERITED[how]}

        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        def state():
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            numbers = signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM
            return sorted(mask), *map(signal.getsignal, numbers)

        with gridengine.Executor(scheduler=gridengine.ProcessScheduler(1)) as executor:
            found = executor.submit(state).result()
            print([int(one) if isinstance(one, int) else one for one in found])
            print(type(executor.submit(die).exception()).__name__)
            limited = executor.with_options(timeout=0.2)
            print(type(limited.submit(signal.pause).exception()).__name__)
            print(executor.submit(abs, -1).result())
    """).run()
    [warning] = done.stderr.splitlines()
    assert "the call of die is run again (attempt 2 of 3)" in warning
    assert done.stdout.splitlines() == ["[[], 0, 0, 0]", "WorkerCrashed", "TimeoutError", "1"]


def block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})


def ignore() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("inherit", [block, ignore])
def test_a_worker_that_inherits_such_signals_is_ended_by_sigterm(
    tmp_path: Path, inherit: object
) -> None:
    driver = WorkerDriver(tmp_path, preexec=inherit)
    try:
        driver.wait_for(Hello)
        driver.process.terminate()
        assert driver.exit_status() == 0
    finally:
        driver.close()


# ---------------------------------------------------------------- threads and processes that calls
# leave running

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
def test_a_job_ends_with_the_threads_and_processes_that_it_leaves(
    script: MakeScript, target: str
) -> None:
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


@pytest.mark.promise
def test_threads_that_calls_leave_end_their_work_when_the_executor_is_closed(
    script: MakeScript,
) -> None:
    done = script(f"""{LEAVING}
        with gridengine.Executor(scheduler=scheduler) as executor:
            executor.submit(thread, folder).result()
        (folder / "go").touch()
        scheduler.close()
    """).run()
    assert (done.stdout, done.stderr) == ("the rest\n", "")


@pytest.mark.promise
def test_threads_that_never_end_are_cut_off_after_the_grace_time_with_a_word(
    script: MakeScript,
) -> None:
    done = script(f"""{LEAVING}
        os.environ["GRIDENGINE_GRACE_SECONDS"] = "0.2"
        gridengine.map(thread, [folder], scheduler=scheduler)
    """).run()
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == (
        "threads or exit handlers that calls have left go on for more than 0.2 s, and are cut off\n"
    )


# ---------------------------------------------------------------- flags of the interpreter

FLAGS = ["-O", "-OO", "-b", "-B", "-E", "-I", "-s", "-W error::UserWarning", "-X dev", "-X utf8"]

LOOK = """
        import sys

        def look():
            names = [name for name in dir(sys.flags) if name[0] != "_" and name != "safe_path"]
            flags = {name: getattr(sys.flags, name) for name in names}
            values = {name: value for name, value in flags.items() if not callable(value)}
            return values, sys.warnoptions, sys._xoptions, __debug__

        def there():
            one = gridengine.ProcessScheduler
            with gridengine.Executor(scheduler=one, max_workers=1) as executor:
                return executor.submit(look).result()
"""


@pytest.fixture(autouse=True)
def _no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONDEVMODE", "PYTHONWARNINGS", "PYTHONOPTIMIZE"):
        monkeypatch.delenv(name, raising=False)


def with_flags(script: Script, flags: str) -> Script:
    python, *arguments = script.command
    return replace(script, command=[python, *flags.replace("-W ", "-W").split(), *arguments])


@pytest.mark.parametrize("flags", FLAGS)
def test_workers_have_the_flags_of_the_interpreter(script: MakeScript, flags: str) -> None:
    made = script(f"""{LOOK}
        print(there() == look() or (there(), look()))
    """)
    done = with_flags(made, flags).run()
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(("flags", "times"), [("-I", 0), ("-E", 0), ("-O", 2)])
def test_workers_import_from_pythonpath_only_where_the_interpreter_does(
    script: MakeScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, times: int
) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "sitecustomize.py").write_text("print('planted code')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "planted"))
    made = script(f"""{LOOK}
        there()
    """)
    done = with_flags(made, flags).run()
    assert (done.stdout, done.stderr) == ("planted code\n" * times, "")


def test_workers_import_from_a_path_that_the_script_has_added(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nsys.path += {[str(ROOT), *filter(None, sys.path)]!r}\n" + FIND)
    done = completed([sys.executable, "-I", "-S", path], cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1\n", "")


FIND = """
import gridengine
with gridengine.Executor(scheduler=gridengine.ProcessScheduler, max_workers=1) as executor:
    print(executor.submit(lambda: sys.flags.no_site).result())
"""


def test_nothing_of_ours_is_left_to_the_collector(script: MakeScript) -> None:
    made = script("""
        def push(controller):
            controller.push(1)
            print("printed")

        with gridengine.ProcessScheduler(2) as scheduler:
            print(sum(gridengine.map(abs, range(10), scheduler=scheduler)))
            print(*gridengine.imap(abs, [-1], scheduler=scheduler))
            with gridengine.Executor(scheduler=scheduler) as executor:
                with gridengine.share([1, 2]) as shared:
                    print(executor.submit(len, shared).result())
            with gridengine.Pool(scheduler=scheduler) as pool:
                print(pool.apply(abs, (-1,)))
            job = gridengine.Job(target=push, scheduler=scheduler)
            job.start()
            job.join()
        print(gridengine.map(abs, [-1], scheduler=gridengine.ProcessScheduler(1)))
    """)
    done = with_flags(made, "-X dev -W error::ResourceWarning").run()
    assert done.stderr == ""
    assert done.returncode == 0
