"""A short run of the fuzzer, whose long run is in `docs/reliability.md`, with all invariants of the
core checked.
"""

from __future__ import annotations

from benchmarks.fuzz import Trial, trials
from gridengine.dispatcher.core.worker_messages import HANDLERS

MESSAGES = 1_500


def test_any_bytes_from_a_socket_are_a_message_or_refused() -> None:
    trial = Trial(checked=True)
    for _, kind, frames, chance in trials(1, MESSAGES):
        trial.give(kind, frames, chance)
    assert sum(trial.outcomes.values()) == MESSAGES
    assert trial.outcomes["mutated: accepted"] > MESSAGES / 10
    assert {handled.__name__ for handled in HANDLERS} <= {*trial.accepted}
