"""What jobs print on a real Grid Engine arrives at their caller, and where calls print is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import printing

if TYPE_CHECKING:
    from tests.conftest import GridEngine

pytestmark = pytest.mark.grid_engine


def test_a_script_for_multiprocessing_prints_the_same(grid_engine: GridEngine) -> None:
    printing.check_drop_in_jobs(grid_engine)


def test_where_calls_print_is_said(grid_engine: GridEngine) -> None:
    printing.check_logs_of_calls(grid_engine)
