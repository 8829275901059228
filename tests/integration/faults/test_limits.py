"""Calls that meet a limit of memory or descriptors, and calls with much data."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec._core
import psutil
import pytest

import gridengine
from gridengine import (
    Memory,
    OutOfMemory,
    ProcessScheduler,
    WorkerCrashed,
)
from gridengine.schedulers.base import Scheduler
from tests.support.script_driver import MakeScript
from tests.support.waiting import wait_until

MEGABYTE = 2**20


def error_of(f: Callable[[Any], Any], *, scheduler: Scheduler, **options: Any) -> BaseException:
    (error,) = gridengine.map(f, [0], scheduler=scheduler, reraise=False, **options)
    assert isinstance(error, BaseException)
    return error


def take(megabytes: int) -> int:
    return len(bytearray(megabytes * MEGABYTE))


@pytest.mark.linux
@pytest.mark.promise
def test_the_error_of_a_call_over_its_memory_limit_has_the_limit_and_the_peak(
    scheduler: ProcessScheduler,
) -> None:
    def call(x: int) -> int:
        held = b"x" * (100 * MEGABYTE)
        return take(400) + len(held)

    error = error_of(call, scheduler=scheduler, resources=Memory(0.25))
    assert isinstance(error, OutOfMemory)
    assert isinstance(error, MemoryError)
    assert "its limit was 0.25 GB" in str(error)
    assert "the peak seen was 0.1" in str(error)
    assert error.host
    assert len(error.attempts) == 1, "the same memory would not do the second time either"
    assert "in take" in str(error.__cause__), "the line that asked for it is seen"


def test_other_calls_have_no_limit_and_within_theirs_they_go_on(
    scheduler: ProcessScheduler,
) -> None:
    sizes = [10, 10, 400, 10]
    results = gridengine.map(
        take, sizes, scheduler=scheduler, resources=Memory(0.25), reraise=False, chunksize=4
    )
    assert [type(each) for each in results] == [int, int, OutOfMemory, int]
    assert "call 2 of take" in str(results[2])
    assert gridengine.map(take, [400] * 4, scheduler=scheduler) == [400 * MEGABYTE] * 4


def test_leftovers_of_earlier_calls_are_not_a_later_call_s_fault(
    scheduler: ProcessScheduler,
) -> None:
    def leak(x: int) -> int:
        held = vars(sys).setdefault("held by a test", [])
        held.append(bytearray(100 * MEGABYTE))
        return x

    assert gridengine.map(
        leak, range(12), scheduler=scheduler, resources=Memory(0.25), chunksize=6, retries=0
    ) == list(range(12))


def test_a_function_or_an_argument_too_large_for_the_limit_is_an_error(
    scheduler: ProcessScheduler,
) -> None:
    large = b"x" * (128 * MEGABYTE)
    with_function = error_of(lambda x: len(large), scheduler=scheduler, resources=Memory(0.1))
    (with_argument,) = gridengine.map(
        len, [[large, large[1:]]], scheduler=scheduler, resources=Memory(0.1), reraise=False
    )
    assert [type(with_function), type(with_argument)] == [OutOfMemory, OutOfMemory]
    assert gridengine.map(len, [large], scheduler=scheduler) == [len(large)]


def abort_for_want_of_memory(_: object) -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    if libc.malloc(ctypes.c_size_t(1024 * MEGABYTE)) is None:
        os.abort()


def test_c_code_that_aborts_under_its_limit_ran_out_of_memory(scheduler: ProcessScheduler) -> None:
    error = error_of(
        abort_for_want_of_memory, scheduler=scheduler, resources=Memory(0.25), retries=1
    )
    assert isinstance(error, OutOfMemory)
    assert "was killed by SIGABRT" in str(error)
    assert "0.25 GB" in str(error)
    assert len(error.attempts) == 2
    assert gridengine.map(
        abort_for_want_of_memory,
        [0],
        scheduler=scheduler,
        resources=Memory(0.75),
        escalate_memory=2,
    ) == [None]


def library_of(size: int, folder: Path) -> Path:
    """Make a library whose variables have this many bytes, from another library (elf(5))."""
    content = bytearray(Path(str(msgspec._core.__file__)).read_bytes())
    (table,), (entry, count) = (
        struct.unpack_from("<Q", content, 32),
        struct.unpack_from("<HH", content, 54),
    )
    for at in range(table, table + entry * count, entry):
        kind, flags = struct.unpack_from("<II", content, at)
        if kind == 1 and flags & 2:  # it is loaded, and writable
            struct.pack_into("<Q", content, at + 40, size)
    library = folder / "large.so"
    library.write_bytes(content)
    return library


def test_a_library_that_cannot_be_loaded_under_the_limit_ran_out_of_memory(
    scheduler: ProcessScheduler, tmp_path: Path
) -> None:
    library, other = str(library_of(300 * MEGABYTE, tmp_path)), str(tmp_path / "other.so")
    shutil.copy(library, other)

    def call(x: int) -> int:
        ctypes.CDLL(library)  # the limit lets it in; only the next one is too much
        ctypes.CDLL(other)
        return x

    error = error_of(call, scheduler=scheduler, resources=Memory(0.25))
    assert isinstance(error, OutOfMemory)
    assert "failed to map segment" in str(error.__cause__)
    options: dict[str, Any] = {"scheduler": scheduler, "escalate_memory": 4}
    assert gridengine.map(call, [1], resources=Memory(0.25), **options) == [1]


@pytest.mark.promise
def test_a_call_that_uses_up_the_descriptors_of_its_process_has_its_own_error(
    scheduler: ProcessScheduler,
) -> None:
    held = []

    def use_up(_: int) -> None:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))

    with pytest.raises(OSError, match=f"Too many open files: '{os.devnull}'"):
        gridengine.map(use_up, [0], scheduler=scheduler)


@pytest.mark.promise
def test_an_abort_without_a_limit_is_a_crash(scheduler: ProcessScheduler) -> None:
    assert isinstance(error_of(lambda x: os.abort(), scheduler=scheduler, retries=0), WorkerCrashed)


@pytest.mark.promise
def test_the_error_names_a_limit_of_address_space_that_others_set(
    scheduler: ProcessScheduler,
) -> None:
    def call(x: int) -> int:
        resource.setrlimit(resource.RLIMIT_AS, (2048 * MEGABYTE, resource.RLIM_INFINITY))
        return take(4096)

    error = error_of(call, scheduler=scheduler)
    assert isinstance(error, OutOfMemory)
    assert "its limit was 2.00 GB" in str(error)
    assert gridengine.map(take, [1] * 8, scheduler=scheduler) == [MEGABYTE] * 8, (
        "that process is used no more"
    )


def memory_group() -> Path | None:
    """Return where control groups of memory can be made, if they can."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        probe = root / f"gridengine-probe-{os.getpid()}"
        with contextlib.suppress(OSError):
            probe.mkdir()
            try:
                if (probe / limit).exists():
                    return root
            finally:
                probe.rmdir()
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 300 MB of memory."""
    root = memory_group()
    if root is None:
        pytest.skip("no control group of memory can be made here")
    path = root / f"gridengine-test-{os.getpid()}"
    path.mkdir()
    limit = path / "memory.limit_in_bytes"
    (limit if limit.exists() else path / "memory.max").write_text(str(300 * MEGABYTE))
    with contextlib.suppress(OSError):
        (path / "memory.swap.max").write_text("0")
    yield path
    wait_until(lambda: not (path / "cgroup.procs").read_text())
    path.rmdir()


@pytest.mark.linux
@pytest.mark.promise
def test_a_call_killed_by_the_kernel_for_memory_is_out_of_memory(
    script: MakeScript, group: Path
) -> None:
    one = script(
        f"""
        import os
        open({str(group / "cgroup.procs")!r}, "w").write(str(os.getpid()))

        def eat(x):
            held = []
            while True:
                held.append(bytes([x % 255 + 1]) * 2**20)

        with gridengine.ProcessScheduler(1) as scheduler:
            (error,) = gridengine.map(eat, [0], scheduler=scheduler, retries=1, reraise=False)
            print(type(error).__name__, len(error.attempts))
            print(error)
        """
    )
    run = one.run()
    assert run.stdout.splitlines()[0] == "OutOfMemory 2", run.stdout + run.stderr
    assert "was killed by SIGKILL" in run.stdout
    assert one.leftovers() == []


def ones(size: int) -> bytes:
    return b"\x01" * size


def length_of_sum(data: Any) -> tuple[int, int]:
    return len(data), data[0] + data[len(data) // 2] + data[-1]


def test_an_argument_and_a_result_of_two_gigabytes_travel(scheduler: ProcessScheduler) -> None:
    size = 2 * 2**30 + 12_345
    if psutil.virtual_memory().available < 5 * size:
        pytest.skip("there is not enough memory")
    (result,) = gridengine.map(ones, [size], scheduler=scheduler)
    assert length_of_sum(result) == (size, 3)
    (back,) = gridengine.map(length_of_sum, [result], scheduler=scheduler)
    assert back == (size, 3)


def test_many_results_taken_one_by_one_need_little_memory_and_give_it_back(
    scheduler: ProcessScheduler,
) -> None:
    count, size = 6_000, 100_000
    assert len(gridengine.map(ones, [size] * 100, scheduler=scheduler)) == 100
    gc.collect()
    process = psutil.Process()
    before = highest = process.memory_info().rss
    for number, result in enumerate(
        gridengine.imap(ones, [size] * count, scheduler=scheduler, chunksize=4)
    ):
        assert len(result) == size
        if number % 500 == 0:
            highest = max(highest, process.memory_info().rss)
    assert number == count - 1
    del result
    gc.collect()
    assert highest - before < 200 * MEGABYTE
    assert process.memory_info().rss - before < 50 * MEGABYTE
