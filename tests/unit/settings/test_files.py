"""Settings files: where they are looked for, what they say, and in which line they are wrong."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.settings import files
from gridengine.settings.files import describe, parse, read_files, why_untrusted
from gridengine.settings.schema import Setting, setting_types
from tests.support.open_files import open_files

FILE = Path("/etc/site.toml")


def test_each_value_is_known_by_its_line() -> None:
    text = """
max_workers = 12
[grid_engine]   # a comment
memory = "mem_free"
tokens.big = "-q big.q"
[slurm.tokens]
"fast" = "--constraint=skylake"
"""
    assert parse(FILE, text) == {
        "max_workers": Setting(12, "/etc/site.toml:2"),
        "grid_engine.memory": Setting("mem_free", "/etc/site.toml:4"),
        "grid_engine.tokens": Setting({"big": "-q big.q"}, "/etc/site.toml:5"),
        "slurm.tokens": Setting({"fast": "--constraint=skylake"}, "/etc/site.toml:6"),
    }


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("max_worker = 1", "/etc/site.toml:1: there is no setting 'max_worker'", "'max_workers'"),
        (
            "\n[grid_engine]\nmemry = 'x'",
            "/etc/site.toml:3: there is no setting 'grid_engine.memry'",
            "'grid_engine.memory'",
        ),
        (
            "grid_engine.memry = 'x'",
            "/etc/site.toml:1: there is no setting 'grid_engine.memry'",
            "'grid_engine.memory'",
        ),
        ("queue = 'x'", "/etc/site.toml:1: there is no setting 'queue'", "'grid_engine.queue'"),
        ("\n[slrm]\npartition = 'x'", "/etc/site.toml:2: there is no setting 'slrm'", "[slurm] is"),
        ("[sge]\nqueue = 'x'", "/etc/site.toml:1: there is no setting 'sge'", "[grid_engine] is"),
        ("[Grid-Engine]", "/etc/site.toml:1: there is no setting 'Grid-", "[grid_engine] is"),
        ("MAX_WORKERS = 1", "/etc/site.toml:1: there is no setting 'MAX_", "'max_workers' is"),
        ("zzzz = 1", "/etc/site.toml:1: there is no setting 'zzzz'", "there are: 'scheduler', "),
        ("slurm = 'x'", "/etc/site.toml:1: slurm is a table", "[slurm]"),
        ("[slurm]\ntime = '1:00'", "no setting 'slurm.time'", 'into native = "--time=1:00"'),
        ("[oar]\nproject = 'x'", "no setting 'oar.project'", "into native, as it is"),
        ("[slurm]\npartion = 'x'", "no setting 'slurm.partion'", "'slurm.partition' is one"),
        ("[max_workers]", "/etc/site.toml:1: max_workers = {} is not a positive whole number", ""),
        (
            "max_workers = '12'",
            "/etc/site.toml:1: max_workers = '12' is not a positive whole number",
            "write max_workers = 12",
        ),
        (
            "max_workers = true",
            "/etc/site.toml:1: max_workers = True is not a positive whole number",
            "",
        ),
        ("beat_seconds = -1", "/etc/site.toml:1: beat_seconds = -1 is not a positive number", ""),
        ("progress = 'yes'", "/etc/site.toml:1: progress = 'yes' is not true or false", "= true"),
        ("progress = True  # x", "/etc/site.toml:1: Invalid value", "write progress = true"),
        ("\n[slurm]\nsrun = no", "/etc/site.toml:3: Invalid value", "write srun = false"),
        ("scheduler = slurm", "/etc/site.toml:1: Invalid value", 'write scheduler = "slurm"'),
        ("scheduler = 'sge'", "/etc/site.toml:1: scheduler", 'write scheduler = "grid_engine"'),
        ("[slurm]\nqos = 4", "/etc/site.toml:2: slurm.qos = 4 is not a line", 'write qos = "4"'),
        ("x = y", "/etc/site.toml:1: Invalid value", "a settings file is TOML, as in queue ="),
        ("host = 'a\\'b", "/etc/site.toml:1: Expected newline", "a settings file is TOML, as in"),
        ('host = "a\\nb"', "/etc/site.toml:1: host = 'a\\nb' is not a line of text", ""),
        (
            "[slurm]\ntokens = {a = 1}",
            "/etc/site.toml:2: slurm.tokens = {'a': 1} is not a table of texts",
            "",
        ),
        ("\nhost = x", "/etc/site.toml:2: Invalid value", 'write host = "x"'),
        ("a = " + "[" * 5000 + "]" * 5000, "/etc/site.toml", ""),
        ("max_workers = " + "1" * 5000, "/etc/site.toml", ""),
        ("max_workers = " + "1" * 4000, "max_workers = 1111111111", ""),
        (
            "lease_seconds = 1e308",
            "lease_seconds = 1e+308 is not a positive number, at most 2,147,483,647",
            "",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_line_and_a_suggestion(
    text: str, words: str, hint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(FILE, text)
    assert words in str(caught.value)
    assert len(caught.value.message) < 500
    assert hint in (caught.value.hint or "")


def test_a_project_s_file_may_not_name_a_library_to_load_and_the_user_s_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "home" / ".config" / "gridengine" / "settings.toml"
    users.parent.mkdir(parents=True)
    users.write_text('drmaa_library = "/opt/libdrmaa.so"')
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": str(tmp_path / "home")}
    assert read_files(environment) == [{"drmaa_library": Setting("/opt/libdrmaa.so", f"{users}:1")}]
    (tmp_path / "gridengine.toml").write_text('max_workers = 2\ndrmaa_library = "./libdrmaa.so"')
    with pytest.raises(
        ConfigurationError, match=r"gridengine\.toml:2: drmaa_library is not read"
    ) as caught:
        read_files(environment)
    assert str(users) in str(caught.value.hint)


def test_the_error_of_a_file_that_may_not_be_read_says_nothing_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path.name)

    monkeypatch.setattr("gridengine.settings.files.open_trusted", refuse)
    with pytest.raises(ConfigurationError, match=r"settings.toml: Permission denied") as caught:
        read_files({"HOME": str(tmp_path)})
    assert "may read it" in str(caught.value.hint)


def test_a_file_that_is_no_text_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gridengine.toml").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/gridengine.toml"):
        read_files({"HOME": "/nosuch"})


EXAMPLES = re.findall(
    r"^```toml\n(.*?)^```",
    (Path(__file__).parents[3] / "docs" / "settings.md").read_text(),
    flags=re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_ready_made_examples_are_right(text: str) -> None:
    assert parse(FILE, text)


def test_each_setting_is_described_in_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    assert {name for name in setting_types() if f"`{name.rpartition('.')[2]}`" not in page} == set()


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
