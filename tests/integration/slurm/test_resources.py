"""Calls that ask for resources, on a real Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.grid_engine.test_resources import check_mixed, check_own_kinds_that_fail

if TYPE_CHECKING:
    from tests.conftest import Slurm

pytestmark = pytest.mark.slurm


def test_a_mixed_dispatch_is_packed_on_slurm(slurm: Slurm) -> None:
    check_mixed(slurm)


def test_a_kind_of_the_users_own_that_fails_fails_its_own_calls_alone_on_slurm(
    slurm: Slurm,
) -> None:
    check_own_kinds_that_fail(slurm, "SlurmScheduler")
