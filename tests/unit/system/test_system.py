"""What each system does in a way of its own has one meaning."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from gridengine import system
from gridengine.system import (
    data_bytes,
    is_sealed,
    machine,
    nameless_memory,
    open_descriptors,
    openable_memory,
    path_of,
    peer_process,
    peer_user,
    processors,
    release,
    sealed_memory,
    wait_for_signal,
)
from gridengine.system.machine import present_umask
from gridengine.system.polling import Wakeup


def test_an_event_that_was_set_several_times_is_cleared_once() -> None:
    wakeup = Wakeup()
    for _ in range(100_000):
        wakeup.set()
    while True:
        try:
            wakeup.clear()
        except BlockingIOError:
            break
    wakeup.set()
    wakeup.clear()
    assert wakeup.fd in open_descriptors()
    wakeup.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(wakeup.fd)


def test_a_blocked_signal_is_waited_for_only_so_long() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        assert wait_for_signal({signal.SIGUSR2}, 0.01) is None
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
        assert wait_for_signal({signal.SIGUSR2}, 60) == signal.SIGUSR2
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_sealed_memory_keeps_its_content_and_cannot_be_changed() -> None:
    fd = sealed_memory(lambda fd: os.pwrite(fd, b"all", 0))
    assert (os.pread(fd, 9, 0), is_sealed(fd)) == (b"all", True)
    with pytest.raises(OSError, match=r"not permitted|Bad file"):
        os.pwrite(fd, b"other", 0)
    os.close(fd)
    fd = nameless_memory()
    assert not is_sealed(fd)
    os.close(fd)


def test_memory_that_others_can_open_is_gone_with_its_owner() -> None:
    fd, name = openable_memory()
    os.write(fd, b"shared")
    path = Path(path_of(fd, name))
    assert path.read_bytes() == b"shared"
    release(fd, name, os.getpid())
    assert not path.exists()


def test_the_process_at_the_other_end_of_a_socket_is_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert (peer_user(ours), peer_process(ours)) == (os.getuid(), os.getpid())


def test_a_lock_is_of_the_open_file_and_seen_without_taking_it(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w+") as one, (tmp_path / "lock").open("w+") as other:
        assert not machine.is_locked(other.fileno())
        assert machine.lock(one.fileno(), wait=False)
        assert machine.is_locked(other.fileno())
        assert not machine.lock(other.fileno(), wait=False)
        one.close()
        assert machine.lock(other.fileno(), wait=True)


def test_a_name_is_claimed_by_one_at_a_time() -> None:
    name = f"gridengine-test-{os.getpid()}"
    one = machine.claim(name)
    assert one is not None
    assert machine.claim(name) is None
    one()
    again = machine.claim(name)
    assert again is not None
    again()


def test_a_process_that_is_there_is_told_from_one_that_is_not() -> None:
    assert (machine.exists(os.getpid()), machine.exists(1)) == (True, True)
    assert not any(map(machine.exists, (0, 2**22 + 1, 10**30)))
    assert machine.started(os.getpid()) == machine.started(os.getpid()) > 0
    assert machine.started(2**22 + 1) == machine.processor_seconds(2**22 + 1) == 0
    assert machine.this_machine() == machine.this_machine() != ""


def test_the_processors_and_the_umask_of_this_process_are_known() -> None:
    assert processors() == sorted(set(processors())) != []
    before = os.umask(0o027)
    assert present_umask() == 0o027
    os.umask(before)


def test_the_root_of_the_file_system_is_mounted() -> None:
    assert Path("/") in machine.mounts()


@pytest.mark.linux
def test_children_are_found_also_where_the_kernel_lists_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_PROC", str(tmp_path))
    monkeypatch.setattr(psutil.Process, "children", lambda self: [Mock(pid=5)])
    assert system._children() == [5]
    me = os.getpid()
    (tmp_path / f"{me}/task/{me}").mkdir(parents=True)
    (tmp_path / f"{me}/task/{me}/children").write_text("6 7 ")
    assert system._children() == [6, 7]


def test_data_of_a_process_is_told_and_none_of_one_that_is_gone() -> None:
    before = data_bytes()
    held = bytearray(b"x") * (64 * 2**20)
    assert data_bytes() - before >= 0.9 * len(held)
    assert data_bytes(os.getpid()) > 0
    assert data_bytes(2**22 + 1) == 0
