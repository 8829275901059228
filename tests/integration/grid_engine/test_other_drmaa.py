"""DRMAA libraries of other systems than Grid Engine, by one that is built here: see
`tests/support/drmaa_library.c`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from gridengine.resources import ZERO, Cores, Memory, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.grid_engine.drmaa_systems import native_request, system_of
from gridengine.schedulers.grid_engine.request import Request
from gridengine.settings.values import Settings
from tests.support.script_driver import MakeScript, Script
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Slurm

SOURCE = Path(__file__).parents[2] / "support" / "drmaa_library.c"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DRMAA library that speaks to no Grid Engine."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, cc: apt-get install gcc libc6-dev")
    built = tmp_path_factory.mktemp("drmaa") / "libdrmaa.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(SOURCE)], check=True)
    return built


@dataclass(frozen=True)
class Done:
    """What a script said, and what was asked of the library."""

    value: object
    errors: str
    record: list[str]


@dataclass(frozen=True)
class Site:
    """Scripts on a machine whose one batch system is that library's."""

    make: MakeScript
    folder: Path
    library: Path

    def script(self, source: str, **variables: str) -> Script:
        given = {
            "DRMAA_LIBRARY_PATH": str(self.library),
            "TEST_DRMAA_RECORD": str(self.folder / "record"),
            "GRIDENGINE_RUN_DIRECTORY": str(self.folder / "runs"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            **variables,
        }
        return self.make(f"import json, logging, os, time\nos.environ.update({given!r})\n" + source)

    def run(self, source: str, **variables: str) -> Done:
        script = self.script(source, **variables)
        done = script.run()
        assert done.returncode == 0, done.stderr
        assert script.leftovers() == []
        return Done(json.loads(done.stdout.splitlines()[-1]), done.stderr, self.record())

    def record(self) -> list[str]:
        path = self.folder / "record"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def site(script: MakeScript, tmp_path: Path, library: Path) -> Site:
    return Site(script, tmp_path, library)


MAP = """
def square(x):
    time.sleep(0.05)
    return x * x

with gridengine.GridEngineScheduler({given}) as scheduler:
    options = dict(chunksize=1, scheduler=scheduler, resources={resources})
    print(json.dumps(gridengine.map(square, range(8), **options)))
"""


def mapped(given: str = "max_workers=2", resources: str = "None") -> str:
    return MAP.format(given=given, resources=resources)


SQUARES = [x * x for x in range(8)]


def test_cluster_tasks_that_have_ended_keep_none_of_the_others_from_being_deleted(
    site: Site,
) -> None:
    done = site.run(mapped("max_workers=3, jobs_per_worker=2"))
    assert done.value == SQUARES
    assert "still tries to delete" not in done.errors
    assert any(line.startswith("ended") for line in done.record)


def test_the_process_that_speaks_drmaa_does_not_die_of_what_announces_the_end_of_a_job(
    site: Site,
) -> None:
    source = """
import signal
import psutil

if __name__ == "__main__":
    with gridengine.GridEngineScheduler() as scheduler:
        before = gridengine.map(abs, [-1], scheduler=scheduler)
        [speaker] = [
            one for one in psutil.Process().children()
            if any("drmaa_process" in word for word in one.cmdline())
        ]
        speaker.send_signal(signal.SIGUSR2)
        options = dict(scheduler=scheduler, resources=gridengine.Memory(1))
        print(json.dumps(before + gridengine.map(abs, [-2], **options)))
"""
    done = site.run(source)
    assert done.value == [1, 2]
    assert "died" not in done.errors


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def wait_for_ended_tasks(script: Script) -> None:
    """Wait until tasks have ended that nobody has asked for since: the library's children, not
    reaped.
    """
    called = [
        process
        for process in script.processes()
        if any("drmaa_process" in word for word in words_of(process))
    ]
    # What it has just forked, for a task, is called as itself.
    speaker = min(called, key=lambda process: process.create_time())
    wait_until(lambda: sum(one.status() == psutil.STATUS_ZOMBIE for one in speaker.children()) >= 4)


@pytest.mark.parametrize("gently", [True, False])
def test_a_script_that_is_interrupted_or_killed_leaves_no_task_although_some_have_ended(
    site: Site, gently: bool
) -> None:
    source = """
def work(x):
    time.sleep(0.01 if x < 4 else 600)
    return x

if __name__ == "__main__":
    with gridengine.GridEngineScheduler(max_workers=6, jobs_per_worker=1) as scheduler:
        for value in gridengine.imap(work, range(8), scheduler=scheduler):
            print(value, flush=True)
"""
    script = site.script(source, GRIDENGINE_POLL_SECONDS="600")
    with script.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert [process.stdout.readline() for _ in range(4)] == [f"{x}\n" for x in range(4)]
            wait_for_ended_tasks(script)
            process.send_signal(signal.SIGINT if gently else signal.SIGKILL)
            process.communicate(timeout=120)
        finally:
            process.kill()
    assert script.leftovers() == []
    assert any(line.startswith("terminate") for line in site.record())


@pytest.mark.parametrize(
    ("given", "resources", "words"),
    [
        (
            "queue='long', h_vmem='2G', h_rt='1:00:00'",
            "None",
            "--time=01:00:00 --mem-per-cpu=2048 --partition=long",
        ),
        (
            "",
            "gridengine.Cores(2) & gridengine.Memory(1) & gridengine.WTime(600)",
            "--cpus-per-task=2 --mem=1024 --time=00:12:00",
        ),
        ("native='--exclusive --mem=1G'", "None", "--exclusive --mem=1024"),
    ],
)
def test_a_slurm_is_asked_in_its_own_words(
    site: Site, given: str, resources: str, words: str
) -> None:
    done = site.run(mapped(f"max_workers=1, {given}", resources))
    assert done.value == SQUARES
    assert sorted(done.record[0].split()) == sorted(["submit", "--no-requeue", *words.split()])


def test_a_dry_run_shows_the_words_of_the_system_that_the_library_names(site: Site) -> None:
    done = site.run("""
plan = gridengine.GridEngineScheduler(queue="long").dry_run(gridengine.Cores(2))
print(json.dumps(plan.request["nativeSpecification"]))
""")
    assert done.value == "--no-requeue --partition=long --cpus-per-task=2"
    assert done.record == []


REFUSALS = """
def refusal(resources=None, **given):
    try:
        with gridengine.GridEngineScheduler(max_workers=1, **given) as scheduler:
            return gridengine.map(abs, [-1], scheduler=scheduler, resources=resources)
    except gridengine.ConfigurationError as error:
        return str(error)
"""


def test_what_the_system_has_no_option_for_is_refused_by_name(site: Site) -> None:
    done = site.run(
        REFUSALS
        + "print(json.dumps([refusal(parallel_environment='smp 2'), refusal(s_vmem='1G')]))"
    )
    assert isinstance(done.value, list)
    for text, said in zip(done.value, ["parallel_environment='smp 2'", "s_vmem='1G'"], strict=True):
        assert f"{said} cannot be said to SLURM 22.05.8" in text


def test_another_system_is_given_what_native_says_and_nothing_else(site: Site) -> None:
    done = site.run(
        REFUSALS
        + """
held = gridengine.Cores(2) & gridengine.Memory(1)
told = [refusal(native="-l mem=1gb"), refusal(queue="long"), refusal(gridengine.Memory(1))]
told.append(refusal(gridengine.Memory(0.5), native="-l nodes=1:ppn=2", worker_resources=held))
print(json.dumps(told))
""",
        TEST_DRMAA_SYSTEM="Torque 6.1.2",
        TEST_DRMAA_NATIVE="any",
    )
    assert isinstance(done.value, list)
    assert (done.value[0], done.value[3]) == ([1], [1])
    assert "queue='long' cannot be said to Torque 6.1.2" in done.value[1]
    assert "Memory(1) cannot be said to Torque 6.1.2" in done.value[2]
    assert [line for line in done.record if line.startswith("submit")] == [
        "submit -l mem=1gb",
        "submit -l nodes=1:ppn=2",
    ]


def test_a_library_is_named_by_an_argument_by_a_variable_or_by_the_user_s_settings(
    site: Site,
) -> None:
    nowhere = {"DRMAA_LIBRARY_PATH": "/nowhere/libdrmaa.so"}
    assert (
        site.run(mapped(f"max_workers=1, drmaa_library={str(site.library)!r}"), **nowhere).value
        == SQUARES
    )
    assert (
        site.run(
            mapped("max_workers=1"), **nowhere, GRIDENGINE_DRMAA_LIBRARY=str(site.library)
        ).value
        == SQUARES
    )
    settings = site.folder / "config" / "gridengine" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'drmaa_library = "{site.library}"\n')
    assert site.run(mapped("max_workers=1"), **nowhere).value == SQUARES


def test_two_libraries_are_used_side_by_side(site: Site) -> None:
    second = site.folder / "libdrmaa-second.so"
    shutil.copy(site.library, second)
    done = site.run(f"""
other = {str(second)!r}
one = gridengine.GridEngineScheduler(max_workers=1, native="--qos=one")
two = gridengine.GridEngineScheduler(max_workers=1, native="--qos=two", drmaa_library=other)
with one as first, two as second:
    print(json.dumps([gridengine.map(abs, [-1], scheduler=one) for one in (first, second)]))
""")
    assert done.value == [[1], [1]]
    assert [line for line in done.record if line.startswith("submit")] == [
        "submit --no-requeue --qos=one",
        "submit --no-requeue --qos=two",
    ]


BEST = """
from pathlib import Path
logging.basicConfig(level=logging.INFO)
folder = Path("commands")
folder.mkdir()
if {with_slurm}:
    (folder / "sbatch").write_text("#!/bin/sh\\nexit 1\\n")
    (folder / "sbatch").chmod(0o755)
os.environ["PATH"] = str(folder.absolute())
with gridengine.best_available() as scheduler:
    print(json.dumps(type(scheduler).__name__))
"""


def test_the_best_available_is_another_system_through_its_library_and_says_which(
    site: Site,
) -> None:
    done = site.run(BEST.format(with_slurm=False))
    assert done.value == "GridEngineScheduler"
    assert "SLURM 22.05.8 (test library 1.0) (through DRMAA) takes jobs of this user" in done.errors


def test_slurm_s_own_scheduler_goes_before_a_library_for_it(site: Site) -> None:
    done = site.run(BEST.format(with_slurm=True))
    assert done.value != "GridEngineScheduler"
    assert "not Grid Engine, because the DRMAA library speaks to SLURM 22.05.8" in done.errors
    assert "not Slurm, because" in done.errors
    assert done.record == []


def doctor_on(library: Path, folder: Path, **environment: str) -> list[dict[str, str]]:
    """Return the findings of `gridengine doctor` with this DRMAA library."""
    done = subprocess.run(
        [sys.executable, "-m", "gridengine", "doctor", "--json", "--scheduler", "grid_engine"],
        env={
            **os.environ,
            "DRMAA_LIBRARY_PATH": str(library),
            "GRIDENGINE_RUN_DIRECTORY": str(folder),
            **environment,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    return findings


def test_the_doctor_does_not_take_a_library_of_another_system_for_grid_engine(
    site: Site, tmp_path: Path
) -> None:
    torque = {"TEST_DRMAA_SYSTEM": "Torque 6.1.2", "TEST_DRMAA_NATIVE": "any"}
    findings = doctor_on(site.library, tmp_path, **torque)
    found = {one["check"]: one for one in findings if one["of"] == "grid_engine"}
    assert (
        found["library"]["text"]
        == f"{site.library}, which speaks to Torque 6.1.2 (test library 1.0)"
    )
    assert found["system"]["text"] == "Torque 6.1.2, and no Grid Engine"
    assert "master" not in found
    assert found["job"]["state"] == "ok"


def test_the_doctor_says_what_is_no_drmaa_library(tmp_path: Path) -> None:
    library = tmp_path / "libdrmaa.so"
    library.write_text("none")
    broken = [one for one in doctor_on(library, tmp_path) if one["state"] == "broken"]
    assert [one["check"] for one in broken] == ["library"]
    assert "invalid ELF header" in broken[0]["text"] or "file too short" in broken[0]["text"]


@pytest.mark.slurm
def test_sbatch_itself_reads_the_words_for_a_slurm(slurm: Slurm) -> None:
    here, settings = system_of("SLURM 22.05.8", ""), Settings()
    asked = [
        native_request(
            here,
            Request(queue="main", resources={"h_rt": "0:30:00", "h_vmem": "100M"}),
            Demand(Cores(2)),
            ZERO,
            settings,
        ),
        native_request(
            here, Request(), Demand(Cores(2) & Memory(0.1) & WTime(600)), ZERO, settings
        ),
    ]
    done = slurm.run(f"""
import subprocess
for words in {[one.specification().split() for one in asked]!r}:
    subprocess.run(["sbatch", "--test-only", *words, "--wrap", "true"], check=True)
print("taken")
""")
    assert done.stdout.splitlines()[-1] == "taken"
