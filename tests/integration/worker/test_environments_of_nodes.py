"""Workers of a batch system in another environment than their caller: `python=`, `prologue=`,
`container=`. The system is three shell scripts (`tests/support/tiny_batch.py`), the workers are
real, and so is the second environment; `apptainer` and `conda` are stand-ins on PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.processes import completed
from tests.support.tiny_batch import install

SCRIPT = """
import json, sys
import gridengine
from tests.support.tiny_batch import TinyScheduler

def where(_):
    import os
    import sys
    import gridengine
    try:
        import only_there
    except ImportError:
        only_there = None
    return {"prefix": sys.prefix, "package": gridengine.__file__, "there": only_there is not None,
            "loaded": os.environ.get("LOADEDMODULES")}

with TinyScheduler(max_workers=1, **json.loads(sys.argv[1])) as scheduler:
    print(json.dumps(gridengine.map(where, [0], scheduler=scheduler)[0]))
"""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two virtual environments with this package installed, from a copy of its sources; what it
    needs they have from this one. The second one has a module of its own.
    """
    folder = tmp_path_factory.mktemp("environments")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("gridengine", "hydra_plugins"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--target", folder / "packages", source], check=True)
    made = folder / "caller", folder / "nodes"
    for one in made:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", one], check=True)
        site = next(one.glob("lib/python*/site-packages"))
        shutil.copytree(folder / "packages", site, dirs_exist_ok=True)
        (site / "zz_others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / "only_there.py").write_text("")
    return made


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with commands of users, and a script."""
    commands = tmp_path / "bin"
    commands.mkdir()
    install(commands)
    (tmp_path / "script.py").write_text(SCRIPT)
    support = tmp_path / "tests" / "support"
    support.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "support" / "tiny_batch.py", support)
    return tmp_path


def command(site: Path, name: str, text: str) -> None:
    (site / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
    (site / "bin" / name).chmod(0o755)


def run(site: Path, python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return completed(
        [python / "bin" / "python", *words],
        cwd=site,
        env={
            **own,
            "HOME": str(site),
            "PATH": f"{site / 'bin'}:{os.environ['PATH']}",
            "GRIDENGINE_RUN_DIRECTORY": str(site / "runs"),
            "GRIDENGINE_POLL_SECONDS": "0.5",
            "GRIDENGINE_PROGRESS": "no",
        },
    )


def called(site: Path, caller: Path, **nodes: object) -> dict[str, object]:
    done = run(site, caller, "script.py", json.dumps(nodes))
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def is_in(told: dict[str, object], environment: Path) -> bool:
    return told["prefix"] == str(environment) and str(told["package"]).startswith(str(environment))


def test_calls_run_in_another_environment_by_its_path(
    site: Path, environments: tuple[Path, Path]
) -> None:
    caller, nodes = environments
    told = called(site, caller)
    assert is_in(told, caller)
    assert not told["there"]
    told = called(site, caller, python=str(nodes / "bin" / "python"))
    assert is_in(told, nodes)
    assert told["there"]


def test_calls_run_in_an_environment_that_a_module_loads(
    site: Path, environments: tuple[Path, Path]
) -> None:
    caller, nodes = environments
    (site / ".bash_profile").write_text(
        f'module() {{ export PATH={nodes}/bin:$PATH LOADEDMODULES="$2"; }}\n'
    )
    told = called(site, caller, python="python", prologue=["module load nodes"])
    assert is_in(told, nodes)
    assert told["loaded"] == "nodes"


@pytest.mark.parametrize("way", ["conda", "apptainer"])
def test_calls_run_by_a_command_that_acts_as_an_interpreter(
    site: Path, environments: tuple[Path, Path], way: str
) -> None:
    caller, nodes = environments
    command(site, "conda", f'export PATH={nodes}/bin:$PATH; shift 4; exec "$@"')
    text = f'printf "%s\\n" "$@" >{site}/words; export PATH={nodes}/bin:$PATH; exec "${{@:5}}"'
    command(site, "apptainer", text)
    if way == "conda":
        words = ["conda", "run", "--no-capture-output", "-n", "env", "python"]
        assert is_in(called(site, caller, python=words), nodes)
        return
    assert is_in(called(site, caller, container="image.sif"), nodes)
    said = (site / "words").read_text().splitlines()
    run_directory = Path(said[2])
    assert run_directory.parent == site / "runs"
    assert said == [
        *("exec", "--bind", str(run_directory), str(site / "image.sif")),
        *("python", "-P", "-m", "gridengine.worker", str(run_directory / "connection.json")),
    ]


def test_doctor_runs_that_python_once_here(site: Path, environments: tuple[Path, Path]) -> None:
    caller, nodes = environments
    doctor = "-m", "gridengine", "doctor", "--scheduler", "processes", "--json"
    good = run(site, caller, *doctor, "--python", str(nodes / "bin" / "python"))
    bad = run(site, caller, *doctor, "--python", "uv run python")
    found = [
        next(
            row
            for row in json.loads(done.stdout)["findings"]
            if row["check"] == "python of workers"
        )
        for done in (good, bad)
    ]
    assert found[0]["state"] == "ok"
    assert str(nodes) in found[0]["text"].partition("gridengine")[2]
    assert found[1]["text"] == "there is no command uv here"
    assert bad.returncode == 1
