"""The command line on a machine with nothing, with a real Grid Engine, and with one that is broken,
as a plain user.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import doctor
from tests.support.processes import completed
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import GridEngine

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that to a Grid Engine")


def test_a_machine_with_nothing_has_its_processes(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "PATH": "/nosuch",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    words = [sys.executable, "-m", "gridengine", "doctor", "--json"]
    done = completed(words, env=environment, cwd=tmp_path)
    found = {
        f"{one['of']} {one['check']}": one["state"] for one in json.loads(done.stdout)["findings"]
    }
    assert done.returncode == 0
    assert found["processes job"] == "ok"
    assert found["here encryption"] in ("ok", "slow")
    assert found["grid_engine environment"] == found["slurm commands"] == "absent"
    for name in ("grid_engine", "slurm"):
        asked = subprocess.run(
            [*words, "--scheduler", name],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            timeout=150,
            check=False,
        )
        assert asked.returncode == 1


@pytest.mark.grid_engine
def test_a_machine_with_grid_engine_is_described_and_a_job_connects(
    grid_engine: GridEngine,
) -> None:
    status, found = doctor(grid_engine, "--scheduler", "grid_engine")
    assert status == 0, found
    assert found.pop("here encryption")["state"] in ("ok", "slow")
    assert {one["state"] for one in found.values()} == {"ok"}
    assert "libdrmaa.so" in found["grid_engine library"]["text"]
    assert "all.q" in found["grid_engine queues"]["text"]
    assert (
        "smp ($pe_slots); Cores(n) uses smp" in found["grid_engine parallel environments"]["text"]
    )
    assert re.search(r"returned from \S+ in \d+\.\d s", found["grid_engine job"]["text"])


@pytest.mark.grid_engine
@pytest.mark.parametrize(
    ("environment", "check", "words", "remedy"),
    [
        (
            {"DRMAA_LIBRARY_PATH": "/nosuch/libdrmaa.so"},
            "library",
            "/nosuch/libdrmaa.so",
            "DRMAA_LIBRARY_PATH",
        ),
        (
            {"DRMAA_LIBRARY_PATH": "/etc/hostname"},
            "library",
            "/etc/hostname: file too short",
            "is it a DRMAA library",
        ),
        ({"SGE_QMASTER_PORT": "9"}, "master", "qmaster", "is sge_qmaster running?"),
        ({"SGE_CELL": "nosuch"}, "master", "nosuch", "nosuch/common/act_qmaster"),
        (
            {"PATH": "/nosuch", "SGE_ROOT": "/nosuch"},
            "commands",
            "qconf is neither",
            "correct SGE_ROOT",
        ),
        (
            {"GRIDENGINE_GRID_ENGINE_QUEUE": "all.q,nosuch.q@@rack"},
            "queues",
            "there is no queue nosuch.q, which GRIDENGINE_GRID_ENGINE_QUEUE names; there are: ",
            "correct GRIDENGINE_GRID_ENGINE_QUEUE",
        ),
        (
            {"GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT": "nosuch"},
            "parallel environments",
            "there is no parallel environment nosuch",
            "correct GRIDENGINE_GRID_ENGINE_PARALLEL_ENVIRONMENT",
        ),
        (
            {"GRIDENGINE_RUN_DIRECTORY": "/proc/runs"},
            "run directory",
            "/proc/runs",
            "GRIDENGINE_RUN_DIRECTORY",
        ),
    ],
)
def test_a_broken_part_is_named_with_a_remedy(
    grid_engine: GridEngine, environment: dict[str, str], check: str, words: str, remedy: str
) -> None:
    status, found = doctor(grid_engine, "--scheduler", "grid_engine", environment=environment)
    assert status == 1
    (broken,) = [
        one for one in found.values() if one["check"] == check and one["state"] == "broken"
    ]
    assert words in broken["text"]
    assert remedy in broken["remedy"] + broken["text"]


@pytest.mark.grid_engine
@as_root
def test_another_user_s_settings_file_is_left_out(grid_engine: GridEngine) -> None:
    folder = Path(tempfile.mkdtemp(dir=grid_engine.folder))
    folder.chmod(0o755)
    (folder / "gridengine.toml").write_text('[grid_engine]\nnative = "-S /tmp/theirs"\n')
    os.chown(folder / "gridengine.toml", pwd.getpwnam("nobody").pw_uid, -1)
    shown = (
        "from gridengine.settings.values import settings; "
        "print(repr(settings().sites['grid_engine'].native))"
    )
    done = grid_engine.run(f"import os; os.chdir({str(folder)!r})\n{shown}")
    assert done.stdout == "''\n"
    assert (
        f"the settings in {folder}/gridengine.toml are left out: it belongs to another user"
        in done.stderr
    )
    os.chown(folder / "gridengine.toml", 0, 0)
    assert (
        grid_engine.run(f"import os; os.chdir({str(folder)!r})\n{shown}").stdout
        == "'-S /tmp/theirs'\n"
    )


@pytest.mark.grid_engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_added_workers_leave_the_queue_when_their_command_ends(
    grid_engine: GridEngine, number: signal.Signals
) -> None:
    words = ["gridengine", "up", "gone.json", "-n", "2", "--scheduler", "grid_engine"]
    script = f"{GONE}sys.argv[:] = {words!r}\nfrom gridengine.cli.main import main\nmain()"
    adding = grid_engine.start(
        script, environment={"GRIDENGINE_GRID_ENGINE_QUEUE": "closed.q", "PYTHONUNBUFFERED": "1"}
    )
    assert adding.stdout is not None
    asked = re.search(r"(\d+)\.1, \1\.2$", adding.stdout.readline())
    assert asked is not None
    assert grid_engine.knows(asked[1])
    adding.send_signal(number)
    adding.wait(120)
    wait_until(lambda: not grid_engine.knows(asked[1]))


GONE = """
import os, sys
from pathlib import Path
from gridengine.wire.connection_file import Connection
key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
times, keys = (0.2, 1.0, 1.0, 1.0), (key, key, key)
gone = Connection("gone", ("tcp://127.0.0.1:9",), 1, "0", "3.11", *times, 1000, *keys)
gone.save(Path("gone.json"))
"""


@pytest.mark.grid_engine
def test_a_dry_run_of_up_shows_the_whole_submission_and_submits_nothing(
    grid_engine: GridEngine,
) -> None:
    script = """
import sys
from pathlib import Path
from gridengine.wire.connection_file import Connection
seconds = 2, 60, 30, 5
other = Connection("other", ("tcp://127.0.0.1:9",), 1, "0", "3.11", *seconds, 1000, "a", "b", "c")
other.save(Path("connection.json"))
asked = "--cores 2 --memory 1 --time 60"
sys.argv[:] = f"gridengine up . -n 3 --scheduler grid_engine {asked} --dry".split()
from gridengine.cli.main import main
main()
"""
    output = grid_engine.run(script).stdout
    assert "count: 3\n" in output
    assert "nativeSpecification: -l h_vmem=512M,h_rt=00:02:00 -pe smp 2\n" in output
    assert re.search(
        r"^exec \S+ -P -m gridengine\.worker /\S+/connection\.json$", output, flags=re.MULTILINE
    )
