"""Workers that stay: scripts find their own modules there, as these are now."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.standalone import Standalone

SCRIPT = """
import sys
import gridengine
import used
from helpers import scale

def indirectly(x):
    import later
    return later.FACTOR * x

client = gridengine.Client(sys.argv[1])
with client:
    first = client.map(scale, [1, 2])
    print(first, client.map(lambda x: scale(x), [3]), client.map(used.twice, [4]))
    print(client.map(indirectly, [1, 2]))
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    made = Standalone(tmp_path, max_workers=1)
    yield made
    made.end()


def written(folder: Path, factor: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "helpers.py").write_text(f"def scale(x):\n    return {factor} * x\n")
    (folder / "later.py").write_text(f"FACTOR = {factor}\n")
    (folder / "used.py").write_text(
        "from helpers import scale\ndef twice(x):\n    return scale(scale(x))\n"
    )
    for path in folder.glob("*.py"):
        # To Python a module has changed when its size has, or the second of its last change.
        os.utime(path, (factor, factor))
    (folder / "script.py").write_text(SCRIPT)
    return folder


def said(folder: Path, standalone: Standalone) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "script.py", str(standalone.path)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(factor: int) -> str:
    squared = factor * factor
    first = f"[{factor}, {2 * factor}] [{3 * factor}] [{4 * squared}]"
    return f"{first}\n[{factor}, {2 * factor}]\n"


def test_scripts_with_different_modules_of_one_name_have_each_their_own(
    standalone: Standalone, tmp_path: Path
) -> None:
    one, other = written(tmp_path / "one", 10), written(tmp_path / "other", 100)
    for _ in range(2):
        assert said(one, standalone) == expected(10)
        assert said(other, standalone) == expected(100)


def test_a_script_finds_its_modules_as_they_are_now(standalone: Standalone, tmp_path: Path) -> None:
    for factor in (10, 20, 30):
        assert said(written(tmp_path / "one", factor), standalone) == expected(factor)
