"""What a refusal through DRMAA means, and in which environment a library loads."""

from __future__ import annotations

import pytest

from gridengine.schedulers.grid_engine.drmaa import DrmaaRefused, drmaa_environment


@pytest.mark.parametrize(
    ("words", "for_now"),
    [
        ("job rejected: only 10 jobs are allowed per user (current job count: 10)", True),
        ("job rejected: you tried to submit a job with more than 75000 tasks", False),
        ('unknown resource "nosuch"', False),
        (
            "job rejected: your user id 0 is lower than minimum user id 1000 of cluster "
            "configuration",
            False,
        ),
        ("error: no suitable queues", False),
        ("requested memory exceeds the maximum allowed", False),
    ],
)
def test_only_a_refusal_for_a_limit_is_for_now(words: str, for_now: bool) -> None:
    assert DrmaaRefused("DeniedByDrmException", words).for_now is for_now


def test_the_room_for_the_library_is_added_to_other_tunables() -> None:
    assert drmaa_environment({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, "x")[
        "GLIBC_TUNABLES"
    ] == ("glibc.malloc.arena_max=1:glibc.rtld.optional_static_tls=8192")


def test_relative_folders_of_the_python_path_are_not_passed_on() -> None:
    folders = drmaa_environment({"PYTHONPATH": "here:/there:"}, "x")["PYTHONPATH"].split(":")
    assert "here" not in folders
    assert "/there" in folders
