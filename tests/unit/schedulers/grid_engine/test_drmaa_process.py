"""The messages between a user's process and the one that speaks DRMAA."""

from __future__ import annotations

import ctypes
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridengine.schedulers.grid_engine import drmaa_process
from gridengine.schedulers.grid_engine.drmaa_process import (
    DrmaaServer,
    exit_information,
    failure,
    library_names,
    read_content,
    read_size,
    run_bulk,
    write_message,
)


class Channel:
    """A stream socket on which what was sent arrives in pieces of so many bytes."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.content = b""
        self.most = most
        self.timeouts: list[float] = []

    def sendall(self, data: bytes) -> None:
        self.content += data

    def recv(self, size: int) -> bytes:
        size = min(size, self.most)
        piece, self.content = self.content[:size], self.content[size:]
        return piece

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)


@pytest.mark.parametrize("most", [1, 3, 1 << 20])
@pytest.mark.parametrize("message", [None, [1, "run", {"name": "ä\udcff"}], ["x" * 10_000]])
def test_a_message_comes_back_in_whatever_pieces_it_arrives(message: Any, most: int) -> None:
    channel: Any = Channel(most)
    write_message(channel, message)
    write_message(channel, "next")
    assert read_content(channel, read_size(channel)) == message
    assert read_content(channel, read_size(channel)) == "next"


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\5[1,2"])
def test_an_end_in_the_middle_of_a_message_is_the_end_of_the_other(content: bytes) -> None:
    channel: Any = Channel()
    channel.content = content
    with pytest.raises(ConnectionResetError):
        read_content(channel, read_size(channel))


@pytest.mark.parametrize(
    ("content", "error"), [(b"[1,", json.JSONDecodeError), (b"\xff\xfe\xfd", UnicodeDecodeError)]
)
def test_bytes_that_are_no_message_are_a_value_error(
    content: bytes, error: type[ValueError]
) -> None:
    channel: Any = Channel()
    channel.content = len(content).to_bytes(4, "big") + content
    with pytest.raises(error):
        read_content(channel, read_size(channel))


def test_only_a_caller_with_a_time_limit_sets_one_and_a_past_limit_does_not_block() -> None:
    channel: Any = Channel()
    write_message(channel, 1)
    size = read_size(channel)
    assert channel.timeouts == []
    read_content(channel, size, time.monotonic() - 5)
    assert all(seconds > 0 for seconds in channel.timeouts)
    assert channel.timeouts


class ExitTimeoutException(Exception):
    """As the package's."""


class NoSuchJob(Exception):
    """As the package's."""


class Values(ctypes.Structure):
    """As the package's, of which nothing is known."""


class Library:
    """A library that answers each function as a test says."""

    drmaa_attr_values_t = drmaa_job_ids_t = Values

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.facts: dict[str, int | str] = {}
        self.ids: list[str] = []
        self.released = 0

    def call(self, function: Callable[..., object], *arguments: Any) -> object:
        """As the package's `c`."""
        return function(*arguments)

    def drmaa_wait(self, job: bytes, *arguments: Any) -> None:
        if self.fault is not None:
            raise self.fault

    def __getattr__(self, function: str) -> Callable[..., None]:
        """One of the functions that tell a fact."""
        name = function.removeprefix("drmaa_wif").removeprefix("drmaa_wexit")

        def tell(answer: Any, status: Any) -> None:
            answer._obj.value = self.facts.get(name, 0)

        return tell

    def drmaa_wtermsig(self, name: Any, size: int, status: Any) -> None:
        name.value = str(self.facts["signal"]).encode()

    def drmaa_run_bulk_jobs(self, ids: Any, job: Any, start: int, end: int, step: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.ids = [f"7.{number}" for number in range(start, min(end, 5) + 1, step)]

    def drmaa_get_next_job_id(self, ids: Any, name: Any, size: int) -> None:
        if not self.ids:
            raise StopIteration
        name.value = self.ids.pop(0).encode()

    def drmaa_release_job_ids(self, ids: Any) -> None:
        self.released += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    one = Library()
    package = types.ModuleType("drmaa")
    helpers = types.SimpleNamespace(c=one.call, adapt_rusage=lambda usage: {"cpu": "1.0"})
    errors = types.SimpleNamespace(
        ExitTimeoutException=ExitTimeoutException, InvalidJobException=NoSuchJob
    )
    for name, part in (("wrappers", one), ("helpers", helpers), ("errors", errors)):
        setattr(package, name, part)
        monkeypatch.setitem(sys.modules, f"drmaa.{name}", part)
    monkeypatch.setitem(sys.modules, "drmaa", package)
    return one


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"exited": 1, "status": 3}, {"status": 3}),
        ({"exited": 1, "status": 0}, {"status": 0}),
        ({"signaled": 1, "signal": "SIGKILL"}, {"signal": "SIGKILL"}),
        ({"aborted": 1, "exited": 1, "status": 3}, {"aborted": True}),
        ({}, {}),
    ],
)
def test_the_end_of_a_job_is_told_with_its_usage(
    library: Library, facts: dict[str, int | str], told: dict[str, object]
) -> None:
    library.facts = facts
    assert exit_information("7.1") == {**told, "usage": {"cpu": "1.0"}}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ExitTimeoutException(), None),
        (NoSuchJob("code 18: no such job"), {"words": "code 18: no such job"}),
        (Exception("code 24: no usage"), {"aborted": True, "usage": {}}),
    ],
)
def test_a_job_of_which_there_is_no_record_is_told_apart_from_one_that_runs(
    library: Library, fault: Exception, told: dict[str, object] | None
) -> None:
    library.fault = fault
    assert exit_information("7.1") == told


def test_other_errors_are_raised(library: Library) -> None:
    library.fault = Exception("code 2: DRM communication failure")
    with pytest.raises(Exception, match="communication failure"):
        exit_information("7.1")


@pytest.mark.parametrize(("count", "ids"), [(1, ["7.1"]), (3, ["7.1", "7.2", "7.3"])])
def test_the_tasks_of_an_array_have_ids_in_their_order(
    library: Library, count: int, ids: list[str]
) -> None:
    assert run_bulk(None, count) == ids
    assert library.released == 1


def test_a_shorter_list_is_told_whole(library: Library) -> None:
    assert len(run_bulk(None, 9)) == 5
    assert library.released == 1


def test_a_list_that_was_not_made_is_not_freed(library: Library) -> None:
    library.fault = Exception("refused")
    with pytest.raises(Exception, match="refused"):
        run_bulk(None, 3)
    assert library.released == 0


def test_the_process_names_its_drmaa_library() -> None:
    session = types.SimpleNamespace(drmsInfo="SGE 8.1", drmaaImplementation="libdrmaa 1.0")
    assert library_names(session) == {"system": "SGE 8.1", "implementation": "libdrmaa 1.0"}


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
def test_jobs_of_a_session_are_deleted_at_once_and_single_ones_when_idle(
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
def test_an_ended_job_keeps_no_other_from_being_deleted(
    server: DrmaaServer, session: Session, state: str | None
) -> None:
    session.stubborn, session.states = {"1.1"}, {} if state is None else {"1.1": state}
    server.terminate(["1.1", "1.2", "1.3"])
    assert sweep(server) == 3
    assert (session.deleted, server.remaining) == (["1.2", "1.3"], 0)


def test_a_failed_deletion_keeps_no_other_back_and_is_repeated(
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


def test_an_ended_job_leaves_no_other_behind_at_the_end(
    server: DrmaaServer, session: Session
) -> None:
    session.stubborn, session.states = {"1.2"}, {"1.2": "done"}
    server.clean()
    assert sorted(session.deleted) == ["1.1", "1.3"]


def test_a_job_in_error_keeps_no_other_from_being_asked(
    server: DrmaaServer, session: Session
) -> None:
    session.states = {"1.1": "InternalException", "1.2": "running", "1.3": "queued_active"}
    assert server.status(["1.1", "1.2", "1.3"], 10.0) == {
        "1.1": ["undetermined", None],
        "1.2": ["running", None],
        "1.3": ["queued_active", None],
    }


def test_states_learnt_before_the_answers_stop_are_reported(
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


def test_the_end_deletes_all_jobs_and_guarded_files(
    server: DrmaaServer, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "keys").touch()
    (tmp_path / "other").touch()
    server.guard([str(tmp_path / "keys"), str(tmp_path / "other"), str(tmp_path / "none")])
    server.guard([str(tmp_path / "keys"), str(tmp_path / "none")])
    server.clean()
    assert session.deleted == [ALL]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_jobs_of_a_successor_stay_at_the_end(server: DrmaaServer, session: Session) -> None:
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


def test_a_successor_is_told_which_jobs_are_to_stay(server: DrmaaServer, session: Session) -> None:
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
