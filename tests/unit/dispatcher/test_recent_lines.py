"""The last lines of a run's log."""

from __future__ import annotations

from gridengine.dispatcher.recent_lines import MOST_LINES, RecentLines


def test_the_last_are_kept_in_their_order() -> None:
    recent = RecentLines()
    for number in range(MOST_LINES + 2):
        recent.add(str(number), warning=number % 2 == 1)
    assert [(text, warning) for _, text, warning in recent.lines] == [
        (str(number), number % 2 == 1) for number in range(2, MOST_LINES + 2)
    ]
    times = [time for time, _, _ in recent.lines]
    assert times == sorted(times)
