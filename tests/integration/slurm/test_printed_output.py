"""What jobs print on a real Slurm arrives at their caller, and where calls print is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import printing

if TYPE_CHECKING:
    from tests.conftest import Slurm

pytestmark = pytest.mark.slurm


def test_a_script_for_multiprocessing_prints_the_same(slurm: Slurm) -> None:
    printing.check_drop_in_jobs(slurm)


def test_where_calls_print_is_said(slurm: Slurm) -> None:
    printing.check_logs_of_calls(slurm)
