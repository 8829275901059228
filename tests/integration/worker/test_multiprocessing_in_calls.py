"""What `multiprocessing` shares between processes, in calls: shared memory, connections, sockets,
managers, locks.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine.errors import PicklingError
from gridengine.serialize import pickling
from gridengine.wire.messages import Goodbye, Results, Stop
from tests.support.script_driver import MakeScript
from tests.support.waiting import wait_until
from tests.support.worker_driver import WorkerDriver


@pytest.fixture
def executor() -> Iterator[gridengine.Executor]:
    with (
        gridengine.ProcessScheduler(2) as scheduler,
        gridengine.Executor(scheduler=scheduler) as executor,
    ):
        yield executor


# ---------------------------------------------------------------- shared memory

SEGMENTS = """
    import os
    from multiprocessing import shared_memory

    def look(name):
        segment = shared_memory.SharedMemory(name)
        try:
            return bytes(segment.buf[:3])
        finally:
            segment.close()

    def make(content):
        segment = shared_memory.SharedMemory(create=True, size=len(content))
        segment.buf[:] = content
        segment.close()
        return segment.name

    def remove(name):
        segment = shared_memory.SharedMemory(name)
        segment.close()
        segment.unlink()

    def calls(function, argument):
        with gridengine.ProcessScheduler(2) as scheduler:
            return gridengine.map(function, [argument], scheduler=scheduler)[0]
"""


@pytest.mark.promise
def test_a_segment_that_a_call_has_attached_stays_when_the_workers_end(script: MakeScript) -> None:
    done = script(f"""{SEGMENTS}
    name = make(b"abc")
    print(calls(look, name), calls(look, name), look(name))
    remove(name)
    """).run()
    assert (done.stdout, done.stderr) == ("b'abc' b'abc' b'abc'\n", "")


def test_a_segment_that_a_call_has_made_stays_until_somebody_removes_it(script: MakeScript) -> None:
    done = script(f"""{SEGMENTS}
    here, there = calls(make, b"abc"), calls(make, b"def")
    print(look(here), calls(look, there))
    remove(here)
    calls(remove, there)
    print([os.path.exists("/dev/shm/" + name) for name in (here, there)])
    """).run()
    assert (done.stdout, done.stderr) == ("b'abc' b'def'\n[False, False]\n", "")


def test_a_segment_that_a_call_has_made_and_nobody_has_removed_goes_with_the_caller_with_a_warning(
    script: MakeScript,
) -> None:
    done = script(f"""{SEGMENTS}
    print(calls(make, b"abc"))
    """).run()
    assert "1 leaked shared_memory object" in done.stderr
    assert not Path("/dev/shm", done.stdout.strip()).exists()


def test_a_call_may_use_the_memory_of_another_program_which_stays(script: MakeScript) -> None:
    segment = shared_memory.SharedMemory(create=True, size=3)
    segment.buf[:] = b"abc"
    try:
        done = script(f"""{SEGMENTS}
    print(calls(look, {segment.name!r}))
    """).run()
        assert (done.stdout, done.stderr) == ("b'abc'\n", "")
        assert Path("/dev/shm", segment.name).exists()
    finally:
        segment.close()
        segment.unlink()


def test_processes_of_a_call_register_resources_with_the_callers_tracker(
    script: MakeScript,
) -> None:
    done = script(f"""{SEGMENTS}
    import multiprocessing

    def grandchildren(context):
        code = "from multiprocessing.shared_memory import SharedMemory\\n"
        code += "s = SharedMemory('gridengine-test', True, 3); s.buf[:] = b'abc'"
        process = multiprocessing.get_context(context).Process(target=exec, args=(code,))
        process.start()
        process.join()

    for context in ("fork", "spawn"):
        calls(grandchildren, context)
        print(look("gridengine-test"))
        remove("gridengine-test")
    """).run()
    assert (done.stdout, done.stderr) == ("b'abc'\nb'abc'\n", "")


def test_a_segment_that_a_call_on_a_cluster_has_attached_stays_when_the_worker_ends(
    driver: WorkerDriver,
) -> None:
    segment = shared_memory.SharedMemory(create=True, size=3)
    try:
        driver.assign(lambda name: shared_memory.SharedMemory(name).close(), segment.name)
        assert result(driver) is None
        driver.server.send(driver.peer, Stop())
        driver.wait_for(Goodbye)
        assert driver.exit_status() == 0
        assert driver.log.read_text() == ""
        assert Path("/dev/shm", segment.name).exists()
    finally:
        segment.close()
        segment.unlink()


def test_a_segment_that_a_call_on_a_cluster_has_made_goes_with_its_worker(
    driver: WorkerDriver,
) -> None:
    def make(_: object) -> str:
        segment = shared_memory.SharedMemory(create=True, size=3)
        segment.close()
        return segment.name

    driver.assign(make, None)
    path = Path("/dev/shm", result(driver))
    assert path.exists()
    driver.server.send(driver.peer, Stop())
    assert driver.exit_status() == 0
    wait_until(lambda: not path.exists())  # the tracker may run a little longer


def result(driver: WorkerDriver) -> Any:
    message, buffers = driver.wait_for(Results)
    assert isinstance(message, Results)
    payload = buffers[: message.results[0].buffers - 2]
    if message.results[0].status:
        raise pickling.load_exception(payload)
    (value,), _ = pickling.load_values(payload)
    return value


# ---------------------------------------------------------------- connections and sockets


def send(connection: Any, value: object) -> None:
    connection.send(value)


@pytest.mark.parametrize("duplex", [False, True])
def test_an_end_of_a_pipe_arrives_as_an_argument(
    executor: gridengine.Executor, duplex: bool
) -> None:
    reading, writing = multiprocessing.Pipe(duplex)
    executor.submit(send, writing, "hello").result()
    writing.close()
    assert reading.recv() == "hello"
    with pytest.raises(EOFError):  # nobody holds the other end any more
        reading.recv()


def test_an_end_of_a_pipe_arrives_again_when_a_call_is_made_again(tmp_path: Path) -> None:
    def call(connection: Any) -> None:
        connection.send("once more")
        if not (tmp_path / "mark").exists():
            (tmp_path / "mark").touch()
            os._exit(1)

    reading, writing = multiprocessing.Pipe()
    with gridengine.ProcessScheduler(1) as scheduler:
        gridengine.map(call, [writing], scheduler=scheduler, retries=1)
    assert [reading.recv(), reading.recv()] == ["once more", "once more"]


def test_calls_that_carry_descriptors_leave_none_open() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    _reading, writing = multiprocessing.Pipe()
    with gridengine.Executor(1, scheduler=gridengine.ProcessScheduler) as executor:
        executor.submit(send, writing, 0).result()
        before = descriptors()
        for number in range(20):
            executor.submit(send, writing, number).result()
            executor.submit(lambda: writing.fileno()).result()
        # What the executor opens later than its first result, such as its worker's local socket,
        # is less than half of what one for each call would be.
        wait_until(lambda: descriptors() < before + 20)


# ---------------------------------------------------------------- managers


@pytest.mark.promise
def test_proxies_of_a_manager_work_in_calls(executor: gridengine.Executor) -> None:
    executor.submit(abs, -1).result()  # the worker is older than the manager
    with multiprocessing.Manager() as manager:
        numbers, lock, queue = manager.dict(), manager.Lock(), manager.Queue()

        def call(number: int) -> None:
            with lock:
                numbers[number] = number * number
            queue.put(number)

        list(executor.map(call, range(3)))
        assert dict(numbers) == {0: 0, 1: 1, 2: 4}
        assert sorted(queue.get() for _ in range(3)) == [0, 1, 2]


def test_the_key_is_in_no_argument_environment_or_file(script: MakeScript) -> None:
    done = script("""
        import multiprocessing, os
        from pathlib import Path

        multiprocessing.current_process().authkey = b"0123456789abcdef"

        def look(key):
            process = multiprocessing.current_process()
            folders = [Path(f"/proc/{pid}") for pid in (os.getpid(), os.getppid())]
            names = ("cmdline", "environ")
            kept = [(folder / name).read_bytes() for folder in folders for name in names]
            return bytes(process.authkey)[::-1] == key, any(key[::-1] in text for text in kept)

        with gridengine.ProcessScheduler(1) as scheduler:
            print(gridengine.map(look, [b"0123456789abcdef"[::-1]], scheduler=scheduler))
        """).run()
    assert (done.stdout, done.stderr) == ("[(True, False)]\n", "")


# ---------------------------------------------------------------- locks, queues, shared values


def test_locks_that_calls_keep_are_given_back_when_their_processes_end(script: MakeScript) -> None:
    done = script("""
        import multiprocessing
        import gridengine

        kept = []

        def keep(_):
            kept.append(multiprocessing.get_context("spawn").Lock())

        gridengine.map(keep, range(4), scheduler="processes")
        job = gridengine.Job(target=keep, args=(0,), scheduler=gridengine.ProcessScheduler(1))
        job.start()
        job.join()
    """).run()
    assert (done.returncode, done.stderr) == (0, "")  # the resource tracker has nothing to tell


FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")


@pytest.mark.parametrize(
    "kind",
    [
        "Lock",
        "RLock",
        "Semaphore",
        "BoundedSemaphore",
        "Condition",
        "Event",
        "Queue",
        "SimpleQueue",
    ],
)
def test_objects_for_forked_processes_are_refused_with_a_remedy(
    executor: gridengine.Executor, kind: str
) -> None:
    with pytest.raises(
        PicklingError,
        match=r"the argument .*only processes that are forked .*get_context\('spawn'\), or by a "
        r"Manager",
    ):
        executor.submit(str, getattr(FORK, kind)()).result()


def test_a_lock_without_a_name_is_refused_where_python_itself_would_send_its_address(
    executor: gridengine.Executor,
) -> None:
    lock = FORK.Lock()
    vars(lock)["_is_fork_ctx"] = (
        False  # what Python 3.11.5 and later look at, and earlier ones do not have
    )
    with pytest.raises(PicklingError, match="only processes that are forked"):
        executor.submit(str, lock).result()


def test_objects_for_started_processes_work(executor: gridengine.Executor) -> None:
    queue, lock, event, value = SPAWN.Queue(), SPAWN.Lock(), SPAWN.Event(), SPAWN.Value("i", 1)

    def call(queue: Any, lock: Any, event: Any, value: Any) -> None:
        with lock:
            queue.put("hello")
        value.value += 1
        event.set()

    executor.submit(call, queue, lock, event, value).result()
    assert (queue.get(), event.is_set(), value.value, lock.acquire(block=False)) == (
        "hello",
        True,
        2,
        True,
    )


def test_a_lock_that_is_gone_is_named(executor: gridengine.Executor) -> None:
    payload = pickling.dump(SPAWN.Lock())  # nobody else has it
    gc.collect()
    with pytest.raises(
        PicklingError, match=r"a multiprocessing\.synchronize\.Lock is gone, or of another machine"
    ):
        pickling.load(payload)


@pytest.mark.promise
def test_shared_arrays_are_shared_and_not_copied(executor: gridengine.Executor) -> None:
    numbers = FORK.RawArray("i", 3)

    def call(numbers: Any) -> None:
        numbers[1] = 5

    executor.submit(call, numbers).result()
    assert numbers[:] == [0, 5, 0]
