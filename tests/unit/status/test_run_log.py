"""What the log and who follows are told while it happens."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import (
    Closing,
    Explained,
    Inform,
    Launched,
    LaunchFailed,
    Warn,
)
from gridengine.errors import ClusterError
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.status.rows import Status, merged
from gridengine.status.run_log import RunLog
from gridengine.status.watch_events import (
    MOST_EVENTS,
    MOST_OF_KIND,
    WINDOW_SECONDS,
    EventRecorder,
    WatchEvent,
)
from gridengine.wire.messages import RETRYABLE, Goodbye, Result, Results
from tests.support.core_play import Play

LOG = "/runs/x/worker.1.{}.log"


def lines(play: Play) -> list[str]:
    return [effect.text for effect in play.seen(Inform)]


def crash_again_and_again(play: Play, times: int) -> list[str]:
    """Have a call be run again so often; return what is told of it."""
    one = play.running(retries=times)
    told: list[str] = []
    for _ in range(times):
        play.crash(one, 0)
        told += lines(play)
        [one] = play.assigned()
    return told


@pytest.mark.parametrize(
    ("jobs", "options", "words"),
    [
        (["4.1", "4.2", "4.3"], {}, "3 workers for square, cluster job 4.1-3: -q all.q"),
        (["7", "8", "9_1"], {}, "3 workers for square, cluster jobs 7, 8, 9_[1]: -q all.q"),
        (["77"], {}, "1 worker for square, process 77: -q all.q"),
        (["77"], {"name": "reader"}, "1 worker for reader, process 77: -q all.q"),
    ],
)
def test_submissions_are_told_with_jobs_request_and_purpose(
    jobs: list[str], options: dict[str, str], words: str
) -> None:
    play = Play(pooled=True)
    play.submit(*[1] * len(jobs), watched=bool(options), **options)
    logs = [LOG.format(job) if len(jobs) > 1 else "" for job in jobs]
    play.play(Launched(list(map(Handle, jobs, logs)), asked="-q all.q"))
    assert lines(play) == [f"launched {words}"]


def test_the_first_worker_is_told_with_how_long_it_took_and_the_second_is_not() -> None:
    play = Play(pooled=True)
    play.submit(1, 1)
    play.play(Launched([Handle("8.1", LOG.format(1)), Handle("8.2", LOG.format(2))]))
    play.now += 3.25
    play.hello(b"a", log=LOG.format(1))
    assert lines(play) == [
        f"worker 7 on node-a (cluster job 8.1, log {LOG.format(1)}) connected after 3.2 s"
    ]
    play.hello(b"b", log=LOG.format(2))
    assert lines(play) == []


def test_a_worker_that_connects_before_its_launch_is_known_is_told_then() -> None:
    play = Play()
    play.submit(1)
    play.hello(pid=77)
    assert lines(play) == []
    play.play(Launched([Handle("77")]))
    assert lines(play)[1] == "worker 77 on node-w connected after 0.0 s"


def test_a_call_that_is_run_again_is_told_with_the_reason() -> None:
    play = Play()
    one = play.running(2, retries=1)
    play.crash(one, 0)
    assert [effect.text for effect in play.seen(Warn)] == [
        "call 0 of square is run again (attempt 2 of 2): on node-w (cluster job 41), after 0.0 s: "
        "its process was killed by SIGSEGV"
    ]
    assert lines(play) == []


def test_the_first_call_run_again_after_a_kill_is_a_warning() -> None:
    play = Play()
    one = play.running(retries=2)
    play.crash(one, 0)
    assert (len(play.seen(Warn)), lines(play)) == (1, [])
    [again] = play.assigned()
    play.crash(again, 0)
    assert (play.seen(Warn), len(lines(play))) == ([], 1)


def test_calls_that_are_run_again_since_they_raised_are_warned_of_by_nobody() -> None:
    play = Play()
    one = play.running(retries=1)
    play.say(Results([Result(one.run, 0, 1, RETRYABLE, 0.1)]), b"exception")
    assert (play.seen(Warn), len(lines(play))) == ([], 1)


def test_calls_run_again_in_bulk_are_counted() -> None:
    play = Play()
    assert len(crash_again_and_again(play, 40)) == 5
    play.later(11, beats=[b"w"])
    assert "34 more repeated calls within 10 s" in lines(play)
    play.later(11, beats=[b"w"])
    assert not [line for line in lines(play) if "more repeated" in line]


def test_a_lost_worker_is_reported_with_the_reason_and_its_calls() -> None:
    play = Play(pooled=True)
    play.running(log=LOG.format(1))
    play.poll(Handle("41", LOG.format(1)), WorkerStatus.FAILED, "killed by SIGKILL")
    play.later(1)
    told = [line for line in lines(play) if line.startswith("lost")]
    assert told == [
        f"lost worker 7 on node-w (cluster job 41, log {LOG.format(1)}), which ended: killed by "
        "SIGKILL; 1 call had not ended on it"
    ]


def test_a_worker_that_was_told_to_leave_is_not_lost() -> None:
    play = Play(idle_seconds=1)
    one = play.running()
    play.done(one)
    play.later(5, beats=[b"w"])
    play.say(Goodbye("stopped"))
    assert lines(play) == []


@pytest.mark.parametrize("called", [True, False])
def test_figures_are_told_at_the_end_where_there_were_calls(called: bool) -> None:
    play = Play()
    if called:
        play.learn(1.0)
    play.play(Closing())
    assert (
        lines(play)
        == [
            "1 call done, 0 failed, 0 cancelled, 0 run again, in 0.0 s; 1 worker connected so far, "
            "0 lost"
        ]
        * called
    )


def test_figures_of_calls_that_took_long_are_told_when_they_have_ended() -> None:
    play = Play()
    one = play.running()
    for _ in range(12):
        play.later(1, beats=[b"w"])
        assert lines(play) == []
    play.done(one)
    play.later(1, beats=[b"w"])
    [line] = lines(play)
    assert line.startswith("1 call done, 0 failed, 0 cancelled, 0 run again, in 12.0 s")
    play.play(Closing())
    assert lines(play) == []


def test_cancelled_calls_are_told_apart_from_failed_ones_and_where_output_is() -> None:
    log = RunLog(output="what calls printed is below /runs/x")
    [line] = log.closed((3, 2, 1, 4), 0.0)
    assert line.startswith("3 calls done, 2 failed, 1 cancelled, 4 run again, in ")
    assert line.endswith("0 lost; what calls printed is below /runs/x")


JOB_LOG = "/runs/x/worker.1.{}.log"


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
    play.play(Launched([Handle("41", JOB_LOG.format(1))], asked="-q all.q"))
    play.now += 2.0
    play.hello(log=JOB_LOG.format(1))
    [one] = play.assigned()
    queued, connected, started = play.happened()
    assert queued == WatchEvent("worker queued", 1, 2.0, "square", job="41", reason="-q all.q")
    assert connected == WatchEvent("worker connected", host="node-w", job="41")
    assert (started.kind, started.function, started.host) == ("call started", "square", "node-w")
    play.done(one, seconds=1.5)
    done = play.happened()[0]
    assert (done.kind, done.count, done.seconds) == ("call done", one.stop - one.start, 1.5)
    play.submit(1, 1)
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
    handle = Handle("41", JOB_LOG.format(1))
    play.submit(1)
    play.play(Launched([handle]))
    play.poll(handle, WorkerStatus.QUEUED, "no free slots")
    play.poll(handle, WorkerStatus.RUNNING)
    play.poll(handle, WorkerStatus.RUNNING)
    play.hello(log=JOB_LOG.format(1))
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
    handle = Handle("41", JOB_LOG.format(1))
    play.submit(1)
    play.play(Launched([handle]))
    play.happened()
    play.play(Explained(handle, "queue all.q is disabled"))
    play.play(LaunchFailed(ClusterError("unable to contact qmaster"), for_now=True))
    assert play.happened() == [
        WatchEvent("scheduler", job="41", reason="queue all.q is disabled"),
        WatchEvent("scheduler", reason="unable to contact qmaster"),
    ]


def test_a_burst_of_events_is_told_by_a_sample_and_the_number_left_out() -> None:
    play = Followed()
    for _ in range(MOST_OF_KIND + 5):
        play.submit(10)
    assert play.kinds().count("call waiting") == MOST_OF_KIND
    assert play.left_out == {"call waiting": 50}
    play.now += WINDOW_SECONDS
    play.submit(10)
    assert play.kinds() == ["call waiting"]
    assert play.left_out == {}


def test_a_late_reader_is_told_the_last_events_and_how_many_came_before() -> None:
    recorder = EventRecorder()
    told = recorder.position
    for number in range(MOST_EVENTS + 7):
        recorder.now = number
        recorder.note(WatchEvent("call done", 2))
    events, left_out = recorder.since(told, recorder.now)
    assert len(events) == MOST_EVENTS
    assert (events[0].seconds_ago, events[-1].seconds_ago) == (MOST_EVENTS - 1, 0)
    assert left_out == {"call done": 14}


def test_merged_statuses_keep_the_later_and_the_events_of_both() -> None:
    one = Status(elapsed_seconds=1.0, events=[WatchEvent("call done")], left_out={"call done": 3})
    two = Status(elapsed_seconds=3.0, done=2, events=[WatchEvent("worker lost")])
    both = merged(one, two)
    assert both.done == 2
    assert both.events == [WatchEvent("call done", 1, 2.0), WatchEvent("worker lost")]
    assert both.left_out == {"call done": 3}
    one = Status(events=[WatchEvent("call done", 2)] * MOST_EVENTS, left_out={"call done": 1})
    both = merged(one, two)
    assert (len(both.events), both.events[-1].kind) == (MOST_EVENTS, "worker lost")
    assert both.left_out == {"call done": 3}
