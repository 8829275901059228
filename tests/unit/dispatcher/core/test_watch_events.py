"""What happens, as who follows is told of it, played on the core."""

from __future__ import annotations

from gridengine.dispatcher.core.events import Explained, Launched, LaunchFailed, SubmittedAlike
from gridengine.dispatcher.core.run_log import (
    MOST_KEPT,
    MOST_OF_KIND,
    WINDOW_SECONDS,
    EventRecorder,
    merged,
)
from gridengine.dispatcher.core.status import Status, WatchEvent
from gridengine.dispatcher.core.tasks import AlikeTasks, Task
from gridengine.errors import ClusterError
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import Goodbye
from tests.support.core_play import SQUARE, Play

LOG = "/runs/x/worker.1.{}.log"


class Followed(Play):
    """A core that somebody follows."""

    def __init__(self, **policy: object) -> None:
        super().__init__(**policy)
        self.recorder = self.core.state.log.events = EventRecorder(now=self.now, ticked_at=self.now)
        self.told = self.recorder.position
        self.left_out: dict[str, int] = {}

    def happened(self) -> list[WatchEvent]:
        """What has happened since this was last asked."""
        events, self.left_out = self.recorder.since(self.told, self.now)
        self.told = self.recorder.position
        return events

    def kinds(self) -> list[str]:
        return [one.kind for one in self.happened()]


def test_while_nobody_follows_nothing_is_taken_in() -> None:
    play = Play()
    play.done(play.running())
    assert play.core.state.log.events is None


def test_a_call_is_told_from_its_submission_to_its_end() -> None:
    play = Followed()
    play.submit(1)
    assert play.happened() == [
        WatchEvent("call waiting", 1, function="square"),
        WatchEvent("worker requested", function="square"),
    ]
    play.play(Launched([Handle("41", LOG.format(1))], asked="-q all.q"))
    play.now += 2.0
    play.hello(log=LOG.format(1))
    [one] = play.assigned()
    queued, connected, started = play.happened()
    assert queued == WatchEvent("worker queued", 1, 2.0, "square", job="41", reason="-q all.q")
    assert connected == WatchEvent("worker connected", host="node-w", job="41")
    assert (started.kind, started.function, started.host) == ("call started", "square", "node-w")
    play.done(one, seconds=1.5)
    done = play.happened()[0]
    assert (done.kind, done.count, done.seconds) == ("call done", one.stop - one.start, 1.5)
    play.play(SubmittedAlike(SQUARE, AlikeTasks(Task(9, ()), [(b"a",), (b"b",)])))
    assert play.happened()[0] == WatchEvent("call waiting", 2, function="square")


def test_a_call_that_is_run_again_and_fails_is_told_with_the_reason() -> None:
    play = Followed()
    one = play.running(retries=1)
    play.happened()
    play.crash(one, 0)
    [again] = play.assigned()
    retried, started = play.happened()
    assert (retried.kind, retried.host, retried.job) == ("call retried", "node-w", "41")
    assert "killed by SIGSEGV" in retried.reason
    assert started.kind == "call started"
    play.crash(again, 0)
    failed = play.happened()[0]
    assert (failed.kind, failed.host) == ("call failed", "node-w")
    assert failed.reason.startswith("WorkerCrashed: ")


def test_a_worker_is_told_from_the_batch_systems_queue_to_its_end() -> None:
    play = Followed(pooled=True, idle_seconds=5.0)
    handle = Handle("41", LOG.format(1))
    play.submit(1)
    play.play(Launched([handle]))
    play.poll(handle, WorkerStatus.QUEUED, "no free slots")
    play.poll(handle, WorkerStatus.RUNNING)
    play.poll(handle, WorkerStatus.RUNNING)
    play.hello(log=LOG.format(1))
    [one] = play.assigned()
    play.now += 1.0
    play.done(one)
    play.later(0.25)
    play.later(0.25)
    play.later(6.0, beats=[b"w"])
    play.say(Goodbye("stopped"))
    kinds = [kind for kind in play.kinds() if kind.startswith("worker")]
    assert kinds == [
        "worker requested",
        "worker queued",
        "worker running",
        "worker connected",
        "worker idle",
        "worker leaving",
        "worker left",
    ]


def test_a_worker_that_is_silent_and_lost_is_told_with_the_reason() -> None:
    play = Followed(beat_seconds=2.0, lease_seconds=60.0)
    play.running()
    play.happened()
    play.later(10.0)
    assert play.kinds() == ["worker silent"]
    play.later(60.0)
    lost = next(one for one in play.happened() if one.kind == "worker lost")
    assert (lost.host, lost.job) == ("node-w", "41")
    assert "has not been heard of for 70 s" in lost.reason


def test_the_schedulers_words_are_told() -> None:
    play = Followed(pooled=True)
    handle = Handle("41", LOG.format(1))
    play.submit(1)
    play.play(Launched([handle]))
    play.happened()
    play.play(Explained(handle, "queue all.q is disabled"))
    play.play(LaunchFailed(ClusterError("unable to contact qmaster"), for_now=True))
    assert play.happened() == [
        WatchEvent("scheduler", job="41", reason="queue all.q is disabled"),
        WatchEvent("scheduler", reason="unable to contact qmaster"),
    ]


def test_of_much_at_a_time_a_sample_is_told_and_how_much_is_left_out() -> None:
    play = Followed()
    for _ in range(MOST_OF_KIND + 5):
        play.submit(10)
    assert play.kinds().count("call waiting") == MOST_OF_KIND
    assert play.left_out == {"call waiting": 50}
    play.now += WINDOW_SECONDS
    play.submit(10)
    assert play.kinds() == ["call waiting"]
    assert play.left_out == {}


def test_who_is_told_late_is_told_of_the_last_and_how_many_were_before() -> None:
    recorder = EventRecorder()
    told = recorder.position
    for number in range(MOST_KEPT + 7):
        recorder.now = number
        recorder.note(WatchEvent("call done", 2))
    events, left_out = recorder.since(told, recorder.now)
    assert len(events) == MOST_KEPT
    assert (events[0].seconds_ago, events[-1].seconds_ago) == (MOST_KEPT - 1, 0)
    assert left_out == {"call done": 14}


def test_of_two_statuses_the_later_is_left_with_the_events_of_both_up_to_so_many() -> None:
    one = Status(elapsed_seconds=1.0, events=[WatchEvent("call done")], left_out={"call done": 3})
    two = Status(elapsed_seconds=3.0, done=2, events=[WatchEvent("worker lost")])
    both = merged(one, two)
    assert both.done == 2
    assert both.events == [WatchEvent("call done", 1, 2.0), WatchEvent("worker lost")]
    assert both.left_out == {"call done": 3}
    one = Status(events=[WatchEvent("call done", 2)] * MOST_KEPT, left_out={"call done": 1})
    both = merged(one, two)
    assert (len(both.events), both.events[-1].kind) == (MOST_KEPT, "worker lost")
    assert both.left_out == {"call done": 3}
