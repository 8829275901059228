"""The entry of the package in one file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.cli.onefile import cache_folder, ensure_private, is_for_python
from gridengine.errors import ConfigurationError


@pytest.mark.parametrize(
    "words", [["-P", "-m", "gridengine.worker", "x"], ["-c", "0"], ["-"], ["a/script.py", "--help"]]
)
def test_options_of_python_and_scripts_are_for_python(words: list[str]) -> None:
    assert is_for_python(words)


@pytest.mark.parametrize("words", [[], ["doctor"], ["--help"], ["-h"], ["--version"], ["up", "-n"]])
def test_all_else_is_for_the_command_line(words: list[str]) -> None:
    assert not is_for_python(words)


def test_the_cache_is_the_folder_of_all_environments() -> None:
    assert cache_folder(Path("/home/u/.cache/x/venvs/4/a/b")) == Path("/home/u/.cache/x")


def test_a_cache_that_others_may_write_to_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    ensure_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_cache_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(ConfigurationError, match="belongs to another user") as caught:
        ensure_private(tmp_path)
    assert "PEX_ROOT" in str(caught.value)


def test_a_cache_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/none"):
        ensure_private(tmp_path / "none")
