from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from gridengine.call_context.environment import (
    EXPORTED,
    KEPT,
    LOG,
    NONE_GIVEN,
    SCRATCH,
    SITE,
    CallEnvironment,
    SiteEnvironment,
    changes_since,
    own_variables,
    set_variables,
)
from gridengine.wire.messages import CallerState


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Put back what the tests change in this process."""
    variables, argv, umask = dict(own_variables()), list(sys.argv), os.umask(0o022)
    yield
    set_variables({name: variables.get(name) for name in own_variables().keys() | variables.keys()})
    sys.argv = argv
    os.umask(umask)


def caller(**variables: str) -> CallerState:
    text = "\0".join(f"{name}={value}" for name, value in variables.items())
    return CallerState(text.encode(), 0o027, (b"script.py", b"-v"))


def site(kept: tuple[str, ...] = (), exported: tuple[str, ...] = (), **own: str) -> SiteEnvironment:
    return SiteEnvironment(
        {name.encode(): value.encode() for name, value in own.items()},
        frozenset(name.encode() for name in kept),
        frozenset(name.encode() for name in exported),
    )


def merged(where: SiteEnvironment, **variables: str) -> dict[str, str]:
    found = where.merged({name.encode(): value.encode() for name, value in variables.items()})
    return {name.decode(): value.decode() for name, value in found.items()}


# ---------------------------------------------------------------- elsewhere


@pytest.mark.parametrize(
    "name",
    [
        *("TMPDIR", "HOSTNAME", "DISPLAY", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "KRB5CCNAME"),
        *("DBUS_SESSION_BUS_ADDRESS", "SGE_TASK_ID", "JOB_ID", "NSLOTS", "SLURM_JOB_ID"),
        *("PBS_JOBID", "PMI_RANK", "GRIDENGINE_JOB_END"),
    ],
)
def test_variables_of_a_machine_login_or_batch_job_stay_there(name: str) -> None:
    assert merged(site(), **{name: "caller's"}) == {}
    assert merged(site(exported=(name,), **{name: "own"}), **{name: "caller's"}) == {name: "own"}


@pytest.mark.parametrize("name", ["HOME", "TERM", "OMP_NUM_THREADS", "QUEUE_LENGTH", "TMPDIRS"])
def test_other_variables_travel(name: str) -> None:
    assert merged(site(**{name: "own"}), **{name: "caller's"}) == {name: "caller's"}


@pytest.mark.parametrize(
    ("where", "caller_s", "found"),
    [
        (site(), {"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "2"}),
        (site(CUDA_VISIBLE_DEVICES="0"), {"CUDA_VISIBLE_DEVICES": "2"}, None),
        (site(exported=("A",), A="1", B="2"), {}, {"B": "2"}),
        (site(("P", "GONE"), ("P", "GONE"), P="/opt"), {"P": "/home", "GONE": "1"}, None),
        (site(kept=(SITE,), exported=("A",), A="1"), {"B": "2"}, None),
    ],
    ids=[
        "GPUs are the caller's choice",
        "unless the batch system has granted some",
        "what came along and is the caller's no more is gone",
        "what the prologue has set or removed stays so",
        "where the site's are wanted there are no others",
    ],
)
def test_a_call_has_its_caller_s_variables(
    where: SiteEnvironment, caller_s: dict[str, str], found: dict[str, str] | None
) -> None:
    """Without another answer, those of the site alone."""
    own = {name.decode(): value.decode() for name, value in where.own.items()}
    assert merged(where, **caller_s) == (own if found is None else found)


def test_where_no_files_are_shared_the_caller_s_paths_stay_behind() -> None:
    own = {b"HOME": b"/scratch", b"PATH": b"/usr/bin"}
    apart = SiteEnvironment(own, frozenset(), frozenset({b"PATH"}), scratch="/scratch")
    said = {"HOME": "/home/me", "DATA": "~/data", "LIBRARIES": "a:/opt/b", "PATH": "/home/me/bin"}
    assert merged(apart, **said) == {"HOME": "/scratch", "PATH": "/usr/bin"}
    others = {"OMP_NUM_THREADS": "2", "PROXY": "http://proxy:3128/", "RATIO": "1/2"}
    assert merged(apart, **others) == {"HOME": "/scratch", "PATH": "/usr/bin", **others}


def test_a_worker_knows_from_its_script_whose_its_variables_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEPT, "A=B")
    monkeypatch.setenv(EXPORTED, "PATH=A")
    monkeypatch.setenv(SCRATCH, "/scratch")
    monkeypatch.setenv(LOG, "logs/worker.1.0.log")
    here = SiteEnvironment.here()
    assert here.scratch == "/scratch"
    assert here.set_here == {b"A", b"B"}
    assert here.exported == {b"PATH", b"A"}
    assert not {KEPT, EXPORTED, SCRATCH} & os.environ.keys()
    assert here.own == {
        name: value for name, value in own_variables().items() if name != LOG.encode()
    }


# ---------------------------------------------------------------- one call after the other


def test_calls_have_the_variables_umask_and_arguments_of_their_caller() -> None:
    CallEnvironment(None).enter(caller(A="1", B="x=y"), NONE_GIVEN, alone=False)
    assert dict(os.environ) == {"A": "1", "B": "x=y"}
    assert os.umask(0) == 0o027
    assert sys.argv == ["script.py", "-v"]


def test_a_call_that_spoils_the_arguments_spoils_no_others() -> None:
    environment = CallEnvironment(None)
    for number in "123":
        environment.enter(caller(A=number), NONE_GIVEN, alone=False)
        assert sys.argv == ["script.py", "-v"]
        sys.argv = ("a", "tuple")  # type: ignore[assignment]


def test_a_variable_without_a_name_is_left_alone() -> None:
    before = CallerState(b"=x\0A=1", 0o022)
    CallEnvironment(None).enter(before, NONE_GIVEN, alone=False)
    assert dict(os.environ) == {"A": "1"}


def test_changes_of_a_call_stay_for_calls_of_the_same_caller_alone() -> None:
    environment = CallEnvironment(None)
    environment.enter(caller(A="1"), NONE_GIVEN, alone=False)
    os.environ["A"], os.environ["B"] = "2", "3"
    environment.enter(caller(A="1"), NONE_GIVEN, alone=False)
    assert dict(os.environ) == {"A": "2", "B": "3"}
    environment.enter(caller(A="4"), NONE_GIVEN, alone=False)
    assert dict(os.environ) == {"A": "4"}


def test_a_job_sees_no_earlier_change_and_leaves_none_to_the_next_call() -> None:
    environment = CallEnvironment(None)
    for alone in (False, True, True, False):
        environment.enter(caller(A="1"), NONE_GIVEN, alone=alone)
        assert dict(os.environ) == {"A": "1"}
        os.environ["A"], os.environ["B"] = "2", "3"


def test_variables_of_an_allocation_win_and_go_with_it() -> None:
    environment = CallEnvironment(None)
    environment.enter(caller(GPUS="0,1", A="1"), NONE_GIVEN, alone=False)
    os.environ["B"] = "left by a call"
    environment.enter(caller(GPUS="0,1", A="1"), {b"GPUS": b"1", b"T": b"1"}, alone=False)
    assert dict(os.environ) == {"GPUS": "1", "T": "1", "A": "1", "B": "left by a call"}
    environment.enter(caller(GPUS="0,1", A="1"), MappingProxyType({}), alone=False)
    assert dict(os.environ) == {"GPUS": "0,1", "A": "1", "B": "left by a call"}


def test_without_a_caller_s_they_are_those_that_the_process_began_with() -> None:
    began = dict(os.environ)
    environment = CallEnvironment(None)
    environment.enter(caller(A="1"), NONE_GIVEN, alone=False)
    environment.enter(None, NONE_GIVEN, alone=False)
    assert dict(os.environ) == began


def test_changes_can_be_made_again() -> None:
    os.environ["A"], os.environ["B"] = "1", "2"
    before = dict(own_variables())
    os.environ["A"] = "3"
    del os.environ["B"]
    changes = changes_since(before)
    assert changes == {b"A": b"3", b"B": None}
    os.environ["A"], os.environ["B"] = "1", "2"
    set_variables(changes)
    assert os.environ["A"] == "3"
    assert "B" not in os.environ


def test_numbas_number_of_threads_stays_once_numba_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numba", sys)
    os.environ["NUMBA_NUM_THREADS"] = "2"
    set_variables({b"NUMBA_NUM_THREADS": None, b"A": b"1"})
    set_variables({b"NUMBA_NUM_THREADS": b"1"})
    assert (os.environ["NUMBA_NUM_THREADS"], os.environ["A"]) == ("2", "1")
    monkeypatch.undo()
    set_variables({b"NUMBA_NUM_THREADS": None})
    assert "NUMBA_NUM_THREADS" not in os.environ


def test_the_local_time_is_that_of_the_variable_of_the_time_zone() -> None:
    set_variables({b"TZ": b"UTC-9"})
    assert time.localtime(0).tm_hour == 9
    set_variables({b"TZ": b"UTC"})
    assert time.localtime(0).tm_hour == 0
