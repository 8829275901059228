"""Two builds of the package that speak different protocols, in both directions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gridengine
from gridengine.wire.messages import VERSION
from tests.support.processes import completed
from tests.support.standalone import Standalone

HERE = Path(gridengine.__file__).parents[1]
CLIENT = """
import gridengine
try:
    gridengine.Client("night")
except gridengine.VersionMismatch as error:
    print(error)
"""
LEAVE = """
import gridengine, time
client = gridengine.Client("night")
executor = gridengine.Executor(scheduler=client, name="named")
futures = [executor.submit(pow, 2, 3), executor.submit(time.sleep, 1000)]
futures[0].result()
client.disconnect(detach=True)
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of the next protocol, whose files have one more field, and answers another."""
    root = tmp_path_factory.mktemp("other")
    shutil.copytree(HERE / "gridengine", root / "gridengine")

    def change(file: str, old: str, new: str) -> None:
        path = root / "gridengine" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    change("wire/messages/common.py", f"= {VERSION}\n", f"= {VERSION + 1}\n")
    change("dispatcher/watch_messages.py", "killed: bool = False", 'killed: str = ""')
    last = 'scheduler: str = ""\n'
    change("wire/connection_file.py", last, f"{last}    more: int = 1\n")
    return root


@pytest.fixture(params=["newer", "older"])
def builds(
    request: pytest.FixtureRequest,
    other: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Start a dispatcher of one build, which has calls of a run; the other build is yielded."""
    monkeypatch.setenv("GRIDENGINE_WATCH_DIRECTORY", str(tmp_path / "watched"))
    theirs, ours = (other, HERE) if request.param == "newer" else (HERE, other)
    dispatcher = Standalone(tmp_path, PYTHONPATH=str(theirs))
    left = run(theirs, tmp_path, "-c", LEAVE)
    assert left.returncode == 0, left.stderr
    yield ours
    dispatcher.end()


def run(build: Path, runs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": str(build), "GRIDENGINE_RUN_DIRECTORY": str(runs)}
    return completed([sys.executable, *words], env={**os.environ, **variables}, cwd=runs)


def test_clients_workers_and_watchers_of_another_protocol_are_told_that_it_is_another(
    builds: Path, tmp_path: Path
) -> None:
    client = run(builds, tmp_path, "-c", CLIENT)
    assert f"{VERSION}" in client.stdout, client.stderr
    assert f"{VERSION + 1}" in client.stdout
    questions = (
        ["worker", "night"],
        ["dispatcher", "status", "night"],
        ["top", "night", "--once"],
        ["ls"],
        ["results", "named", "--now"],
    )
    for words in questions:
        told = run(builds, tmp_path, "-m", "gridengine", *words)
        said = told.stdout + told.stderr
        assert "Traceback" not in said
        for protocol in (VERSION, VERSION + 1):
            assert f"speaks {protocol}" in said.replace("speaks protocol", "speaks"), (words, said)
