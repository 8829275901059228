"""The folders of stand-alone dispatchers: names, states, and who may run one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    DispatcherState,
    StartOptions,
)
from gridengine.errors import ConfigurationError
from gridengine.journal.lock_file import SILENT_SECONDS, Holder

ELSEWHERE = Holder("elsewhere.example", 4711, 0.0, "1.0")


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, configure: Callable[..., None]) -> None:
    configure(run_directory=tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> DispatcherFolder:
    """Its dispatcher answers where something listens at the socket `s`."""
    made = DispatcherFolder.of("sweeps")
    made.make()
    made.client_file.write_text(f'{{"addresses": ["ipc://{tmp_path}/s"], "server_key": "x"}}')
    return made


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "ä", "a b", "a\n", "x" * 65])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a name for a dispatcher"):
        DispatcherFolder.of(name)


def test_the_second_start_is_told_the_process_of_the_first(folder: DispatcherFolder) -> None:
    lock = folder.take_lock()
    with pytest.raises(ConfigurationError, match="which has yet to say who it is"):
        folder.take_lock()
    holder = Holder.here()
    lock.write(holder)
    with pytest.raises(ConfigurationError, match=f"runs already: process {holder.pid} on "):
        folder.take_lock()
    assert folder.state() is DispatcherState.RUNNING


def test_the_lock_of_one_that_was_killed_is_taken_over(folder: DispatcherFolder) -> None:
    lock = folder.take_lock()
    lock.write(Holder.here())
    lock.close()
    assert folder.state() is DispatcherState.DIED
    lock = folder.take_lock()
    lock.write(None)
    lock.close()
    assert folder.state() is DispatcherState.ENDED


def test_a_dispatcher_that_answers_elsewhere_runs_whatever_locks_say(
    folder: DispatcherFolder, tmp_path: Path
) -> None:
    lock = folder.take_lock()
    lock.write(ELSEWHERE)
    lock.close()
    os.utime(folder.lock, (0, 0))
    with socket.create_server(str(tmp_path / "s"), family=socket.AF_UNIX):
        assert folder.state() is DispatcherState.RUNNING
        with pytest.raises(ConfigurationError, match=r"process 4711 on elsewhere\.example"):
            folder.take_lock()


@pytest.mark.parametrize("held", [True, False])
def test_a_dispatcher_silent_for_long_elsewhere_is_taken_over_whatever_locks_say(
    folder: DispatcherFolder, held: bool
) -> None:
    theirs = folder.take_lock()
    theirs.write(ELSEWHERE)
    if not held:
        theirs.close()
    with pytest.raises(ConfigurationError, match="if that machine is down"):
        folder.take_lock()
    assert folder.state() is DispatcherState.RUNNING
    before = time.time() - SILENT_SECONDS - 5
    os.utime(folder.lock, (before, before))
    ours = folder.take_lock()
    ours.write(Holder.here())
    holder = folder.holder()
    assert holder is not None
    assert holder.is_here
    assert folder.state() is DispatcherState.RUNNING
    theirs_may_end = held and theirs.is_replaced(folder.lock)
    assert theirs_may_end == held
    assert not ours.is_replaced(folder.lock)


def test_a_dispatcher_that_never_ran_has_no_address_and_a_closed_folder(
    folder: DispatcherFolder, tmp_path: Path
) -> None:
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.make()
    assert folder.addresses() == (f"ipc://{tmp_path}/s",)
    folder.client_file.unlink()
    assert folder.addresses() == ()
    assert not folder.answers()


def test_a_dispatcher_never_started_is_told_with_how_to_start_it(folder: DispatcherFolder) -> None:
    with pytest.raises(ConfigurationError, match="gridengine dispatcher start nosuch"):
        DispatcherFolder.of("nosuch").options()
    folder.options_file.write_bytes(msgspec.json.encode(StartOptions("slurm")))
    assert folder.options() == StartOptions("slurm")
    assert DispatcherFolder.all() == [folder]


def test_options_that_cannot_be_read_are_named(folder: DispatcherFolder) -> None:
    folder.options_file.write_bytes(b"{")
    with pytest.raises(ConfigurationError, match=r"options\.json cannot be read"):
        folder.options()
