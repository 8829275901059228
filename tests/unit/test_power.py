"""The faults of `tests/power` apply to today's code."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = tomllib.loads((ROOT / "tests" / "power" / "faults.toml").read_text())["fault"]


def test_there_are_sixty_faults_and_those_drawn_by_lot_each_with_a_name_of_its_own() -> None:
    assert len({one["name"] for one in FAULTS}) == len(FAULTS)
    assert sum(one["origin"] != "drawn" for one in FAULTS) == 60


@pytest.mark.parametrize("fault", FAULTS, ids=[one["name"] for one in FAULTS])
def test_a_fault_applies_to_todays_code(fault: dict[str, str]) -> None:
    whole = (ROOT / fault["file"]).read_text()
    assert whole.count(fault["old"]) == 1
    planted = whole.replace(fault["old"], fault["new"])
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(whole))
