"""What the process that speaks DRMAA does with cluster tasks that are to go, played with a library
that is not there.
"""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from gridengine.schedulers.grid_engine import drmaa_process
from gridengine.schedulers.grid_engine.drmaa_process import DrmaaServer, failure

ALL = "all"


class DrmaaException(Exception):
    """As the package's."""


ERRORS = {
    name: type(name, (DrmaaException,), {})
    for name in (
        *("InvalidJobException", "InternalException", "DrmCommunicationException"),
        *("TryLaterException", "NoActiveSessionException"),
    )
}
InvalidJobException = ERRORS["InvalidJobException"]
DrmCommunicationException = ERRORS["DrmCommunicationException"]


class Session:
    """A session of the package's that notes what it is asked, and fails when told to."""

    JOB_IDS_SESSION_ALL = ALL
    contact = "session=1"
    drmsInfo = "Some DRM 1.0"

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.problems: list[Exception] = []
        self.states: dict[str, str] = {}
        self.stubborn: set[str] = set()
        """What cannot be deleted, and no more what comes after it when all of the session is to
        go.
        """

    def initialize(self, contact: str | None) -> None:
        self.contact = contact or self.contact

    def control(self, job: str, action: str) -> None:
        assert action == "terminate"
        if self.problems:
            raise self.problems.pop()
        if job in self.stubborn or (job == ALL and self.stubborn):
            raise ERRORS["InternalException"]("already completing or completed")
        self.deleted.append(job)

    def jobStatus(self, job: str) -> str:
        if job not in self.states:
            raise InvalidJobException("gone")
        if self.states[job] in ERRORS:
            raise ERRORS[self.states[job]]("no state")
        return self.states[job]


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def server(session: Session) -> DrmaaServer:
    errors = types.SimpleNamespace(DrmaaException=DrmaaException, **ERRORS)
    package = types.SimpleNamespace(
        Session=session,
        errors=errors,
        JobControlAction=types.SimpleNamespace(TERMINATE="terminate"),
    )
    made = DrmaaServer(package, "")
    made.adopt(["1.1", "1.2", "1.3"], [], [])
    return made


def sweep(server: DrmaaServer) -> int:
    """Delete until there is nothing to do; return how often there was something."""
    count = 0
    while server.sweep():
        count += 1
    return count


@pytest.mark.parametrize(
    ("asked", "sweeps", "deleted"),
    [
        (["1.1 1.2 1.3"], 0, [ALL]),
        (["1.2 1.3"], 2, ["1.2", "1.3"]),
        (["1.2 1.3", "1.1"], 0, [ALL]),
        (["7.1"], 0, []),
    ],
    ids=["all", "some", "some and then the others", "what is not ours"],
)
def test_all_of_a_session_are_deleted_at_once_and_some_one_by_one_when_nothing_else_is_to_be_done(
    server: DrmaaServer, session: Session, asked: list[str], sweeps: int, deleted: list[str]
) -> None:
    for jobs in asked:
        server.terminate(jobs.split())
    assert server.remaining == sweeps
    assert session.deleted == deleted[: len(deleted) - sweeps]
    assert sweep(server) == sweeps
    assert (session.deleted, server.remaining) == (deleted, 0)


def test_a_cluster_task_that_has_ended_is_no_error(server: DrmaaServer, session: Session) -> None:
    session.problems = [InvalidJobException("gone")]
    server.terminate(["1.1", "1.2"])
    assert sweep(server) == 2
    assert session.deleted == ["1.2"]


@pytest.mark.parametrize("state", ["done", "failed", None])
def test_one_that_has_ended_keeps_none_from_being_deleted_whatever_the_library_says_of_it(
    server: DrmaaServer, session: Session, state: str | None
) -> None:
    session.stubborn, session.states = {"1.1"}, {} if state is None else {"1.1": state}
    server.terminate(["1.1", "1.2", "1.3"])
    assert sweep(server) == 3
    assert (session.deleted, server.remaining) == (["1.2", "1.3"], 0)


def test_one_that_cannot_be_deleted_now_keeps_no_other_from_it_and_is_tried_again(
    server: DrmaaServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = drmaa_process.time.monotonic()
    monkeypatch.setattr(drmaa_process.time, "monotonic", lambda: now)
    session.stubborn, session.states = {"1.1"}, {"1.1": "running"}
    server.terminate(["1.1", "1.2", "1.3"])
    assert sweep(server) == 3
    assert (session.deleted, server.remaining) == (["1.2", "1.3"], 1)
    assert not server.sweep()
    session.stubborn.clear()
    now += 60
    assert (server.sweep(), session.deleted[-1], server.remaining) == (True, "1.1", 0)


def test_at_the_end_one_that_has_ended_leaves_none_of_the_others_behind(
    server: DrmaaServer, session: Session
) -> None:
    session.stubborn, session.states = {"1.2"}, {"1.2": "done"}
    server.clean()
    assert sorted(session.deleted) == ["1.1", "1.3"]


def test_one_whose_state_is_an_error_keeps_none_of_the_others_from_being_asked(
    server: DrmaaServer, session: Session
) -> None:
    session.states = {"1.1": "InternalException", "1.2": "running", "1.3": "queued_active"}
    assert server.status(["1.1", "1.2", "1.3"], 10.0) == {
        "1.1": ["undetermined", None],
        "1.2": ["running", None],
        "1.3": ["queued_active", None],
    }


def test_when_no_answer_comes_what_was_learnt_before_is_told(
    server: DrmaaServer, session: Session
) -> None:
    session.states = {"1.1": "running", "1.2": "DrmCommunicationException", "1.3": "running"}
    assert server.status(["1.1", "1.2", "1.3"], 10.0) == {"1.1": ["running", None]}
    with pytest.raises(DrmCommunicationException):
        server.status(["1.2", "1.3"], 10.0)


def test_while_the_batch_system_does_not_answer_it_is_left_in_peace_and_asked_again_later(
    server: DrmaaServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(drmaa_process.time, "monotonic", lambda: now)
    session.problems = [DrmCommunicationException("the master is away")]
    server.terminate(["1.1"])
    for _ in range(2):
        assert (server.sweep(), session.deleted, server.remaining) == (False, [], 1)
    now += drmaa_process.RETRY_SECONDS + 1
    assert (server.sweep(), session.deleted) == (True, ["1.1"])


def test_at_the_end_everything_is_deleted_and_the_guarded_files_removed(
    server: DrmaaServer, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "keys").touch()
    (tmp_path / "other").touch()
    server.guard([str(tmp_path / "keys"), str(tmp_path / "other"), str(tmp_path / "none")])
    server.guard([str(tmp_path / "keys"), str(tmp_path / "none")])
    server.clean()
    assert session.deleted == [ALL]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_at_the_end_those_stay_that_another_goes_on_with(
    server: DrmaaServer, session: Session
) -> None:
    server.keep(["1.1", "1.2"])
    server.keep(["1.2", "7.1"])
    server.clean()
    assert sorted(session.deleted) == ["1.1", "1.3"]


def test_none_is_deleted_with_all_of_a_session_that_another_goes_on_with(
    server: DrmaaServer, session: Session
) -> None:
    server.keep(["1.1"])
    server.terminate(["1.1", "1.2", "1.3"])
    assert (session.deleted, server.remaining) == ([], 3)
    server.keep([])
    server.clean()
    assert session.deleted == [ALL]


def test_who_takes_over_is_told_which_are_to_stay(server: DrmaaServer, session: Session) -> None:
    server.adopt(["2.1", "2.2"], [], [], ["1.1", "1.2", "1.3", "2.2"])
    server.clean()
    assert session.deleted == ["2.1"]


def test_the_end_waits_for_a_master_that_is_away(
    server: DrmaaServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drmaa_process, "RETRY_SECONDS", 0.0)
    session.problems = [
        DrmCommunicationException("the master is away"),
        DrmCommunicationException("the master is away"),
    ]
    server.clean()
    assert session.deleted == [ALL]


def test_an_error_is_told_by_its_name_and_the_library_s_own_words() -> None:
    assert failure(InvalidJobException('code 18: unknown job "7": gone')) == {
        "kind": "InvalidJobException",
        "words": 'unknown job "7": gone',
    }
    assert failure(KeyError()) == {"kind": "KeyError", "words": "KeyError()"}
