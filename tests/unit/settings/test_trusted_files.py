"""Which files are trusted, and what becomes of those that are not."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.settings import files
from gridengine.settings.files import describe, read_files, why_untrusted
from tests.support.open_files import open_files


def facts(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, owner, 54321, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "doubt"),
    [
        (0o100644, os.getuid(), ""),
        (0o100644, 0, ""),
        (0o100644, os.getuid() + 12345, "another user"),
        (0o100646, os.getuid(), "others may write"),
        (0o100664, os.getuid(), "others may write"),
        (0o010644, os.getuid(), "no regular file"),
    ],
)
def test_only_files_that_nobody_else_may_write_are_believed(
    mode: int, owner: int, doubt: str
) -> None:
    found = why_untrusted(facts(mode, owner), facts(0o040755, owner))
    assert doubt in found
    assert bool(doubt) == bool(found)


def test_a_file_that_others_may_write_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gridengine.toml").write_text('[grid_engine]\nnative = "-S /tmp/evil"')
    (tmp_path / "gridengine.toml").chmod(0o666)
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING, logger="gridengine"):
        assert read_files({"HOME": "/nosuch"}) == []
    assert (
        f"the settings in {tmp_path}/gridengine.toml are left out: others may write to it"
        in caplog.text
    )


OTHER = 12345


def of_another(path: Path) -> None:
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def unreadable(path: Path, victims: Path) -> None:
    path.write_text("max_workers = 7")
    path.chmod(0)
    of_another(path)


def folder(path: Path, victims: Path) -> None:
    path.mkdir()
    of_another(path)


def pipe(path: Path, victims: Path) -> None:
    os.mkfifo(path)
    of_another(path)


def listening(path: Path, victims: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
    of_another(path)


def link_to_the_victims(path: Path, victims: Path) -> None:
    path.symlink_to(victims)
    of_another(path)


def link_by_a_link_of_the_victims(path: Path, victims: Path) -> None:
    theirs = path.with_name("theirs")
    theirs.symlink_to(victims)
    of_another(theirs)
    path.symlink_to("./theirs")


def link_through_a_folder_that_is_a_link_of_another(path: Path, victims: Path) -> None:
    theirs = path.with_name("theirs")
    theirs.symlink_to(victims.parent)
    of_another(theirs)
    path.symlink_to(f"theirs/{victims.name}")


def link_to_itself(path: Path, victims: Path) -> None:
    path.symlink_to(path.name)


def link_to_nothing(path: Path, victims: Path) -> None:
    path.symlink_to("nothing")


def link_to_a_device(path: Path, victims: Path) -> None:
    path.symlink_to("/dev/zero")


def another_name_of_the_victims(path: Path, victims: Path) -> None:
    os.link(victims, path)


LEFT_OUT = {
    unreadable: "it belongs to another user",
    folder: "it is no regular file",
    pipe: "it is no regular file",
    listening: "it is no regular file",
    link_to_the_victims: "it is a link of another user",
    link_by_a_link_of_the_victims: "it is a link of another user",
    link_through_a_folder_that_is_a_link_of_another: "it is a link of another user",
    link_to_itself: "it is a link that leads in a circle",
    link_to_nothing: "it is a link that leads nowhere",
    link_to_a_device: "it is no regular file",
    another_name_of_the_victims: "it has other names, and others may write to its folder",
}


@pytest.mark.timeout(300)
@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")
@pytest.mark.parametrize("leave", LEFT_OUT, ids=lambda leave: leave.__name__)
def test_files_of_another_user_in_a_shared_folder_are_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    leave: Callable[[Path, Path], None],
) -> None:
    shared, victims = tmp_path / "shared", tmp_path / "pyproject.toml"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "work").mkdir()
    victims.write_text("[project]")
    leave(shared / "gridengine.toml", victims)
    monkeypatch.chdir(shared / "work")
    with caplog.at_level(logging.WARNING, logger="gridengine"):
        assert read_files({"HOME": "/nosuch"}) == []
    assert (
        f"the settings in {shared}/gridengine.toml are left out: {LEFT_OUT[leave]}" in caplog.text
    )
    assert (
        describe(shared / "gridengine.toml")
        == f"{shared}/gridengine.toml (left out: {LEFT_OUT[leave]})"
    )


def test_links_of_one_s_own_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dotfiles" / "deep").mkdir(parents=True)
    (tmp_path / "dotfiles" / "deep" / "mine.toml").write_text("max_workers = 7")
    (tmp_path / "here").symlink_to(tmp_path / "dotfiles")
    (tmp_path / "gridengine.toml").symlink_to("here/deep/../deep/./mine.toml")
    monkeypatch.chdir(tmp_path)
    [said] = read_files({"HOME": "/nosuch"})
    assert said["max_workers"].value == 7
    assert describe(tmp_path / "gridengine.toml") == f"{tmp_path}/gridengine.toml"


def test_a_file_replaced_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gridengine.toml"
    path.write_text("max_workers = 7")
    (tmp_path / "another").write_text("max_workers = 8")
    check = files.why_untrusted

    def replace_then(*facts: os.stat_result) -> str:
        (tmp_path / "another").rename(path)
        return check(*facts)

    monkeypatch.setattr(files, "why_untrusted", replace_then)
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING, logger="gridengine"):
        assert read_files({"HOME": "/nosuch"}) == []
    assert "somebody replaced it just now" in caplog.text


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "gridengine.toml"
    assert describe(path) == f"{path} (not there)"
    path.symlink_to("gridengine.toml")
    assert "left out" in describe(path)
    path.unlink()
    path.write_text("")
    assert describe(path) == str(path)
    assert open_files(str(tmp_path)) == []
