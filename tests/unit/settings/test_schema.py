"""What settings there are."""

from __future__ import annotations

import msgspec
import pytest

from gridengine.settings.schema import TABLES, Settings


@pytest.mark.parametrize("shape", [Settings, *TABLES.values()])
def test_each_field_is_named_in_the_docstring(shape: type) -> None:
    own = [base for base in shape.__mro__ if base.__module__ == shape.__module__]
    text = "\n".join(base.__doc__ or "" for base in own)
    lines = [line.split(":")[0] for line in text.splitlines() if ":" in line]
    described = {name.strip() for line in lines for name in line.split(",")}
    assert {field.name for field in msgspec.structs.fields(shape)} <= described


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().max_workers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("often", "rarely"), [("beat_seconds", "lease_seconds"), ("poll_seconds", "start_seconds")]
)
def test_by_default_what_is_asked_often_is_asked_several_times_before_it_matters(
    often: str, rarely: str
) -> None:
    assert getattr(Settings(), often) * 3 < getattr(Settings(), rarely)
