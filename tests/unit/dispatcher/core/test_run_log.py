"""What the log tells of a run, played on the core."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core.events import Closing, Inform, Launched
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.wire.messages import Goodbye
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
def test_what_was_submitted_is_told_with_its_jobs_its_request_and_for_what(
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
    assert lines(play) == [
        "call 0 of square is run again (attempt 2 of 2): on node-w (cluster job 41), after 0.0 s: "
        "its process was killed by SIGSEGV"
    ]


def test_calls_run_again_in_bulk_are_counted() -> None:
    play = Play()
    assert len(crash_again_and_again(play, 40)) == 5
    play.later(11, beats=[b"w"])
    assert "35 more repeated calls within 10 s" in lines(play)
    play.later(11, beats=[b"w"])
    assert not [line for line in lines(play) if "more repeated" in line]


def test_a_lost_worker_is_told_with_the_reason_and_what_it_had() -> None:
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
            "1 call done, 0 failed or cancelled, 0 run again, in 0.0 s; 1 worker connected so far, "
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
    assert line.startswith("1 call done, 0 failed or cancelled, 0 run again, in 12.0 s")
    play.play(Closing())
    assert lines(play) == []
