"""A dispatcher that is to end: what runs ends, nothing else begins."""

from __future__ import annotations

from gridengine.dispatcher.core.events import Drained, Draining, Launch
from gridengine.dispatcher.core.tasks import Submitted, Task
from gridengine.wire.messages import Waits
from tests.support.core_play import SQUARE, Play


def test_what_waits_does_not_begin_and_what_runs_is_waited_for() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    [running] = play.assigned()
    play.play(Draining())
    assert not play.seen(Drained)
    play.submit(1)
    assert not play.assigned()
    play.done(running)
    assert play.seen(Drained)
    assert not play.assigned()
    play.later(1.0, beats=[b"w"])
    assert not play.assigned()
    assert not play.seen(Launch)


def test_a_running_call_gets_what_it_calls_itself() -> None:
    play = Play()
    play.hello()
    play.submit(1)
    [parent] = play.assigned()
    play.play(Draining())
    child = Task(play.last_task + 1, (b"calls",), submitter=100)
    play.play(Submitted(SQUARE, [child], parent=parent.run))
    play.say(Waits(3, parent.run))
    assert [one.task for one in play.assigned()] == [child.id]
