"""Settings and the environment variables that set them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.settings.values import GridEngineSite, Settings, SlurmSite


def test_without_variables_the_settings_are_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


@pytest.mark.parametrize("shape", [Settings, GridEngineSite, SlurmSite])
def test_each_field_is_named_in_the_docstring(shape: type) -> None:
    lines = [line.split(":")[0] for line in (shape.__doc__ or "").splitlines() if ":" in line]
    described = {name.strip() for line in lines for name in line.split(",")}
    assert {field.name for field in dataclasses.fields(shape)} <= described


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("GRIDENGINE_RUN_DIRECTORY", "/scratch/me", "run_directory", Path("/scratch/me")),
        ("GRIDENGINE_HOST", "10.0.0.7", "host", "10.0.0.7"),
        ("GRIDENGINE_MAX_WORKERS", "12", "max_workers", 12),
        ("GRIDENGINE_LEASE_SECONDS", "0.5", "lease_seconds", 0.5),
        ("GRIDENGINE_PROGRESS", "no", "progress", False),
        ("GRIDENGINE_PROGRESS", "0", "progress", False),
        ("GRIDENGINE_PROGRESS", "True", "progress", True),
        ("GRIDENGINE_GRID_ENGINE_QUEUE", "long.q", "grid_engine", GridEngineSite(queue="long.q")),
        ("GRIDENGINE_SLURM_PARTITION", "long", "slurm", SlurmSite(partition="long")),
    ],
)
def test_a_variable_sets_its_field(variable: str, text: str, field: str, value: object) -> None:
    assert getattr(Settings.from_environment({variable: text}), field) == value


def test_other_variables_are_left_alone() -> None:
    assert (
        Settings.from_environment({"GRIDENGINE_TEST_PYTHON": "/x", "HOME": "/home/me"})
        == Settings()
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("GRIDENGINE_MAX_WORKERS", "many"),
        ("GRIDENGINE_MAX_WORKERS", "2.5"),
        ("GRIDENGINE_MAX_WORKERS", "0"),
        ("GRIDENGINE_MAX_WORKERS", ""),
        ("GRIDENGINE_BEAT_SECONDS", "-1"),
        ("GRIDENGINE_BEAT_SECONDS", "nan"),
        ("GRIDENGINE_LEASE_SECONDS", "inf"),
        ("GRIDENGINE_PROGRESS", "perhaps"),
        ("GRIDENGINE_SLURM_PARTITION", "a\nb"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_variable_and_the_value(
    variable: str, text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_environment({variable: text})
    assert f"{variable}={text!r}" in str(caught.value)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().max_workers = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("often", "rarely"), [("beat_seconds", "lease_seconds"), ("poll_seconds", "start_seconds")]
)
def test_by_default_what_is_asked_often_is_asked_several_times_before_it_matters(
    often: str, rarely: str
) -> None:
    assert getattr(Settings(), often) * 3 < getattr(Settings(), rarely)


def test_a_table_of_names_is_not_for_the_environment() -> None:
    with pytest.raises(
        ConfigurationError, match="GRIDENGINE_SLURM_TOKENS cannot be said in the environment"
    ):
        Settings.from_environment({"GRIDENGINE_SLURM_TOKENS": "big"})
