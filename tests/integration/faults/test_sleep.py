"""A machine that sleeps: all processes of a run stop, while the clock goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import stop_process, wait_until

SUPPORT = Path(__file__).parents[2] / "support"
LEASE_SECONDS = 2
SCRIPT = f"""
import sys, time
from pathlib import Path
import gridengine
sys.path.append({str(SUPPORT)!r})
kind, folder = sys.argv[1], Path(sys.argv[2])

def call(number):
    with (folder / str(number)).open("a") as file:
        file.write("made")
    time.sleep(0.05)
    return number

if kind == "tcp":
    from tcp_scheduler import TcpScheduler as Kind
else:
    from gridengine import ProcessScheduler as Kind
with Kind(2) as scheduler:
    calls = gridengine.map(call, range(200), scheduler=scheduler, retries=0, timeout=60)
assert calls == list(range(200))
assert {{one.read_text() for one in folder.iterdir()}} == {{"made"}}
"""


def stop(process: psutil.Process) -> list[psutil.Process]:
    """Stop a process and those below it, which may start others meanwhile; return them."""
    stopped: list[psutil.Process] = []
    while found := [
        one for one in (process, *process.children(recursive=True)) if one not in stopped
    ]:
        for one in found:
            stop_process(one.pid)
        stopped += found
    return stopped


@pytest.mark.parametrize("kind", ["processes", "tcp"])
@pytest.mark.parametrize("first", ["script", "workers"])
def test_after_a_sleep_longer_than_a_lease_all_goes_on_and_no_call_is_made_twice(
    kind: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_LEASE_SECONDS", str(LEASE_SECONDS))
    monkeypatch.setenv("GRIDENGINE_BEAT_SECONDS", "0.5")
    script = subprocess.Popen([sys.executable, "-c", SCRIPT, kind, str(tmp_path)])
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) > 8 or script.poll() is not None)
        stopped = stop(psutil.Process(script.pid))
        time.sleep(2 * LEASE_SECONDS + 1)  # asleep
        for one in stopped if first == "script" else reversed(stopped):
            one.resume()
        assert script.wait(120) == 0
    finally:
        script.kill()
