"""What the process of a trivial job says of it."""

from __future__ import annotations

import pytest

from gridengine.cli.trial_job import judge
from gridengine.schedulers.checks import State


@pytest.mark.parametrize(
    ("output", "errors", "state", "words"),
    [
        ('{"host": "node7", "seconds": 0.42}\n', "", State.OK, "returned from node7 in 0.4 s"),
        ('a line of a prologue\n{"host": "node7", "seconds": 0.42}\n', "", State.OK, "node7"),
        ('{"error": "refused: no", "hint": null}\n', "", State.BROKEN, "refused: no"),
        ("", "Traceback\nValueError: odd\n", State.BROKEN, "ValueError: odd"),
        ("", "", State.BROKEN, "died"),
    ],
)
def test_what_a_trivial_job_s_process_said_is_judge(
    output: str, errors: str, state: State, words: str
) -> None:
    finding = judge("grid_engine", output, errors, 1.0)
    assert finding.state is state
    assert words in finding.text
    assert bool(finding.remedy) == (state is State.BROKEN)
