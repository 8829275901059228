"""What starts a dispatcher again when it is killed: real processes, and the signals they get."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SUPERVISOR = """
    import subprocess, sys
    from gridengine.dispatcher.standalone import process as supervisor
    supervisor.FIRST_PAUSE_SECONDS = float(sys.argv[1])
    sys.exit(supervisor.supervise(lambda: subprocess.Popen([sys.executable, "-c", sys.argv[2]])))
"""
CHILD = """
    import os, pathlib, signal, sys
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    turns = pathlib.Path("turns")
    turn = len(turns.read_text()) if turns.exists() else 0
    turns.write_text("x" * (turn + 1))
"""


def supervise(folder: Path, child: str, pause: float = 0.01) -> subprocess.Popen[str]:
    words = [textwrap.dedent(SUPERVISOR), str(pause), textwrap.dedent(CHILD) + child]
    return subprocess.Popen(
        [sys.executable, "-c", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    )


def turns(folder: Path) -> int:
    return len((folder / "turns").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_a_signal_to_the_supervisor_is_passed_on_and_the_end_waited_for(
    tmp_path: Path, number: signal.Signals
) -> None:
    child = (  # one that comes before `signal.pause()` would be lost
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\n"
        f"print('there', flush=True)\nsignal.sigwait([{int(number)}])\nprint('told')\nsys.exit(1)"
    )
    process = supervise(tmp_path, child)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "told\n"
    assert process.returncode == 1
    assert turns(tmp_path) == 1


def test_a_supervisor_that_waits_to_start_one_again_ends_when_told(tmp_path: Path) -> None:
    process = supervise(
        tmp_path,
        "print('there', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
        pause=3600.0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert turns(tmp_path) == 1
