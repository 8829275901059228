"""Hypothesis without deadlines: how long an example takes says nothing on a machine that others use
too.
"""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile(
    "gridengine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("gridengine")
