"""`gridengine dispatcher start --ssh` and `connect`: which words go where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import tunnel
from gridengine.cli.main import main
from gridengine.cli.tunnel import divided
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    FarMachine,
    StartOptions,
)
from gridengine.wire.connection_file import replace_private, to_json

Stayed = list[tuple[Any, ...]]


@pytest.fixture
def stayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> Stayed:
    """What tunnels were asked for."""
    configure(run_directory=tmp_path)
    calls: Stayed = []
    monkeypatch.setattr(tunnel, "stay", lambda *given: calls.append(given))
    return calls


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["dispatcher", *words])


def test_a_start_passes_on_the_words_that_are_for_the_other_machine() -> None:
    words = ["--ssh", "login", "sweeps", "--native=-l a=b", "--remote-python=py", "--foreground"]
    assert divided(words) == (
        ["--ssh", "login", "--remote-python=py"],
        ("sweeps", "--native=-l a=b"),
    )


def test_paths_of_the_far_machine_need_not_be_here(stayed: Stayed) -> None:
    words = ("--scheduler", "site:only_there", "--container", "/only/there.sif", "--cores", "4")
    assert run("start", "sweeps", *words, "--ssh", "login").exit_code == 0
    assert stayed == [("sweeps", "login", None, ("sweeps", *words))]


def test_a_name_that_has_a_tunnel_is_started_where_that_leads(stayed: Stayed) -> None:
    folder = DispatcherFolder.of("sweeps")
    folder.make()
    replace_private(folder.tunnel_file, to_json(FarMachine("login", "py")))
    assert run("start", "sweeps", "--max-workers", "8").exit_code == 0
    assert run("connect", "sweeps").exit_code == 0
    assert stayed == [
        ("sweeps", None, None, ("sweeps", "--max-workers", "8")),
        ("sweeps", None, None),
    ]
    assert tunnel.far_machine(folder, None, None) == FarMachine("login", "py")
    assert tunnel.far_machine(folder, "login", "other") == FarMachine("login", "other")
    assert tunnel.far_machine(folder, "else", None) == FarMachine("else", "python3")


@pytest.mark.usefixtures("stayed")
def test_a_dispatcher_behind_a_closed_tunnel_is_not_said_to_have_ended() -> None:
    folder = DispatcherFolder.of("sweeps")
    folder.make()
    for file, facts in (
        (folder.tunnel_file, FarMachine("login")),
        (folder.options_file, StartOptions("slurm")),
    ):
        replace_private(file, to_json(facts))
    status = run("status", "sweeps")
    assert status.exit_code == 4
    assert "disconnected" in status.output
    for words in (("stop", "sweeps"), ("stop", "sweeps", "--now")):
        result = run(*words)
        assert result.exit_code == 1
        assert "open it: gridengine dispatcher connect sweeps" in result.output
    result = run("restart", "sweeps")
    assert "ssh login 'python3 -m gridengine dispatcher restart sweeps" in result.output


@pytest.mark.usefixtures("stayed")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("start", "--ssh", "login"), "Missing argument 'NAME'"),
        (("start", "sweeps", "--ssh", "login", "--nosuch"), "No such option"),
        (("start", "sweeps", "--remote-python", "py"), "is for a start with --ssh"),
    ],
)
def test_wrong_words_are_told_before_ssh_is_asked(words: tuple[str, ...], told: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


@pytest.mark.parametrize("ssh", [None, "", "-oProxyCommand=x", "two words"])
def test_a_wrong_machine_name_is_refused(
    tmp_path: Path, configure: Callable[..., None], ssh: str | None
) -> None:
    configure(run_directory=tmp_path)
    result = run("connect", "sweeps", *(["--ssh", ssh] if ssh is not None else []))
    assert result.exit_code == 2
    assert "--ssh" in result.output
    assert not DispatcherFolder.of("sweeps").path.exists()
