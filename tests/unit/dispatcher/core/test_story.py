"""What has happened to calls and workers lately, and the moves that are no arrow of the table."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core import calls as module
from gridengine.dispatcher.core.calls import CALL_MOVES, Broken, Span, Story
from gridengine.dispatcher.core.model import NEXT_PHASES
from gridengine.wire.messages import Returned
from tests.support.core_play import Play


def test_the_story_of_a_call_and_of_its_worker_can_be_asked_for() -> None:
    play = Play()
    one = play.running()
    play.now += 1
    play.say(Returned([one.run]))
    play.done(*play.assigned())
    assert play.core.story_of(1) == [
        "100.000 Received: calls 0 to 1 are assigned to 77 as run 1",
        "101.000 Received: calls 0 to 1 are waiting again",
        "101.000 Received: calls 0 to 1 are assigned to 77 as run 2",
        "101.000 Received: calls 0 to 1 are settled",
    ]
    assert play.core.story_of(b"w") == [
        "100.000 Received: says Hello",
        "101.000 Received: says Returned",
        "101.000 Received: says Results",
    ]


def test_a_move_that_is_no_arrow_is_a_fault() -> None:
    play = Play()
    play.running(2)
    [one] = play.core.state.open_tasks.values()
    story = play.core.state.story
    assert story is not None
    story.move(Span(one, 0, 1, one.task.demand), "missing")
    with pytest.raises(Broken, match="call 0 of task 1 is missing: not missing"):
        story.move(Span(one, 0, 1, one.task.demand), "missing")


def test_the_last_lines_of_the_last_subjects_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 2)
    monkeypatch.setattr(module, "MOST_SUBJECTS", 2)
    story = Story()
    for subject in (1, 2, 1, 1, 3):
        story.begin(object(), float(subject))
        story.add(subject, "something")
    assert [len(story.of(subject)) for subject in (1, 2, 3)] == [2, 0, 1]


@pytest.mark.parametrize("table", [CALL_MOVES, NEXT_PHASES])
def test_each_arrow_leads_to_a_state_and_one_state_is_the_last(table: dict[object, set]) -> None:
    assert set().union(*table.values()) <= table.keys()
    assert [state for state, arrows in table.items() if not arrows] == [list(table)[-1]]
