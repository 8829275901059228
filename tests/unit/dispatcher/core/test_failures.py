"""The errors of calls that did not end by themselves: what they say."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.core import outcomes
from gridengine.dispatcher.core.tasks import CallsFinished
from gridengine.serialize.shared_objects import SharedObject
from tests.support.core_play import Play, chunk, exhausted, lost_for_good


def test_the_error_of_a_crash_names_signal_host_job_log_and_attempts() -> None:
    text = str(exhausted(Play()).error)
    assert "the process that ran call 0 of square was killed by SIGSEGV" in text
    assert "host: node-w" in text
    assert "cluster job: 41" in text
    assert "log: /runs/x/1.log" in text
    assert (
        text.count(
            "attempt: on node-w (cluster job 41), after 1.5 s: its process was killed by SIGSEGV"
        )
        == 3
    )


def test_the_error_names_the_call_of_a_chunk() -> None:
    play = Play()
    one = chunk(play, retries=0)
    play.values(one, 0, 3)
    play.crash(one, 3)
    [settled] = play.seen(CallsFinished)
    assert (settled.start, settled.stop) == (3, 4)
    assert "call 3 of square" in str(settled.error)


def test_the_error_of_a_loss_names_reason_host_job_log_and_attempts() -> None:
    text = str(lost_for_good(Play()).error)
    for part in (
        "its own words",
        "host: node-w",
        "cluster job: 41",
        "log: /runs/x/1.log",
        "attempt: on node-w (cluster job 41)",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("exitcode", "remedy"),
    [
        (-9, "ask for more with resources=Memory(M)"),
        (3, "InlineScheduler()"),
        (-11, "InlineScheduler()"),
    ],
)
def test_the_remedy_of_a_crash_follows_from_how_it_ended(exitcode: int, remedy: str) -> None:
    play = Play()
    play.crash(play.running(retries=0), 0, exitcode=exitcode)
    [settled] = play.seen(CallsFinished)
    assert settled.error is not None
    assert remedy in (settled.error.hint or "")


def test_the_remedy_of_a_crash_by_memory_names_shared_objects_if_the_call_has_any() -> None:
    for needs, named in (((), False), ((SharedObject(b"name of an array", (b"data",)),), True)):
        play = Play()
        play.crash(play.running(needs=needs, retries=0), 0, exitcode=-11)
        [settled] = play.seen(CallsFinished)
        assert settled.error is not None
        assert ("an array of share()" in (settled.error.hint or "")) == named


@pytest.mark.parametrize(
    ("exitcode", "words"),
    [
        (3, "exited with status 3"),
        (-9, "was killed by SIGKILL"),
        (-200, "was killed by signal 200"),
    ],
)
def test_an_exit_code_is_told_in_words(exitcode: int, words: str) -> None:
    assert outcomes.ending_of(exitcode) == words


def test_a_process_of_this_machine_is_no_cluster_job() -> None:
    play = Play()
    play.crash(play.running(log="", retries=0), 0)
    [settled] = play.seen(CallsFinished)
    assert settled.error is not None
    assert settled.error.job is None
