"""External programs as calls: their output, their failures, and what they leave running."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import LineProgram, Program, ProgramFailed, run_program
from gridengine.api.program import started
from tests.support.waiting import wait_until


def shell(text: str, **options: Any) -> Program:
    return Program(["bash", "-c", text], **options)


def test_a_program_reads_its_input_and_returns_its_output(scheduler: Any) -> None:
    done = run_program(["sort", "-n"], input="10\n9\n", scheduler=scheduler)
    assert done.args == ["sort", "-n"]
    assert (done.returncode, done.stdout, done.stderr) == (0, "9\n10\n", "")
    raw = run_program(["printf", r"\377"], text=False, scheduler=scheduler)
    assert raw.stdout == b"\xff"
    assert run_program(["printf", r"\377"], scheduler=scheduler).stdout == "\ufffd"


def test_each_call_adds_its_arguments_and_may_write_to_a_file_of_its_own(
    scheduler: Any, tmp_path: Path
) -> None:
    program = Program(["echo", "reads"], stdout="{0}.out", stderr="{0}.err", cwd=tmp_path)
    done = gridengine.map(program, ["a", "b"], scheduler=scheduler)
    assert [one.stdout for one in done] == [None, None]
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == {"a.out": "reads a\n", "a.err": "", "b.out": "reads b\n", "b.err": ""}


def test_a_program_with_files_has_a_folder_of_its_own_that_is_removed(
    scheduler: Any, tmp_path: Path
) -> None:
    (tmp_path / "big").write_text("copied")
    files = {"a": "text", "deep/b": b"bytes", "c": tmp_path / "big"}
    done = run_program(
        ["bash", "-c", "cat a deep/b c; pwd; touch made"], files=files, scheduler=scheduler
    )
    content, folder = done.stdout[:15], done.stdout[15:].strip()
    assert content == "textbytescopied"
    assert not Path(folder).exists()


def test_the_variables_of_a_program_come_on_top_of_the_calls(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    text = 'echo "$COLOUR $SHAPE"'
    done = gridengine.map(shell(text, env={"SHAPE": "round"}), ["-"], scheduler=scheduler)
    assert done[0].stdout == "red round\n"


@pytest.mark.parametrize(
    ("text", "options", "status", "tail"),
    [
        ("echo fine; echo broken >&2; exit 3", {}, 3, "broken"),
        ("echo only; exit 1", {}, 1, "only"),
        ("kill -9 $$", {}, -9, ""),
        ("seq 1000 >&2; exit 1", {}, 1, "\n".join(map(str, range(981, 1001)))),
        ("echo broken >&2; exit 4", {"stderr": "err"}, 4, "broken"),
    ],
)
def test_a_program_that_fails_tells_its_status_and_its_last_lines(
    scheduler: Any, tmp_path: Path, text: str, options: dict[str, str], status: int, tail: str
) -> None:
    with pytest.raises(ProgramFailed) as caught:
        gridengine.map(shell(text, cwd=tmp_path, **options), ["-"], scheduler=scheduler)
    error = caught.value
    assert isinstance(error, subprocess.CalledProcessError)
    assert (error.returncode, error.tail) == (status, tail)
    words = "killed by SIGKILL" if status == -9 else f"exit status {status}"
    said = f"; it wrote last:\n{tail}" if tail else ""
    assert str(error) == f"bash: {words}{said}"
    assert pickle.loads(pickle.dumps(error)).tail == tail


def test_a_program_that_may_fail_returns_its_status(scheduler: Any) -> None:
    assert run_program(["false"], check=False, scheduler=scheduler).returncode == 1


def test_a_program_that_is_not_there_says_where_it_was_looked_for(scheduler: Any) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program") as caught:
        run_program(["no-such-program"], scheduler=scheduler)
    assert f"looked for in PATH={os.environ['PATH']}" in caught.value.__notes__[0]
    assert "prologue=['module load ...']" in caught.value.__notes__[0]


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_background_processes_of_a_program_are_ended_and_not_waited_for(scheduler: Any) -> None:
    [done] = gridengine.map(shell("sleep 600 & echo $!"), ["-"], scheduler=scheduler, timeout=60)
    wait_until(lambda: not is_running(int(done.stdout)))


def test_a_program_that_runs_on_may_end_in_order(tmp_path: Path) -> None:
    text = "trap 'touch ended; exit' TERM; echo up; sleep 600 & wait"
    with started(["bash", "-c", text], (None, None), str(tmp_path), {}) as process:
        assert process.stdout is not None
        process.stdout.readline()
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize("end", ["timeout", "kill"])
def test_a_program_ends_with_its_call(scheduler: Any, tmp_path: Path, end: str) -> None:
    program = shell("echo $$ >pid; sleep 600; true", cwd=tmp_path)
    limit = {"timeout": 0.5} if end == "timeout" else {}
    job = gridengine.Job(target=program, scheduler=scheduler, **limit)
    job.start()
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    if end == "kill":
        job.kill()
    job.join()
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid))
    assert job.exitcode != 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Program("ls -l"), r"argv must be a list of words.*'ls -l'"),
        (lambda: Program([]), r"argv must be a list of words.*\[\]"),
        (lambda: Program(["head", 3]), "argv has 3, which is no text"),  # type: ignore[list-item]
        (lambda: Program(["ls"], files={"../x": ""}), "files has the name '../x'"),
        (lambda: Program(["ls"], files={"/x": ""}), "files has the name '/x'"),
        (lambda: Program(["ls"], files={"x": ""}, cwd="/tmp"), "has no cwd="),
        (lambda: LineProgram(["bc"], lines=0), "lines must be at least 1, not 0"),
    ],
)
def test_a_program_that_is_none_is_told_at_once(make: Any, words: str) -> None:
    with pytest.raises(gridengine.ConfigurationError, match=words):
        make()


def test_the_shell_of_subprocess_is_told_as_words() -> None:
    with pytest.raises(TypeError, match=r"'shell'; for a shell write .*\[\"bash\", \"-c\""):
        gridengine.run_program(["ls | wc"], shell=True)  # type: ignore[call-arg]


ECHO = "echo $$; while read -r line; do echo $line; echo $line; echo .; done"


def test_a_line_program_stays_up_between_calls(scheduler: Any) -> None:
    pids = LineProgram(["bash", "-c", "while read -r line; do echo $$; done"])
    with gridengine.ProcessScheduler(1) as one:
        assert len(set(gridengine.map(pids, range(20), scheduler=one))) == 1
    [pid] = {int(text) for text in gridengine.map(pids, [0], scheduler=scheduler)}
    assert is_running(pid)


def test_an_answer_of_several_lines_ends_by_its_number_or_by_a_word(scheduler: Any) -> None:
    three = LineProgram(["bash", "-c", ECHO.removeprefix("echo $$; ")], lines=3)
    assert gridengine.map(three, ["a", "b"], scheduler=scheduler) == ["a\na\n.", "b\nb\n."]
    ended = LineProgram(["bash", "-c", ECHO.removeprefix("echo $$; ")], until=".")
    assert gridengine.map(ended, ["a", "b"], scheduler=scheduler) == ["a\na", "b\nb"]


def test_a_line_program_that_ends_fails_its_call_and_the_next_starts_anew() -> None:
    fragile = LineProgram(
        ["bash", "-c", "while read -r n; do [ $n = 0 ] && echo bad >&2 && exit 7; echo $n; done"]
    )
    with gridengine.ProcessScheduler(1) as one:
        found = gridengine.map(fragile, [1, 0, 2], scheduler=one, reraise=False)
    assert [found[0], found[2]] == ["1", "2"]
    assert isinstance(found[1], ProgramFailed)
    assert str(found[1]) == "bash: exit status 7; it wrote last:\nbad"


def test_a_line_with_a_break_in_it_is_refused_and_the_program_goes_on(scheduler: Any) -> None:
    echo = LineProgram(["cat"])
    found = gridengine.map(echo, ["a", "b\nc", "d"], scheduler=scheduler, reraise=False)
    assert [found[0], found[2]] == ["a", "d"]
    assert "has a line break in it: 'b\\nc'" in str(found[1])


def test_a_line_program_ends_with_the_process_that_keeps_it() -> None:
    pids = LineProgram(["bash", "-c", "while read -r line; do echo $$; done"])
    with gridengine.ProcessScheduler(1) as one:
        [text] = gridengine.map(pids, [0], scheduler=one)
    wait_until(lambda: not is_running(int(text)))


def test_the_signal_that_ended_a_line_program_is_told(scheduler: Any) -> None:
    killed = LineProgram(["bash", "-c", "read -r line; kill -TERM $$"])
    with pytest.raises(ProgramFailed) as caught:
        gridengine.map(killed, ["x"], scheduler=scheduler)
    assert caught.value.returncode == -signal.SIGTERM
