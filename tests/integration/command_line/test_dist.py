"""The sdist and the wheel of `make dist`, in environments that have nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from gridengine._version import __version__
from tests.support.processes import completed

ROOT = Path(__file__).parents[3]
SETUPTOOLS = "setuptools==80.9.0"
MAP = "import gridengine as g; print(g.map(abs, [-1, 2], scheduler='processes'), g.__version__)"
EPOCH = 1_700_000_000


def install(python: Path, *words: str) -> str:
    """Install with pip, and return what it printed."""
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", *words]
    done = completed(command, timeout=240, check=True)
    return done.stdout + done.stderr


def empty(folder: Path) -> Path:
    """Return the Python of a new environment."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of two builds, whose files have other modes at first."""
    folder = tmp_path_factory.mktemp("dist")
    python = empty(folder / "env")
    install(python, SETUPTOOLS)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    for name, umask in (("one", 0o022), ("two", 0o077)):
        subprocess.run(
            [python, ROOT / "tools" / "dist", folder / name],
            env=environment,
            umask=umask,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return folder / "one", folder / "two"


def digests(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}


def test_the_same_sources_give_the_same_bytes(built: tuple[Path, Path]) -> None:
    one, two = map(digests, built)
    assert one == two
    assert sorted(one) == [
        f"gridengine-{__version__}-py3-none-any.whl",
        f"gridengine-{__version__}.tar.gz",
    ]


def test_sdist_and_wheel_have_the_files_that_are_no_code(built: tuple[Path, Path]) -> None:
    sdist, wheel = sorted(built[0].iterdir(), key=lambda one: one.suffix)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    with tarfile.open(sdist) as archive_of_sources:
        members = archive_of_sources.getmembers()
    sources = [one.name.partition("/")[2] for one in members]
    package = [str(one.relative_to(ROOT)) for one in ROOT.glob("gridengine/**/*.py")]
    for wanted in (*package, "gridengine/py.typed", "gridengine/page/static/page.js"):
        assert wanted in names
        assert wanted in sources
    assert {one.mtime for one in members} == {EPOCH}


def test_each_is_installed_in_an_empty_environment_and_runs(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    sdist, wheel = sorted(built[0].iterdir(), key=lambda one: one.suffix)
    python = empty(tmp_path / "env")
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    script = tmp_path / "script.py"
    script.write_text(f"if __name__ == '__main__':\n    {MAP}\n")
    for file, more in ((wheel, ()), (sdist, ("--force-reinstall", "--no-deps"))):
        # Without the option, some versions of pip tell of drmaa's build: see README.
        told = install(python, "--use-pep517", "--no-compile", *more, str(file))
        assert "DEPRECATION" not in told
        done = completed([python, script], env=home, cwd=tmp_path, check=True)
        assert done.stdout == f"[1, 2] {__version__}\n"
    done = completed([python.parent / "gridengine", "--version"], env=home, check=True)
    assert done.stdout == f"gridengine, version {__version__}\n"
