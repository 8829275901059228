"""DRMAA libraries of other systems than Grid Engine, by one that is built here: see
`tests/support/drmaa_library.c`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridengine.resources import Cores, Memory, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.grid_engine.drmaa import system_of
from gridengine.schedulers.grid_engine.options import OwnArguments, request_for, words_for
from gridengine.settings.values import SlurmSite
from tests.support.processes import completed
from tests.support.script_driver import MakeScript, Script

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


def test_the_drmaa_process_survives_the_signal_that_announces_the_end_of_a_job(
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


def test_a_slurm_is_asked_in_its_own_words(site: Site) -> None:
    given = "max_workers=1, queue='long', native='--exclusive'"
    done = site.run(mapped(given, "gridengine.Cores(2) & gridengine.WTime(600)"))
    assert done.value == SQUARES
    words = "--no-requeue --partition=long --exclusive --cpus-per-task=2 --time=00:12:00"
    assert sorted(done.record[0].split()) == sorted(["submit", *words.split()])


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
    done = completed(
        [sys.executable, "-m", "gridengine", "doctor", "--json", "--scheduler", "grid_engine"],
        env={
            **os.environ,
            "DRMAA_LIBRARY_PATH": str(library),
            "GRIDENGINE_RUN_DIRECTORY": str(folder),
            **environment,
        },
        cwd=folder,
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


def test_the_doctor_tells_of_a_file_that_is_no_drmaa_library(tmp_path: Path) -> None:
    library = tmp_path / "libdrmaa.so"
    library.write_text("none")
    broken = [one for one in doctor_on(library, tmp_path) if one["state"] == "broken"]
    assert [one["check"] for one in broken] == ["library"]
    assert "invalid ELF header" in broken[0]["text"] or "file too short" in broken[0]["text"]


@pytest.mark.slurm
def test_sbatch_itself_reads_the_words_for_a_slurm(slurm: Slurm) -> None:
    words, site = words_for(system_of("SLURM 22.05.8", ""), str), SlurmSite()
    own = OwnArguments({"queue": "main", "h_rt": "0:30:00", "h_vmem": "100M"})
    asked = [
        request_for(words, own, Demand(Cores(2)), site),
        request_for(words, OwnArguments(), Demand(Cores(2) & Memory(0.1) & WTime(600)), site),
    ]
    done = slurm.run(f"""
import subprocess
for words in {[list(one.options) for one in asked]!r}:
    subprocess.run(["sbatch", "--test-only", *words, "--wrap", "true"], check=True)
print("taken")
""")
    assert done.stdout.splitlines()[-1] == "taken"


def test_a_dry_run_shows_the_words_of_the_system_that_the_library_names(site: Site) -> None:
    done = site.run("""
plan = gridengine.GridEngineScheduler(queue="long").dry_run(gridengine.Cores(2))
print(json.dumps(plan.request["nativeSpecification"]))
""")
    assert done.value == "--no-requeue --partition=long --cpus-per-task=2"
    assert done.record == []
