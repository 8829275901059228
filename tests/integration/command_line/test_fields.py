"""The whole examples of `examples/fields` run as they are, and find the same each time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.script_driver import ROOT

FOUND = {
    "astronomy_stars": "365 stars in 36 tiles",
    "genomics_coverage": "9,404 of 10,000 reads aligned",
    "learning_sweep": "after 155 epochs, 1 left",
    "statistics_bootstrap": " bmi     374.2    486.9    599.2",
    "text_frequencies": "of them different",
}
WANTED = {
    "astronomy_stars": ["astropy", "scipy", "matplotlib"],
    "learning_sweep": ["sklearn", "matplotlib"],
    "statistics_bootstrap": ["sklearn", "matplotlib"],
}


def test_each_example_is_played_here() -> None:
    names = [path.stem for path in (ROOT / "examples" / "fields").glob("*.py")]
    assert sorted(names) == sorted(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_an_example_of_a_field_finds_the_planted_result_and_draws_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in WANTED.get(name, ["matplotlib"]):
        pytest.importorskip(module, reason="a library of setup.cfg's third-parties")
    if name == "genomics_coverage" and shutil.which("bowtie2") is None:
        pytest.skip("there is no bowtie2; on Debian: apt-get install bowtie2 bowtie2-examples")
    monkeypatch.setenv("GRIDENGINE_SCHEDULER", "processes")
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    command = [sys.executable, str(ROOT / "examples" / "fields" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert FOUND[name] in done.stdout
    [picture] = tmp_path.glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
