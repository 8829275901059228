"""The arguments of a GridEngineScheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers import GridEngineScheduler


@pytest.mark.parametrize(
    ("native", "seconds"),
    [("--time=2:00:00", 7200), ("-l h_rt=1:00:00", 3600), ("-t 1-10", None), ("", None)],
)
def test_the_time_limit_of_workers_is_read_in_either_system_s_words(
    native: str, seconds: float | None
) -> None:
    assert GridEngineScheduler(native=native).walltime == seconds


def test_a_library_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nolib\.so' is not a file"):
        GridEngineScheduler(drmaa_library=tmp_path / "nolib.so")
    with pytest.raises(TypeError, match="drmaa_library must be a path, not 3"):
        GridEngineScheduler(drmaa_library=3)  # type: ignore[arg-type]
