"""A batch system of a site's own: one class of words, and an entry point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.places import ROOT
from tests.support.tiny_batch import install
from tests.support.waiting import wait_until

SCRIPT = """
import json, os, sys, time
from pathlib import Path
import gridengine


def where(index, hold):
    while hold and not Path(hold).exists():
        Path(f"began.{os.getpid()}").touch()
        time.sleep(0.02)
    return index, os.getppid()


def jobs():
    return sorted(path.name for path in Path("system").glob("[0-9]*.*"))


def lasting():
    return sum(not (Path("system", job) / "status").exists() for job in jobs())


hold = sys.argv[1] if len(sys.argv) > 1 else ""
scheduler = gridengine.current_scheduler()
found = gridengine.map(where, range(8), [hold] * 8, chunksize=1)
scheduler.close()
told = {"results": [index for index, _ in found], "workers": len({pid for _, pid in found})}
print(json.dumps({**told, "scheduler": repr(scheduler), "jobs": len(jobs()), "left": lasting()}))
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder with a script, and a batch system below it that an installed package names."""
    system = tmp_path / "system"
    system.mkdir()
    install(system, "tiny = tests.support.tiny_batch:TinyScheduler")
    (tmp_path / "script.py").write_text(SCRIPT)
    yield tmp_path
    for file in system.glob("*/pid"):
        if file.read_text().strip() and psutil.pid_exists(int(file.read_text())):
            os.killpg(int(file.read_text()), signal.SIGKILL)


def environment(site: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{site / 'system'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{site / 'system'}:{ROOT}",
        "GRIDENGINE_SCHEDULER": "tiny",
        "GRIDENGINE_RUN_DIRECTORY": str(site / "runs"),
        "GRIDENGINE_POLL_SECONDS": "0.5",
        "GRIDENGINE_MAX_WORKERS": "2",
        "GRIDENGINE_PROGRESS": "no",
    }


def start(site: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=site,
        env=environment(site),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.promise
def test_calls_run_in_its_jobs_by_the_name_of_its_entry_point_and_none_is_left(site: Path) -> None:
    output, errors = start(site, "script.py").communicate(timeout=100)
    told = json.loads(output or errors)
    assert told["results"] == list(range(8))
    assert 1 <= told["workers"] <= told["jobs"] == 2
    assert told["scheduler"] == "TinyScheduler()"
    wait_until(lambda: all((job / "status").exists() for job in (site / "system").glob("*.?")))


def test_jobs_of_a_script_that_is_killed_are_ended(site: Path) -> None:
    script = start(site, "script.py", "go")
    wait_until(lambda: list(site.glob("began.*")))
    script.kill()
    script.communicate()
    jobs = list((site / "system").glob("*.?"))
    assert jobs
    wait_until(lambda: all((job / "status").exists() for job in jobs), 45.0)


def test_doctor_names_its_commands_and_tries_a_job_there(site: Path) -> None:
    words = ("-m", "gridengine", "doctor", "--scheduler", "tiny", "--json")
    output, errors = start(site, *words).communicate(timeout=100)
    found = {f"{one['of']} {one['check']}": one for one in json.loads(output or errors)["findings"]}
    assert found["tiny job"]["state"] == "ok"
    assert str(site / "system" / "look") in found["tiny commands"]["text"]
