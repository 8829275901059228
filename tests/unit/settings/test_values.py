"""What the settings of this process are, and who said each: a default, a file, an environment
variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gridengine.call_context import BEGAN, JOB_END
from gridengine.errors import ConfigurationError
from gridengine.settings.schema import build
from gridengine.settings.values import (
    GridEngineSite,
    Settings,
    SlurmSite,
    from_environment,
    said_by,
    said_in,
    sources,
)
from tests.support.processes import completed


def from_variables(environment: Mapping[str, str]) -> Settings:
    return build({name: one.value for name, one in from_environment(environment).items()})


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("GRIDENGINE_RUN_DIRECTORY", "/scratch/me", "run_directory", Path("/scratch/me")),
        ("GRIDENGINE_HOST", "10.0.0.7", "host", "10.0.0.7"),
        ("GRIDENGINE_SCHEDULER", "slurm", "scheduler", "slurm"),
        ("GRIDENGINE_SCHEDULER", "", "scheduler", ""),
        ("GRIDENGINE_MAX_WORKERS", "12", "max_workers", 12),
        ("GRIDENGINE_KEPT_BYTES", "64000000000", "kept_bytes", 64_000_000_000),
        ("GRIDENGINE_LEASE_SECONDS", "0.5", "lease_seconds", 0.5),
        ("GRIDENGINE_LEASE_SECONDS", "2 min", "lease_seconds", 120),
        ("GRIDENGINE_KEEP_RUNS", "12h", "keep_runs", 0.5),
        ("GRIDENGINE_KEPT_BYTES", "4 GB", "kept_bytes", 4 * 2**30),
        ("GRIDENGINE_LOG_BYTES", "10 MB", "log_bytes", 10 * 2**20),
        ("GRIDENGINE_PROGRESS", "no", "progress", False),
        ("GRIDENGINE_PROGRESS", "0", "progress", False),
        ("GRIDENGINE_PROGRESS", "True", "progress", True),
    ],
)
def test_a_variable_sets_its_field(variable: str, text: str, field: str, value: object) -> None:
    assert getattr(from_variables({variable: text}), field) == value


@pytest.mark.parametrize(
    ("variable", "table", "value"),
    [
        ("GRIDENGINE_GRID_ENGINE_QUEUE", "grid_engine", GridEngineSite(queue="long")),
        ("GRIDENGINE_SLURM_PARTITION", "slurm", SlurmSite(partition="long")),
    ],
)
def test_a_variable_sets_the_field_of_a_table(variable: str, table: str, value: object) -> None:
    assert from_variables({variable: "long"}).sites[table] == value


def test_other_variables_are_left_alone() -> None:
    others = ("GRIDENGINE_TEST_PYTHON", "GRIDENGINE_REQUIRE_SLURM", BEGAN, JOB_END, "HOME")
    assert from_variables(dict.fromkeys(others, "/x")) == Settings()


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("GRIDENGINE_MAX_WROKERS", "GRIDENGINE_MAX_WORKERS is one"),
        ("GRIDENGINE_PARTITION", "GRIDENGINE_SLURM_PARTITION is one"),
        ("GRIDENGINE_QUEUE", "GRIDENGINE_GRID_ENGINE_QUEUE is one"),
        ("GRIDENGINE_SGE_QUEUE", "GRIDENGINE_GRID_ENGINE_QUEUE is one"),
        ("GRIDENGINE_ZZZZ", "there are: GRIDENGINE_SCHEDULER, GRIDENGINE_RUN_DIRECTORY"),
        ("GRIDENGINE_LAESE_SECONDS", "GRIDENGINE_LEASE_SECONDS is one"),
        ("GRIDENGINE_max_workers", "GRIDENGINE_MAX_WORKERS is one"),
    ],
)
def test_a_misspelt_variable_is_an_error_that_offers_the_nearest(variable: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{variable} is not the variable") as caught:
        from_variables({variable: "4"})
    assert hint in (caught.value.hint or "")


def test_idle_workers_stay_longer_for_an_interactive_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().idle_seconds == 5.0
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert Settings().idle_seconds == 60.0
    assert Settings(idle_seconds=7.0).idle_seconds == 7.0


@pytest.mark.parametrize(
    ("variable", "text", "hint"),
    [
        ("GRIDENGINE_MAX_WORKERS", "many", "change or unset"),
        ("GRIDENGINE_MAX_WORKERS", "2.5", "change or unset"),
        ("GRIDENGINE_MAX_WORKERS", "0", "change or unset"),
        ("GRIDENGINE_MAX_WORKERS", "", "change or unset"),
        ("GRIDENGINE_BEAT_SECONDS", "-1", "change or unset"),
        ("GRIDENGINE_BEAT_SECONDS", "nan", "change or unset"),
        ("GRIDENGINE_LEASE_SECONDS", "inf", "change or unset"),
        ("GRIDENGINE_PROGRESS", "perhaps", "change or unset"),
        ("GRIDENGINE_SLURM_PARTITION", "a\nb", "change or unset"),
        ("GRIDENGINE_SCHEDULER", "process", "GRIDENGINE_SCHEDULER=processes"),
        ("GRIDENGINE_SCHEDULER", "sge", "GRIDENGINE_SCHEDULER=grid_engine"),
        ("GRIDENGINE_SCHEDULER", "local", "change or unset"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_variable_and_the_value(
    variable: str, text: str, hint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_variables({variable: text})
    assert f"{variable}={text!r}" in str(caught.value)
    assert str(caught.value.hint).startswith(hint)


@pytest.mark.parametrize("ports", ["500-400", "0-10", "70000-80000"])
def test_a_wrong_range_of_ports_is_an_error(ports: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a range of ports"):
        _ = Settings(ports=ports).port_range


def test_ports_are_both_and_those_between() -> None:
    assert [*Settings(ports="42000-42002").port_range] == [42000, 42001, 42002]
    assert not Settings().port_range


def test_a_table_of_names_is_not_for_the_environment() -> None:
    with pytest.raises(
        ConfigurationError, match="GRIDENGINE_SLURM_TOKENS cannot be set in the environment"
    ):
        from_variables({"GRIDENGINE_SLURM_TOKENS": "big"})


def test_the_project_overrules_the_user_and_the_environment_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "home" / ".config" / "gridengine" / "settings.toml"
    users.parent.mkdir(parents=True)
    users.write_text(
        'host = "user"\nmax_workers = 1\npoll_seconds = 1\n[grid_engine]\nqueue = "user.q"\nmemory '
        '= "mem_free"'
    )
    (tmp_path / "gridengine.toml").write_text(
        'host = "project"\nmax_workers = 2\n[grid_engine]\nqueue = "project.q"'
    )
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": str(tmp_path / "home"), "GRIDENGINE_HOST": "variable"}
    said = sources(environment)
    settings = build({name: one.value for name, one in said.items()})
    assert (settings.host, settings.max_workers, settings.poll_seconds, settings.progress) == (
        "variable",
        2,
        1.0,
        True,
    )
    assert (settings.sites["grid_engine"].queue, settings.sites["grid_engine"].memory) == (
        "project.q",
        "mem_free",
    )
    assert said["host"].by == "GRIDENGINE_HOST"
    assert said["grid_engine.queue"].by == f"{tmp_path}/gridengine.toml:4"
    assert said["grid_engine.memory"].by == f"{users}:6"
    assert said["progress"].by == "default"


@pytest.mark.parametrize("with_file", [False, True])
def test_a_reader_of_toml_is_only_loaded_for_a_file(tmp_path: Path, with_file: bool) -> None:
    if with_file:
        (tmp_path / "gridengine.toml").write_text("max_workers = 3")
    script = (
        "import sys, gridengine.settings.values as c; c.settings(); print('tomllib' in sys.modules)"
    )
    done = completed(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
    )
    assert done.stdout == f"{with_file}\n"


def test_settings_that_became_unreadable_hide_no_other_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRIDENGINE_SLURM_PARTITION", "main")
    assert "GRIDENGINE_SLURM_PARTITION" in said_in("--partition=main", "slurm")
    monkeypatch.setenv("GRIDENGINE_SLURM_PARTITON", "main")
    assert said_in("--partition=main", "slurm") == ""
    assert said_by("host") == "settings that cannot be read any more"
