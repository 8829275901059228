"""What is odd, by figures alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.status.rows import ConnectedWorkerStatus, FunctionStatus, Status
from gridengine.watching.explanation import explain
from tests.support.watched import WHO

BUSY = ConnectedWorkerStatus(
    *("w1", "node1", 7, "4711.1", "/logs/4711", "busy", 60.0, 1.0, None, 1, 5, 1, 0, 0)
)


def odd_causes(status: Status) -> dict[str, str]:
    return {one.cause: str(one) for one in explain(WatchAnswer(WHO, status))}


def functions(**facts: object) -> dict[str, str]:
    one = FunctionStatus("train", **facts)  # type: ignore[arg-type]
    return odd_causes(Status(running=1, waiting=5, functions=[one]))


def test_very_many_small_calls_are_told_while_there_are_more() -> None:
    assert "3,000 calls of train" in functions(done=3000, mean_seconds=1e-4)["small_calls"]
    assert "small_calls" not in functions(done=3000, mean_seconds=0.1)
    over = Status(functions=[FunctionStatus("train", done=3000, mean_seconds=1e-4)])
    assert "small_calls" not in odd_causes(over)


def test_a_process_that_grows_is_told() -> None:
    found = functions(done=30, grown_memory=300 * 1024**2, peak_memory=900 * 1024**2)
    assert "one has grown by 300 MB, to 900 MB" in found["leak"]


def test_workers_of_which_nothing_is_heard_are_told_though_others_work() -> None:
    silent = replace(BUSY, phase="silent", heard_seconds=40.0)
    status = Status(running=2, workers=[silent], worker_count=2, statuses={"silent": 1, "busy": 1})
    assert "1 of 2 workers" in odd_causes(status)["silent"]
    assert "node1 (cluster job 4711.1), for 40.0 s" in odd_causes(status)["silent"]


def test_a_silent_worker_is_told_before_suspended_ones() -> None:
    silent = replace(BUSY, phase="silent", heard_seconds=40.0)
    suspended = replace(silent, heard_seconds=50.0, host="node2", suspended=True)
    status = Status(workers=[suspended, silent], worker_count=2, statuses={"silent": 2})
    assert "node1 (cluster job 4711.1), for 40.0 s" in odd_causes(status)["silent"]


@pytest.mark.parametrize(("left", "words"), [(90.0, "00:01:30"), (0.0, "0.0 s"), (-5.0, "0.0 s")])
def test_a_worker_whose_time_ends_is_told_though_it_is_over(left: float, words: str) -> None:
    ending = replace(BUSY, left_seconds=left)
    later = replace(BUSY, host="node2", left_seconds=100.0)
    found = odd_causes(Status(running=2, workers=[later, BUSY, ending], worker_count=3))
    assert f"node1 (cluster job 4711.1) leaves in {words}," in found["walltime"]


def test_a_worker_that_has_time_left_is_not_told() -> None:
    assert "walltime" not in odd_causes(Status(running=1, workers=[replace(BUSY, left_seconds=120.0)]))
