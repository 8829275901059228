"""Scripts made by a program, against the builtin `map` and a spawned executor."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.script_driver import MakeScript
from tests.support.state_scripts import (
    CONTENTS,
    HOLDERS,
    LISTED,
    NAMED_KINDS,
    OWN_STATE,
    PLACES,
    own_state_script,
    state_script,
)

LEAST_SCRIPTS = 200


def told(done: subprocess.CompletedProcess[str]) -> Iterator[Any]:
    assert done.returncode == 0, done.stderr
    return (json.loads(line) for line in done.stdout.splitlines())


def test_the_matrix_has_as_many_scripts_as_were_asked_for() -> None:
    kinds = 2 * len(CONTENTS) + 2 * len(CONTENTS) + 2 * len(NAMED_KINDS)
    assert kinds * len(HOLDERS) + len(OWN_STATE) >= LEAST_SCRIPTS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("holder", HOLDERS)
def test_calls_see_the_state_that_the_builtin_map_sees(
    holder: str, place: str, script: MakeScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    lines = list(told(script(state_script(holder, place)).run()))
    assert [line for line in lines if len(line) > 2] == []
    kinds = NAMED_KINDS if place == "named" else CONTENTS
    assert len(lines) == sum(8 if CONTENTS[kind][1] else 4 for kind in kinds)


@pytest.mark.parametrize("what", OWN_STATE)
def test_a_process_keeps_the_state_that_a_spawned_one_keeps(
    what: str, script: MakeScript, tmp_path: Path
) -> None:
    """Where it does not, docs/differences.md says so."""
    (tmp_path / "beside.py").write_text("n = 0\n")
    lines = list(told(script(own_state_script(what)).run()))
    assert len(lines) == 6
    others = [line for line in lines if line[1] != line[2]]
    assert others == ([] if what not in LISTED else lines)
