"""Which processors and GPUs of a machine a worker's numbers stand for."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridengine.call_context import process_resources
from gridengine.call_context.process_resources import (
    MOST_CLAIMS,
    THREADS,
    KillCounter,
    MemoryLimit,
    Processors,
    bind_process,
    default_threads,
    killed_for_memory,
    processors_for,
    threads_of_call,
)
from gridengine.system import bind_to, processors, usable_processors
from gridengine.wire.messages import Allocate


@pytest.fixture(autouse=True)
def claims_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is bound to the processors 4 and 5, and no other process on this machine claims
    processors by these names.
    """
    monkeypatch.setattr(process_resources, "CLAIM", f"gridengine-test-{os.getpid()}")
    monkeypatch.setattr(process_resources, "processors", lambda: [4, 5])


@pytest.mark.parametrize(
    ("cores", "exact", "meant"), [([1, 0], False, [5, 4]), ([1, 3], True, [1, 3])]
)
def test_cores_are_the_processors_that_the_worker_is_bound_to_or_those_that_the_user_named(
    cores: list[int], exact: bool, meant: list[int]
) -> None:
    assert Processors(2).resolve(Allocate(1, 2, cores=cores, exact=exact)).cores == meant


def test_a_call_has_as_many_cores_as_it_asked_for_where_there_are_fewer_processors() -> None:
    worker = Processors(1)
    assert worker.resolve(Allocate(1, 2, cores=[0, 1])).cores == [4, 5]
    assert worker.resolve(Allocate(1, 4, cores=[0, 1, 2, 3])).cores == [4, 5, 0, 1]


@pytest.mark.parametrize(
    ("workers", "cores", "meant"),
    [
        (6, 1, [4, 5, 5, 4, 4, 5]),  # more workers than processors
        (3, 2, [4, 5, 4]),  # each has all of them, and begins with another
    ],
)
def test_workers_that_nobody_bound_share_the_processors_evenly(
    workers: int, cores: int, meant: list[int]
) -> None:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(contextlib.closing(Processors(cores))) for _ in range(workers)]
        first = [one.resolve(Allocate(1, 1, cores=[0])).cores for one in made]
    assert list(itertools.chain(*first)) == meant


def test_processors_are_taken_in_the_end_though_others_claim_them() -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_CLAIMS + 1):
            worker = stack.enter_context(contextlib.closing(Processors(2)))
            cores = worker.resolve(Allocate(1, 1, cores=[0])).cores
    assert cores == [4]


@pytest.mark.parametrize(
    ("cores", "meant"),
    [([4, 5], {4, 5}), ([4, 5, 0, 1], {4, 5}), ([0, 1], {4, 5}), ([1], {5}), ([4, 0], {4, 5})],
)
def test_cores_that_are_no_processors_share_those_of_others(
    cores: list[int], meant: set[int]
) -> None:
    assert processors_for(cores, [4, 5]) == meant


@pytest.fixture
def allowed() -> Iterator[list[int]]:
    """The processors that this process may use, to which it is bound again after the test."""
    before = processors()
    yield before
    bind_to(before)


@pytest.mark.parametrize(
    ("message", "threads"),
    [
        (Allocate(1, 2, cores=[0]), b"2"),
        (Allocate(1, 4, cores=[0], threads=2), b"2"),
        (Allocate(1, 4, threads=3), b"3"),
        (Allocate(1, 4), None),
    ],
)
def test_libraries_are_told_how_many_threads_a_process_may_have(
    allowed: list[int], message: Allocate, threads: bytes | None
) -> None:
    assert bind_process(message, allowed).get(b"OMP_NUM_THREADS") == threads


def test_libraries_are_told_the_gpus_of_a_call() -> None:
    assert bind_process(Allocate(1, 1, gpus=[0, "GPU-1"]), [0]) == {
        b"CUDA_VISIBLE_DEVICES": b"0,GPU-1"
    }


def test_settings_of_openmp_do_not_hold_for_other_libraries() -> None:
    assert default_threads(2, {}) == dict.fromkeys(map(os.fsencode, THREADS), b"2")
    told = default_threads(2, {b"OMP_NUM_THREADS": b"8", b"POLARS_MAX_THREADS": b"4"})
    assert told == {b"NUMBA_NUM_THREADS": b"2", b"RAYON_NUM_THREADS": b"2"}
    assert default_threads(0, {}) == {}


def test_resources_not_asked_for_are_left_alone() -> None:
    assert Processors(1).resolve(Allocate(1, 1)) == Allocate(1, 1)


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("", [0, 1]), ("3,5", [3, 5]), ("GPU-a, GPU-b", ["GPU-a", "GPU-b"]), ("7", [7, 1])],
)
def test_gpus_are_those_that_the_worker_may_see(
    monkeypatch: pytest.MonkeyPatch, visible: str, gpus: list[int | str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert Processors(1).resolve(Allocate(1, 1, gpus=[0, 1])).gpus == gpus


GIGABYTE = 2**30


@pytest.mark.parametrize(
    ("exitcode", "peak", "limit", "kernel", "verdict"),
    [
        (-signal.SIGKILL, 0, 0, True, True),
        (-signal.SIGKILL, 0, 0, False, False),
        (-signal.SIGSEGV, 0, 0, True, False),
        (-signal.SIGABRT, 0, GIGABYTE, False, True),
        (-signal.SIGABRT, 0, 0, False, False),
        (-signal.SIGSEGV, GIGABYTE, GIGABYTE, False, True),
        (-signal.SIGSEGV, GIGABYTE // 4, GIGABYTE, False, False),
        (1, GIGABYTE, GIGABYTE, False, False),
    ],
)
def test_a_death_for_want_of_memory_is_told_from_others(
    exitcode: int, peak: int, limit: int, kernel: bool, verdict: bool
) -> None:
    assert killed_for_memory(exitcode=exitcode, peak=peak, limit=limit, kernel=kernel) is verdict


def kills(events: Path, number: int) -> str:
    events.write_text(f"low 0\noom {number}\noom_kill {number}\noom_group_kill 0\n")
    return str(events)


def test_each_kill_is_claimed_once(tmp_path: Path) -> None:
    counter = KillCounter(kills(tmp_path / "memory.events", 1))
    assert not counter.claim(0.0)
    kills(tmp_path / "memory.events", 3)
    assert [counter.claim(0.0), counter.claim(0.5), counter.claim(1.0)] == [True, True, False]


@pytest.mark.parametrize(("seconds", "its_own"), [(1, True), (5, False)])
def test_a_kill_that_was_seen_just_before_a_runner_died_is_its_own(
    tmp_path: Path, seconds: int, its_own: bool
) -> None:
    counter = KillCounter(kills(tmp_path / "memory.events", 0))
    kills(tmp_path / "memory.events", 1)
    for second in range(seconds):
        counter.update(10.0 + second)
    assert counter.claim(9.1 + seconds) is its_own


def test_without_control_groups_no_kill_is_counted(tmp_path: Path) -> None:
    assert not KillCounter(str(tmp_path / "missing")).claim(0.0)


@pytest.mark.parametrize("name", ["memory.oom_control", "memory.events"])
def test_kills_are_counted_in_the_nearest_group_that_counts_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [tmp_path / "a/b", tmp_path / "a", tmp_path]
    monkeypatch.setattr(process_resources, "control_groups", lambda _: map(str, groups))
    (tmp_path / "a").mkdir()
    for folder in groups[1:]:
        (folder / name).touch()
    assert process_resources._events_file() == f"{tmp_path}/a/{name}"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[int, int]]:
    """The limits of this process, which a test may write."""
    now = {
        resource.RLIMIT_DATA: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
        resource.RLIMIT_AS: (7000, 9000),
    }
    monkeypatch.setattr(resource, "getrlimit", now.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", now.__setitem__)
    return now


@pytest.mark.linux
def test_a_limit_comes_on_top_of_the_memory_in_use_and_gives_way_to_the_previous_limit(
    limits: dict[int, tuple[int, int]],
) -> None:
    limit = MemoryLimit(100)
    assert limit.limit == 7000, "the limit of address space"
    limit.set(1000)
    assert (limits[resource.RLIMIT_DATA], limit.limit) == ((1100, resource.RLIM_INFINITY), 1000)
    with limit.lifted():
        assert limits[resource.RLIMIT_DATA] == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert limits[resource.RLIMIT_DATA] == (1100, resource.RLIM_INFINITY)
    limit.set(0)
    assert limits[resource.RLIMIT_DATA] == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.mark.linux
def test_a_limit_that_somebody_else_has_set_is_not_raised(
    limits: dict[int, tuple[int, int]],
) -> None:
    limits[resource.RLIMIT_DATA] = 500, 800
    limit = MemoryLimit(100)
    limit.set(1000)
    assert limits[resource.RLIMIT_DATA] == (500, 800)
    limit.set(0)
    assert (limits[resource.RLIMIT_DATA], limit.limit) == ((500, 800), 500)


def raised_after(error: Exception, reason: Exception) -> Exception:
    error.__context__ = reason
    return error


@pytest.mark.parametrize(
    ("error", "unlimited", "limited"),
    [
        (MemoryError(), True, True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), False, True),
        (OSError(errno.ENOENT, "No such file or directory"), False, False),
        (ValueError(), False, False),
        (ImportError("libtorch.so: failed to map segment from shared object"), False, True),
        (OSError("libm.so: cannot map zero-fill pages"), False, True),
        (ImportError("a.so: cannot allocate memory in static TLS block"), False, False),
        (ModuleNotFoundError("No module named 'torch'"), False, False),
        (raised_after(ImportError("torch is needed"), MemoryError()), False, True),
        (raised_after(ImportError("torch is needed"), KeyError()), False, False),
    ],
)
def test_a_system_call_without_memory_met_the_limit_where_there_is_one(
    error: Exception, unlimited: bool, limited: bool, limits: dict[int, tuple[int, int]]
) -> None:
    limits[resource.RLIMIT_AS] = limits[resource.RLIMIT_DATA]
    limit = MemoryLimit(100)
    assert limit.was_met(error) is unlimited
    limit.set(GIGABYTE)
    assert limit.was_met(error) is limited


@pytest.mark.parametrize(
    ("job", "variable", "granted"),
    [
        ("JOB_ID", "NSLOTS", 1),
        ("SLURM_JOB_ID", "SLURM_CPUS_ON_NODE", 1),
        ("PBS_JOBID", "NCPUS", 1),
        ("HOME", "NCPUS", usable_processors()),  # not of a job
    ],
)
def test_calls_share_the_processors_of_their_batch_job(
    monkeypatch: pytest.MonkeyPatch, job: str, variable: str, granted: int
) -> None:
    monkeypatch.setenv(job, "17")
    monkeypatch.setenv(variable, "1")
    assert threads_of_call(1) == granted
