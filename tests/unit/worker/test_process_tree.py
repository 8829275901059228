"""Whom a fork server ends of those that dead runners left behind, and when."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gridengine.worker import process_tree
from gridengine.worker.process_tree import OrphanReaper, end_children, signal_group

OURS, THEIRS, GONE = 41, 42, 43


class System:
    """A clock, and who was sent what."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[int, int]] = []

    def kill(self, pid: int, number: int) -> None:
        if pid == THEIRS:
            raise PermissionError
        if pid == GONE:
            raise ProcessLookupError
        self.sent.append((pid, number))

    def take_sent(self) -> list[tuple[int, int]]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    monkeypatch.setattr(os, "kill", system.kill)
    monkeypatch.setattr(process_tree, "monotonic", lambda: system.now)
    return system


def test_an_orphan_is_asked_to_end_and_killed_when_it_does_not(system: System) -> None:
    orphans = OrphanReaper()
    orphans.end([OURS])
    assert system.take_sent() == [(OURS, signal.SIGTERM), (OURS, signal.SIGCONT)]
    system.now += 0.5
    orphans.end([OURS])
    assert system.take_sent() == []
    assert orphans.wait_seconds() == pytest.approx(0.5)
    system.now += 0.5
    orphans.end([OURS])
    assert system.take_sent() == [(OURS, signal.SIGKILL)]


def test_one_that_has_ended_is_forgotten(system: System) -> None:
    orphans = OrphanReaper()
    orphans.end([OURS, GONE])
    assert orphans
    orphans.end([])
    assert not orphans
    assert orphans.wait_seconds() > 0


def test_one_of_another_user_is_left_alone_and_the_others_end(system: System) -> None:
    orphans = OrphanReaper()
    orphans.end([THEIRS, OURS])
    assert [pid for pid, _ in system.take_sent()] == [OURS, OURS]
    orphans.end([THEIRS])
    assert not orphans


def test_who_ends_its_children_does_not_wait_for_those_of_another_user(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [OURS, THEIRS]

    def end_one(signals: object, seconds: float) -> None:
        left.remove(OURS)

    monkeypatch.setattr(os, "waitpid", lambda pid, options: (0, 0))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, signals: None)
    monkeypatch.setattr(signal, "sigtimedwait", end_one)
    monkeypatch.setattr(process_tree, "children", lambda: list(left))
    end_children()
    assert left == [THEIRS]


@pytest.mark.parametrize(
    ("leads", "pid", "sent"), [(True, 7, [(-7, 2)]), (False, 7, [(7, 2)]), (False, GONE, [])]
)
def test_a_signal_goes_to_a_group_or_to_who_leads_none_yet(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    leads: bool,
    pid: int,
    sent: list[tuple[int, int]],
) -> None:
    def killpg(pid: int, number: int) -> None:
        if not leads:
            raise ProcessLookupError
        system.sent.append((-pid, number))

    monkeypatch.setattr(os, "killpg", killpg)
    signal_group(pid, 2)
    assert system.sent == sent


@pytest.mark.parametrize("listed", [True, False])
def test_children_are_found_also_where_the_kernel_lists_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    for pid, stat in {5: "5 (a) b (c) S 77 5 5", 6: "6 (sleep) S 1 6 6"}.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "stat").write_text(stat)
    if listed:
        (tmp_path / "proc/77/task/77").mkdir(parents=True)
        (tmp_path / "proc/77/task/77/children").write_text("5 ")
    monkeypatch.setattr(process_tree, "Path", lambda path: tmp_path / path[1:])
    monkeypatch.setattr(os, "getpid", lambda: 77)
    assert process_tree.children() == [5]
