"""What a look at stand-alone dispatchers means."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gridengine._version import __version__
from gridengine.cli import dispatcher_checks
from gridengine.dispatcher.standalone import dispatcher_folder
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.journal.lock_file import Holder, LockFile
from gridengine.schedulers.checks import Finding, State
from gridengine.settings.values import Settings
from gridengine.wire.connection_file import write_private


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DispatcherFolder:
    monkeypatch.setattr(dispatcher_folder, "settings", lambda: Settings(run_directory=tmp_path))
    answer(monkeypatch, "")
    made = DispatcherFolder.of("sweeps")
    made.make()
    write_private(made.options_file, msgspec.json.encode(StartOptions("slurm")))
    write_private(made.client_file, b'{"addresses": ["tcp://10.0.0.7:4711"]}')
    return made


def answer(monkeypatch: pytest.MonkeyPatch, why_not: str) -> None:
    monkeypatch.setattr(dispatcher_folder, "why_unreachable", lambda address, seconds: why_not)


def run(folder: DispatcherFolder, version: str = __version__) -> LockFile:
    """Have a dispatcher be run by this process."""
    lock = folder.take_lock()
    lock.write(msgspec.structs.replace(Holder.here(), version=version))
    return lock


def only() -> Finding:
    [found] = dispatcher_checks.findings()
    assert found.check == "dispatcher sweeps"
    return found


def test_one_that_has_ended_is_nothing_to_tell(folder: DispatcherFolder) -> None:
    assert list(dispatcher_checks.findings()) == []


def test_one_that_runs_and_answers_is_fine(folder: DispatcherFolder) -> None:
    run(folder)
    assert only().state is State.OK


def test_one_that_was_killed_is_told_with_who_ran_it(folder: DispatcherFolder) -> None:
    run(folder).close()
    found = only()
    assert found.state is State.BROKEN
    assert "was killed: process" in found.text
    assert "gridengine dispatcher start sweeps" in found.remedy


def test_one_that_does_not_answer_is_told_with_its_addresses(
    folder: DispatcherFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder)
    answer(monkeypatch, "no route")
    found = only()
    assert "does not answer at tcp://10.0.0.7:4711" in found.text
    assert "gridengine dispatcher stop --now sweeps" in found.remedy


def test_one_of_another_version_is_to_be_restarted(folder: DispatcherFolder) -> None:
    run(folder, "0.0.1")
    found = only()
    assert f"runs gridengine 0.0.1, and this is {__version__}" in found.text
    assert found.remedy == "gridengine dispatcher restart sweeps"


@pytest.mark.parametrize("name", ["client.json", "."])
def test_files_that_others_may_look_at_are_named(folder: DispatcherFolder, name: str) -> None:
    (folder.path / name).chmod(0o755)
    found = only()
    assert str(folder.path / name) in found.text
    assert "server.json" in found.remedy


def test_options_that_cannot_be_read_are_told(folder: DispatcherFolder) -> None:
    folder.options_file.write_bytes(b"{")
    assert "cannot be read" in only().text
