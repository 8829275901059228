"""Where settings files are looked for, and whether anything may say a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.settings.locations import any_said, projects_file, users_file


def test_the_user_s_file_is_below_the_home_or_where_xdg_says() -> None:
    assert users_file({"HOME": "/home/me"}) == Path("/home/me/.config/gridengine/settings.toml")
    assert users_file({"HOME": "/home/me", "XDG_CONFIG_HOME": "/x"}) == Path(
        "/x/gridengine/settings.toml"
    )
    assert users_file({"HOME": "/home/me", "XDG_CONFIG_HOME": "relative"}) == Path(
        "/home/me/.config/gridengine/settings.toml"
    )


def test_the_project_s_file_is_the_nearest_above_up_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "repository" / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    (tmp_path / "gridengine.toml").touch()
    assert projects_file({"HOME": "/home/me"}) == tmp_path / "gridengine.toml"
    assert projects_file({"HOME": str(tmp_path / "repository")}) is None
    (tmp_path / "repository" / ".git").mkdir()
    assert projects_file({"HOME": "/home/me"}) is None
    (tmp_path / "repository" / "gridengine.toml").touch()
    assert projects_file({"HOME": "/home/me"}) == tmp_path / "repository" / "gridengine.toml"


def test_settings_may_be_said_by_a_variable_or_in_either_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = {"HOME": str(tmp_path)}
    assert not any_said(home)
    assert any_said({**home, "GRIDENGINE_SCHEDULER": "inline"})
    project = tmp_path / "gridengine.toml"
    project.touch()
    assert any_said(home)
    project.unlink()
    users = tmp_path / ".config" / "gridengine" / "settings.toml"
    users.parent.mkdir(parents=True)
    users.touch()
    assert any_said(home)
