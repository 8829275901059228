"""How a job ended, by what DRMAA tells."""

from __future__ import annotations

from gridengine.schedulers.grid_engine.launcher import ending_of
from gridengine.schedulers.launcher import WorkerStatus


def test_how_a_job_ended_is_told_in_words() -> None:
    assert ending_of({"status": 0, "usage": {}}).report.state is WorkerStatus.ENDED
    assert ending_of({"status": 3, "usage": {}}).report.reason == "exit status 3"
    assert ending_of({"signal": "SIGKILL", "usage": {}}).report.reason == "killed by SIGKILL"


def test_an_aborted_job_that_had_started_was_deleted() -> None:
    end = ending_of({"aborted": True, "usage": {"start_time": "1795211090.0000"}})
    assert (end.report.deleted, end.started) == (True, True)


def test_an_aborted_job_without_usage_was_deleted_while_it_waited() -> None:
    end = ending_of({"aborted": True, "usage": {}})
    assert (end.report.deleted, end.started) == (True, False)


def test_an_aborted_job_without_a_start_could_not_be_started() -> None:
    end = ending_of({"aborted": True, "usage": {"submission_time": "1795211089.0000"}})
    assert (end.report.deleted, end.started) == (False, False)


def test_a_job_that_is_no_longer_known_did_not_end_well() -> None:
    assert ending_of({"words": "does not exist"}).report.state is WorkerStatus.FAILED
