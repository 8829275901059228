"""Multiruns of Hydra by our launcher, as a user starts them: by a script and its command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import completed

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os
import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig

ConfigStore.instance().store(name="config", node={"rate": 1.0, "die": False})

def inverse(rate):
    return 1 / rate

@hydra.main(version_base="1.3", config_path=None, config_name="config")
def main(config):
    if config.die:
        os.kill(os.getpid(), 9)
    value = inverse(config.rate)
    with open(os.path.join(HydraConfig.get().runtime.output_dir, "found"), "w") as file:
        file.write(f"{value} {HydraConfig.get().job.num}")

main()
"""


class Multirun:
    def __init__(self, folder: Path) -> None:
        self._script, self._folder = folder / "train.py", folder
        self._script.write_text(SCRIPT)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self._script), "-m", "hydra/launcher=gridengine"]
        return completed([*command, "hydra.sweep.dir=out", *arguments], cwd=self._folder)

    def found(self) -> list[tuple[float, int]]:
        """Return for each job that has returned its result and its number."""
        texts = [path.read_text().split() for path in sorted(self._folder.glob("out/*/found"))]
        return [(float(value), int(number)) for value, number in texts]


@pytest.fixture
def multirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Multirun:
    pytest.importorskip("hydra", reason="one of the optional libraries of setup.cfg")
    from hydra._internal.utils import get_args_parser

    try:
        get_args_parser()
    except ValueError as error:
        pytest.skip(f"this Hydra does not start on this Python: {error}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Multirun(tmp_path)


def test_each_job_of_a_multirun_is_a_call_with_its_own_folder(multirun: Multirun) -> None:
    done = multirun(
        "rate=0.5,0.25",
        "hydra.launcher.scheduler=processes",
        "hydra.launcher.options={max_workers: 2}",
        "hydra.launcher.cores=1",
    )
    assert done.returncode == 0, done.stderr
    assert multirun.found() == [(2.0, 0), (4.0, 1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rate=0,1"], "ZeroDivisionError"),
        (["die=true,false", "hydra.launcher.retries=0"], "was killed by SIGKILL"),
        (
            ["hydra.launcher.options={max_workers: 2}"],
            "try: name the scheduler that takes them, as hydra.launcher.scheduler=slurm",
        ),
        (["hydra.launcher.scheduler=slrm"], "'slrm'"),
        (["hydra.launcher.memory=-1"], "must be above zero, and finite, not -1.0"),
        (["hydra.launcher.schedulr=slurm"], "Key 'schedulr' not in 'GridEngineLauncherConf'"),
    ],
)
def test_the_error_of_a_multirun_names_the_failed_job(
    multirun: Multirun, arguments: list[str], words: str
) -> None:
    done = multirun(*arguments)
    assert done.returncode == 1
    assert words in done.stderr, done.stderr


def test_the_other_jobs_of_a_multirun_end_when_one_fails(multirun: Multirun) -> None:
    multirun("rate=0,1,2")
    assert [number for _, number in multirun.found()] == [1, 2]
