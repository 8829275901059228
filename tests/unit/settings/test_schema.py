"""What settings there are."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gridengine.settings.schema import TABLES, Settings

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"


def described() -> dict[str, set[str]]:
    """Return the settings that docs/settings.md has rows for, by their table."""
    found: dict[str, set[str]] = {}
    tables: list[str] = []
    for line in DOCS.read_text().splitlines():
        if line.startswith("The table") or line == "## The settings":
            tables = re.findall(r"`\[(\w+)\]`", line) or [""]
        if line.startswith("| `"):
            for table in tables:
                found.setdefault(table, set()).update(re.findall(r"`(\w+)`", line.split("|")[1]))
    return found


@pytest.mark.parametrize(("table", "shape"), [("", Settings), *TABLES.items()])
def test_each_setting_has_a_row_in_the_docs(table: str, shape: type) -> None:
    fields = {field.name for field in msgspec.structs.fields(shape)} - {"sites"}
    assert fields <= described()[table]


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().max_workers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("often", "rarely"), [("beat_seconds", "lease_seconds"), ("poll_seconds", "start_seconds")]
)
def test_frequent_questions_come_several_times_before_they_matter(often: str, rarely: str) -> None:
    assert getattr(Settings(), often) * 3 < getattr(Settings(), rarely)
