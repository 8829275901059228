"""`map` and its kin on this machine's processes, used as a user would."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import WorkerCrashed
from tests.support.script_driver import (
    MakeScript,
    Script,
    at_terminal,
    read_all,
    read_until,
    screen,
)
from tests.support.waiting import wait_until


def square(x: int) -> int:
    return x * x


class TwoPart(Exception):
    def __init__(self, left: int, right: str) -> None:
        super().__init__(f"{left} and {right}")
        self.left = left
        self.right = right


def fail_at_five(x: int) -> int:
    if x == 5:
        raise TwoPart(x, "five")  # the failing line
    return x


def die_at_five(x: int) -> int:
    if x == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def leave_at_five(x: int) -> int:
    if x == 5:
        sys.exit(7)
    return x


# ------------------------------------------------------------------ results


def test_many_tiny_calls_are_all_there(scheduler: gridengine.ProcessScheduler) -> None:
    assert gridengine.map(square, range(100_000), scheduler=scheduler) == [
        x * x for x in range(100_000)
    ]


@pytest.mark.promise
def test_two_threads_map_side_by_side(scheduler: gridengine.ProcessScheduler) -> None:
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        results[number] = gridengine.map(square, range(number, number + 500), scheduler=scheduler)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [x * x for x in range(number, number + 500)] for number in (0, 1000)}


# ------------------------------------------------------------------ failures


@pytest.mark.promise
@pytest.mark.parametrize(
    ("f", "error"),
    [(fail_at_five, TwoPart), (die_at_five, WorkerCrashed), (leave_at_five, SystemExit)],
    ids=["raises", "dies", "exits"],
)
def test_without_reraise_a_bad_call_spoils_no_other(
    f: Callable[[int], int], error: type, scheduler: gridengine.ProcessScheduler
) -> None:
    results: list[Any] = gridengine.map(f, range(10), scheduler=scheduler, reraise=False)
    assert isinstance(results.pop(5), error)
    assert results == [0, 1, 2, 3, 4, 6, 7, 8, 9]


# ------------------------------------------------------------------ scripts


def test_a_folder_whose_name_is_no_text_is_one_like_any_other(
    script: MakeScript, tmp_path: Path
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "helper.py").write_text("def triple(x):\n    return 3 * x\n")
    run = script(
        """
        import os, sys
        sys.path.insert(0, os.getcwd())
        import helper

        def work(x):
            return helper.triple(x), os.path.basename(os.getcwdb())

        print(gridengine.map(work, [1], scheduler=gridengine.ProcessScheduler(1)))
        """,
        folder=folder,
    ).run()
    assert run.stdout == f"{[(3, b'caf' + bytes([0xE9]))]}\n", run.stderr


def test_a_working_directory_that_was_removed_is_an_error_that_names_it(
    script: MakeScript, tmp_path: Path
) -> None:
    run = script(
        """
        import os
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        try:
            gridengine.map(abs, [-1], scheduler=gridengine.ProcessScheduler(1))
        except gridengine.ConfigurationError as error:
            print(error)
        os.chdir("/")
        print(gridengine.map(abs, [-1], scheduler=gridengine.ProcessScheduler(1)))
        """
    ).run()
    lines = run.stdout.splitlines()
    assert "working directory" in lines[0], run.stderr
    assert "os.chdir" in lines[1]
    assert lines[2] == "[1]"


@pytest.mark.promise
def test_a_notebook_may_redefine_its_functions_and_classes(script: MakeScript) -> None:
    run = script(
        """
        import sys, types

        # As IPython has it: cells are run in a module of that name without a file.
        notebook = types.ModuleType("__main__")
        sys.modules["__main__"] = notebook

        def cell(source):
            exec(compile(source, "<cell>", "exec"), vars(notebook))

        cell("import gridengine; scheduler = gridengine.ProcessScheduler(2)")
        cell("def helper(x): return x + 1")
        cell("class Box:\\n    def __init__(self, x): self.x = helper(x)")
        cell("def f(x): return Box(x)")
        cell("first = gridengine.map(f, [1], scheduler=scheduler)")
        cell("def helper(x): return x + 100")
        cell("class Box:\\n    def __init__(self, x): self.y = helper(x)")
        cell("second = gridengine.map(f, [1], scheduler=scheduler)")
        cell("print(first[0].x, second[0].y, type(second[0]) is Box, type(first[0]) is Box)")
        cell("print(gridengine.map(lambda box: box.y, second, scheduler=scheduler))")
        """
    ).run()
    assert (run.stdout, run.stderr) == ("2 101 True False\n[101]\n", "")


def test_a_script_from_standard_input_works(script: MakeScript) -> None:
    source = (
        "import gridengine\ndef f(x): return x + 1\nprint(gridengine.map(f, range(3), "
        "scheduler=gridengine.ProcessScheduler(2)))\n"
    )
    run = dataclasses.replace(script(""), command=[sys.executable, "-"]).run(input=source)
    assert (run.stdout, run.stderr) == ("[1, 2, 3]\n", "")


@pytest.mark.promise
def test_a_script_without_a_scheduler_uses_the_best_there_is(script: MakeScript) -> None:
    run = script("print(gridengine.map(abs, [-1, -2]), gridengine.map(abs, [-3]))").run()
    assert (run.stdout, run.stderr) == ("[1, 2] [3]\n", "")


@pytest.mark.parametrize(
    ("ending", "status", "words"),
    [
        ("", 0, ""),
        ("scheduler.close()", 0, ""),
        ("raise LookupError('the end')", 1, "LookupError: the end"),
        ("raise SystemExit(4)", 4, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import os; os._exit(5)", 5, ""),
    ],
    ids=["normal", "closed", "exception", "exit", "SIGTERM", "SIGKILL", "hard exit"],
)
def test_after_any_end_of_the_script_no_process_and_no_file_is_left(
    ending: str, status: int, words: str, script: MakeScript
) -> None:
    one = script(
        f"""
        import time
        scheduler = gridengine.ProcessScheduler(2)
        gridengine.map(abs, range(10), scheduler=scheduler)
        results = gridengine.imap(time.sleep, [600, 600], scheduler=scheduler)
        {ending}
        """
    )
    run = one.run()
    assert run.returncode == status, run.stderr
    assert words in run.stderr
    if not words:
        assert run.stderr == ""
    assert one.leftovers() == []


@pytest.mark.promise
@pytest.mark.parametrize("end", ["", "scheduler.close()"])
def test_a_script_that_ctrl_c_has_ended_dies_of_it_whatever_is_imported_at_its_exit(
    script: MakeScript, end: str
) -> None:
    one = script(
        f"""
        import atexit, collections, os, signal
        scheduler = gridengine.ProcessScheduler(2)
        executor = gridengine.Executor(scheduler=scheduler)
        executor.submit(abs, 1).result()
        {end}
        atexit.register(collections.namedtuple, "Pair", "left right")  # compiles a text
        os.kill(os.getpid(), signal.SIGINT)
        """
    )
    assert one.run().returncode == -signal.SIGINT


@pytest.mark.promise
def test_ctrl_c_at_the_terminal_ends_everything_and_reaches_the_user(
    script: MakeScript, tmp_path: Path
) -> None:
    one = script(
        """
        import time
        from pathlib import Path

        def work(x):
            Path(f"started-{x}").touch()
            time.sleep(600)

        try:
            two = lambda: gridengine.ProcessScheduler(2)
            gridengine.map(work, range(4), scheduler=two, chunksize=1)
        except KeyboardInterrupt as error:
            print("interrupted", *(type(result).__name__ for result in error.results))
            raise
        """
    )
    with at_terminal(one) as (process, terminal):
        wait_until(lambda: (tmp_path / "started-0").exists() and (tmp_path / "started-1").exists())
        os.write(terminal, b"\x03")  # the terminal sends SIGINT to all of its foreground group
        printed = read_all(terminal)
        assert process.wait(120) == -signal.SIGINT
    assert "interrupted Cancelled Cancelled Cancelled Cancelled" in printed
    assert printed.count("Traceback") == 1
    last, note = printed.rstrip().splitlines()[-2:]
    assert last == "KeyboardInterrupt"
    assert "`results` of this exception has the results of 0 of 4 calls" in note
    assert one.leftovers() == []
    assert not (tmp_path / "started-2").exists()


@pytest.mark.promise
def test_a_map_on_a_busy_scheduler_has_its_share_at_once() -> None:
    with gridengine.ProcessScheduler(max_workers=1) as scheduler:
        begun = threading.Event()
        ends: list[BaseException] = []

        def keep_busy() -> None:
            try:
                for _ in gridengine.imap(
                    time.sleep, [0.01] * 10_000, scheduler=scheduler, chunksize=100
                ):
                    begun.set()
            except gridengine.GridEngineError as error:
                ends.append(error)

        other = threading.Thread(target=keep_busy)
        other.start()
        begun.wait()
        assert gridengine.map(square, range(100), scheduler=scheduler, chunksize=1) == [
            x * x for x in range(100)
        ]
        with gridengine.Executor(scheduler=scheduler) as executor:
            assert list(executor.map(square, range(100))) == [x * x for x in range(100)]
        assert other.is_alive(), "it had to wait for the others' end"
    other.join()
    assert len(ends) == 1


UNTIL_SEEN = """
        import logging, time
        from pathlib import Path
        from gridengine import imap, map

        def until_seen(x):
            while not Path("seen").exists():
                time.sleep(0.01)
"""


def run_until_seen(script: Script, *words: str) -> str:
    """Run a script whose calls wait until all these words have stood on its terminal; return all
    that is written there.
    """
    printed = ""
    with at_terminal(script) as (process, terminal):
        for one in words:
            if one not in printed:
                printed += read_until(one, terminal)
        (script.folder / "seen").touch()
        printed += read_all(terminal)
        assert process.wait(120) == 0
    return printed


def test_output_of_calls_and_log_lines_stand_above_the_bar(script: MakeScript) -> None:
    one = script(
        f"""{UNTIL_SEEN}
        logging.basicConfig(level=logging.INFO)
        two = gridengine.ProcessScheduler(2)

        def chatty(x):
            time.sleep(0.1)
            print("printed", x)
            if x > 10:
                until_seen(x)

        for _ in imap(chatty, range(40), scheduler=two):
            logging.info('got')
        logging.info("the end")
        """
    )
    rows = screen(run_until_seen(one, " of 40 calls done"))
    assert sorted(row for row in rows if row.startswith("printed")) == sorted(
        f"printed {x}" for x in range(40)
    )
    assert "INFO:root:the end" in rows
    assert not [row for row in rows if " of 40 calls done" in row]
