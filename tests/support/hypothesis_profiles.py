"""How many examples hypothesis tries: `quick` by default, and `--hypothesis-profile=deep`.

The quick profile tries the same examples each time, so that a change alone can turn it red. The
deep one tries twenty times as many, others each time. Neither has deadlines: how long an example
takes says nothing on a machine that others use too.
"""

from __future__ import annotations

from typing import Any

import hypothesis

QUICK = 50
DEEPER = 20


def register() -> None:
    """Make both profiles known, and load the quick one."""
    hypothesis.settings.register_profile(
        "quick",
        max_examples=QUICK,
        derandomize=True,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        print_blob=True,
    )
    hypothesis.settings.register_profile(
        "deep",
        hypothesis.settings.get_profile("quick"),
        max_examples=DEEPER * QUICK,
        derandomize=False,
    )
    hypothesis.settings.load_profile("quick")


def examples(quick: int, **others: Any) -> hypothesis.settings:
    """Return settings with so many examples in the quick profile, and as many times more in the
    profile that is loaded as this has itself.
    """
    loaded = hypothesis.settings().max_examples
    return hypothesis.settings(max_examples=quick * loaded // QUICK, **others)
