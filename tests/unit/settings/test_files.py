"""Settings files: where they are looked for, what they say, in which line they are wrong, and whose
are believed.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.settings import trusted_files
from gridengine.settings.files import layers, parsed, projects_file, told, users_file
from gridengine.settings.schema import known, made
from gridengine.settings.trusted_files import why_not_believed
from gridengine.settings.values import Said, gathered

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
    assert parsed(FILE, text) == {
        "max_workers": Said(12, "/etc/site.toml:2"),
        "grid_engine.memory": Said("mem_free", "/etc/site.toml:4"),
        "grid_engine.tokens": Said({"big": "-q big.q"}, "/etc/site.toml:5"),
        "slurm.tokens": Said({"fast": "--constraint=skylake"}, "/etc/site.toml:6"),
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
        ("\n[slrm]\npartition = 'x'", "/etc/site.toml:2: there is no setting 'slrm'", "'slurm'"),
        ("zzzz = 1", "/etc/site.toml:1: there is no setting 'zzzz'", "there are: run_directory"),
        ("slurm = 'x'", "/etc/site.toml:1: slurm is a table", "[slurm]"),
        ("[max_workers]", "/etc/site.toml:1: max_workers = {} is not a positive whole number", ""),
        (
            "max_workers = '12'",
            "/etc/site.toml:1: max_workers = '12' is not a positive whole number",
            "",
        ),
        (
            "max_workers = true",
            "/etc/site.toml:1: max_workers = True is not a positive whole number",
            "",
        ),
        ("beat_seconds = -1", "/etc/site.toml:1: beat_seconds = -1 is not a positive number", ""),
        ("progress = 'yes'", "/etc/site.toml:1: progress = 'yes' is not true or false", ""),
        ('host = "a\\nb"', "/etc/site.toml:1: host = 'a\\nb' is not a line of text", ""),
        (
            "[slurm]\ntokens = {a = 1}",
            "/etc/site.toml:2: slurm.tokens = {'a': 1} is not a table of texts",
            "",
        ),
        ("\nhost = x", "/etc/site.toml:2: Invalid value", "TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_what_may_be_meant(
    text: str, words: str, hint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(FILE, text)
    assert words in str(caught.value)
    assert hint in (caught.value.hint or "")


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
    said = gathered(environment, layers(environment))
    settings = made({name: one.value for name, one in said.items()})
    assert (settings.host, settings.max_workers, settings.poll_seconds, settings.progress) == (
        "variable",
        2,
        1.0,
        True,
    )
    assert (settings.grid_engine.queue, settings.grid_engine.memory) == ("project.q", "mem_free")
    assert said["host"].by == "GRIDENGINE_HOST"
    assert said["grid_engine.queue"].by == f"{tmp_path}/gridengine.toml:4"
    assert said["grid_engine.memory"].by == f"{users}:6"
    assert said["progress"].by == "default"


def test_a_project_s_file_may_not_name_a_library_to_load_and_the_user_s_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "home" / ".config" / "gridengine" / "settings.toml"
    users.parent.mkdir(parents=True)
    users.write_text('drmaa_library = "/opt/libdrmaa.so"')
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": str(tmp_path / "home")}
    assert layers(environment) == [{"drmaa_library": Said("/opt/libdrmaa.so", f"{users}:1")}]
    (tmp_path / "gridengine.toml").write_text('max_workers = 2\ndrmaa_library = "./libdrmaa.so"')
    with pytest.raises(
        ConfigurationError, match=r"gridengine\.toml:2: drmaa_library is not believed"
    ) as caught:
        layers(environment)
    assert str(users) in str(caught.value.hint)


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
    found = why_not_believed(facts(mode, owner))
    assert doubt in found
    assert bool(doubt) == bool(found)


def test_a_file_that_others_may_write_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gridengine.toml").write_text('[grid_engine]\nnative = "-S /tmp/evil"')
    (tmp_path / "gridengine.toml").chmod(0o666)
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING, logger="gridengine"):
        assert layers({"HOME": "/nosuch"}) == []
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


@pytest.mark.timeout(30)
@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")
@pytest.mark.parametrize("leave", LEFT_OUT, ids=lambda leave: leave.__name__)
def test_whatever_another_user_leaves_in_a_shared_folder_is_left_out(
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
        assert layers({"HOME": "/nosuch"}) == []
    assert (
        f"the settings in {shared}/gridengine.toml are left out: {LEFT_OUT[leave]}" in caplog.text
    )
    assert (
        told(shared / "gridengine.toml")
        == f"{shared}/gridengine.toml (left out: {LEFT_OUT[leave]})"
    )


def test_links_of_one_s_own_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dotfiles" / "deep").mkdir(parents=True)
    (tmp_path / "dotfiles" / "deep" / "mine.toml").write_text("max_workers = 7")
    (tmp_path / "here").symlink_to(tmp_path / "dotfiles")
    (tmp_path / "gridengine.toml").symlink_to("here/deep/../deep/./mine.toml")
    monkeypatch.chdir(tmp_path)
    [said] = layers({"HOME": "/nosuch"})
    assert said["max_workers"].value == 7
    assert told(tmp_path / "gridengine.toml") == f"{tmp_path}/gridengine.toml"


def test_what_is_replaced_while_it_is_looked_at_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gridengine.toml"
    path.write_text("max_workers = 7")
    (tmp_path / "another").write_text("max_workers = 8")
    judge = trusted_files._judge

    def replace_then(*facts: os.stat_result) -> None:
        judge(*facts)
        (tmp_path / "another").rename(path)

    monkeypatch.setattr(trusted_files, "_judge", replace_then)
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING, logger="gridengine"):
        assert layers({"HOME": "/nosuch"}) == []
    assert "somebody replaced it just now" in caplog.text


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "gridengine.toml"
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert told(path) == f"{path} (not there)"
    path.symlink_to("gridengine.toml")
    assert "left out" in told(path)
    path.unlink()
    path.write_text("")
    assert told(path) == str(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_of_one_s_own_that_may_not_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gridengine.toml").write_text("max_workers = 7")
    (tmp_path / "gridengine.toml").chmod(0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot read the settings"):
        layers({"HOME": "/nosuch"})


def test_a_file_that_is_no_text_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gridengine.toml").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/gridengine.toml"):
        layers({"HOME": "/nosuch"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "/etc/site.toml"),
        ("max_workers = " + "1" * 5000, "/etc/site.toml"),
        ("max_workers = " + "1" * 4000, "max_workers = 1111111111"),
        (
            "lease_seconds = 1e308",
            "/etc/site.toml:1: lease_seconds = 1e+308 is not a positive number, at most "
            "2,147,483,647",
        ),
    ],
)
def test_numbers_and_nesting_beyond_all_reason_are_errors_that_fit_into_a_line(
    text: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(FILE, text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_reader_of_toml_is_only_loaded_for_a_file(tmp_path: Path) -> None:
    script = (
        "import sys, gridengine.settings.values as c; c.settings(); print('tomllib' in sys.modules)"
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    without = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (tmp_path / "gridengine.toml").write_text("max_workers = 3")
    having = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (without.stdout, having.stdout) == ("False\n", "True\n")


EXAMPLES = re.findall(
    r"^```toml\n(.*?)^```",
    (Path(__file__).parents[3] / "docs" / "settings.md").read_text(),
    flags=re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_ready_made_examples_are_right(text: str) -> None:
    assert parsed(FILE, text)


def test_each_setting_is_described_in_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    assert {name for name in known() if f"`{name.rpartition('.')[2]}`" not in page} == set()
