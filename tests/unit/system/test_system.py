"""What each system does in a way of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine import system
from gridengine.system import data_bytes


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
    monkeypatch.setattr(system, "_PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(os, "getpid", lambda: 77)
    assert system._children() == [5]


def test_data_of_a_process_is_told_and_none_of_one_that_is_gone() -> None:
    before = data_bytes()
    held = bytearray(64 * 2**20)
    assert data_bytes() - before >= len(held)
    assert data_bytes(os.getpid()) > 0
    assert data_bytes(2**22 + 1) == 0
