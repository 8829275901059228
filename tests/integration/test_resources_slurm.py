"""Calls that ask for resources, on a real Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.test_resources_grid_engine import check_mixed

if TYPE_CHECKING:
    from tests.conftest import Slurm

pytestmark = pytest.mark.slurm


def test_a_mixed_dispatch_is_packed_on_slurm(slurm: Slurm) -> None:
    check_mixed(slurm)
