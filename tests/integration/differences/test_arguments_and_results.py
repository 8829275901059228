"""Arguments and results of calls, beside those of the standard library."""

from __future__ import annotations

import pytest

from tests.integration.differences.conftest import Compare


@pytest.mark.promise
def test_an_argument_is_taken_as_it_is_when_it_is_submitted(compare: Compare) -> None:
    assert compare("""
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
def late(executor):
    "Change an argument while the calls before it keep the process busy."
    busy = [executor.submit(wait_for, "changed") for _ in range(4)]
    argument = ["old"]
    future = executor.submit(max, argument)
    argument[0] = "new"
    open("changed", "w").close()
    result = future.result()
    os.remove("changed")
    return result
with ProcessPoolExecutor(1) as theirs, Executor(max_workers=1) as ours:
    tell(theirs=late(theirs), ours=late(ours))
""") == {"theirs": "new", "ours": "old"}


@pytest.mark.promise
def test_the_arguments_of_a_job_are_pickled_and_those_of_a_forked_process_not(
    compare: Compare,
) -> None:
    assert compare("""
import threading
lock = threading.Lock()
def use(given):
    with lock:
        return list(given)
tell(
    theirs=ended(fork.Process, use, (x for x in range(3))),
    ours=tried(ended, Job, use, (x for x in range(3))),
    function=tried(gridengine.map, use, [[1]], scheduler=ProcessScheduler(1)),
    spawned=tried(ended, spawn.Process, use, (x for x in range(3))),
)
""") == {
        "theirs": 0,
        "ours": "PicklingError",
        "function": "PicklingError",
        "spawned": "TypeError",
    }


@pytest.mark.promise
def test_an_unpicklable_argument_is_named(compare: Compare) -> None:
    told = compare("""
def generator(x):
    return (y for y in range(x))
def words(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return [type(error).__name__, str(error)]
with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
    tell(
        pool=words(pool.map, generator, [3])[0],
        executor=words(executor.submit(generator, 3).result)[0],
        theirs=words(pool.map, len, [iter(generator(3))])[0],
    )
scheduler = ProcessScheduler(1)
tell(
    result=words(gridengine.map, generator, [3], scheduler=scheduler),
    argument=words(gridengine.map, len, ["", generator(3)], scheduler=scheduler),
)
""")
    assert [told[name] for name in ("pool", "executor", "theirs")] == [
        "MaybeEncodingError",
        "TypeError",
        "TypeError",
    ]
    assert told["result"][0] == told["argument"][0] == "PicklingError"
    assert "the result of call 0" in told["result"][1]
    assert "the argument of call 1" in told["argument"][1]


def test_an_exception_that_pickle_cannot_rebuild_arrives_and_breaks_nothing(
    compare: Compare,
) -> None:
    assert compare("""
class Two(Exception):
    def __init__(self, a, b):
        super().__init__("two")
def fail(_=None):
    raise Two(1, 2)
with ProcessPoolExecutor(1) as executor:
    tell(executor=tried(executor.submit(fail).result), next=tried(executor.submit, abs, 1))
with Executor(max_workers=1) as ours:
    tell(ours=tried(ours.submit(fail).result), ours_next=ours.submit(abs, 1).result())
with fork.Pool(1) as pool:
    tell(pool=tried(pool.map_async(fail, [0]).get, 1))
""") == {
        "executor": "BrokenProcessPool",
        "next": "BrokenProcessPool",
        "pool": "TimeoutError",
        "ours": "Two",
        "ours_next": 1,
    }


@pytest.mark.promise
def test_queues_and_values_are_arguments_of_calls_too_if_they_are_of_the_spawn_context(
    compare: Compare,
) -> None:
    assert compare("""
def use(queue, value):
    queue.put("sent")
    with value.get_lock():
        value.value += 1
def made(context):
    return context.Queue(), context.Value("i", 0)
def used(call, context):
    queue, value = made(context)
    end = tried(call, queue, value)
    return [end, queue.get(), value.value] if end in (0, None) else end

if __name__ == "__main__":
    with fork.Pool(1) as pool, ProcessPoolExecutor(1) as executor:
        tell(
            process=used(lambda *both: ended(fork.Process, use, *both), fork),
            pool=used(lambda *both: pool.apply(use, both), spawn),
            executor=used(lambda *both: executor.submit(use, *both).result(), spawn),
        )
    scheduler = ProcessScheduler(1)
    with Executor(scheduler=scheduler) as executor:
        tell(
            job=used(lambda *both: ended(Job, use, *both, scheduler=scheduler), spawn),
            call=used(lambda *both: executor.submit(use, *both).result(), spawn),
            forked=used(lambda *both: ended(Job, use, *both, scheduler=scheduler), fork),
        )
""") == {
        "process": [0, "sent", 1],
        "pool": "RuntimeError",
        "executor": "RuntimeError",
        "job": [0, "sent", 1],
        "call": [None, "sent", 1],
        "forked": "PicklingError",
    }


@pytest.mark.promise
def test_an_object_of_a_function_stays_as_earlier_calls_of_its_process_left_it(
    compare: Compare,
) -> None:
    assert compare("""
class Total:
    value = 0
    def add(self, x):
        self.value += x
        return self.value
total = Total()
with ProcessPoolExecutor(1) as theirs, Executor(1) as ours:
    tell(theirs=list(theirs.map(total.add, [1, 1, 1])), ours=list(ours.map(total.add, [1, 1, 1])))
    later = ours.submit(total.add, 1).result()
    total.value = 10
    tell(later=later, changed=ours.submit(total.add, 1).result())
""") == {"theirs": [1, 1, 1], "ours": [1, 2, 3], "later": 4, "changed": 11}
