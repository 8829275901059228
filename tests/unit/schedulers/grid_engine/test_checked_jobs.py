"""Options with which Grid Engine checks a job in place of taking it."""

from __future__ import annotations

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers.grid_engine.options import check_submits
from gridengine.schedulers.options import split_words


@pytest.mark.parametrize("native", ["-w v", "-l h_rt=60 -w p", "-verify"])
def test_an_option_with_which_no_job_is_taken_is_refused(native: str) -> None:
    with pytest.raises(ConfigurationError, match="has Grid Engine check jobs and take none"):
        check_submits(split_words(native))


@pytest.mark.parametrize("native", ["-w e", "-w n", "-N v", "-N '-w v'"])
def test_others_are_taken(native: str) -> None:
    check_submits(split_words(native))
