"""For how long a worker may be there."""

from __future__ import annotations

import math

import pytest

from gridengine.dispatcher.core.policy import SPARE_SECONDS, Policy, spare_of
from gridengine.resources import Cores, Resource, WTime

HOUR = 3600.0


@pytest.mark.parametrize(("walltime", "spare"), [(HOUR, SPARE_SECONDS), (20.0, 2.0)])
def test_of_a_short_walltime_a_tenth_is_kept_for_leaving(walltime: float, spare: float) -> None:
    assert spare_of(walltime) == spare


@pytest.mark.parametrize(
    ("policy", "held", "stay"),
    [
        (Policy(), Cores(1), math.inf),
        (Policy(), WTime(softT=5.0), math.inf),
        (Policy(), WTime(HOUR), HOUR - SPARE_SECONDS),
        (Policy(margin_seconds=60.0), WTime(HOUR), HOUR + 60.0 - SPARE_SECONDS),
        (Policy(walltime=HOUR), Cores(1), HOUR - SPARE_SECONDS),
        (Policy(walltime=HOUR, margin_seconds=60.0), WTime(60.0), HOUR - SPARE_SECONDS),
    ],
)
def test_a_worker_stays_for_its_walltime_and_leaves_before_it_is_over(
    policy: Policy, held: Resource, stay: float
) -> None:
    assert policy.stay(held) == stay
