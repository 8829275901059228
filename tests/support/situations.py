"""What may be odd about a run, brought about by scripts that hold until it has been told; and what
is told of each: shared by the tests on this machine's processes and on the clusters.

A script begins with `scenario.PRELUDE`; `CLUSTER` makes its scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

QUICK_BEATS = {"GRIDENGINE_BEAT_SECONDS": "0.1"}
"""With every fifth a worker says what it measures."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A script, the cause that is told, words of it and of the next step, and how the place begins;
    `began` is how many calls hold then.
    """

    script: str
    cause: str
    words: str
    step: str
    place: str = ""
    began: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


FULL_DISK = """
def call(index):
    if index:
        return hold(index)
    Path(FOLDER, "there").touch()
    while not Path(FOLDER, "full").exists():
        time.sleep(0.02)
    return os.urandom(200_000)

SCHEDULER = CLUSTER(max_workers=1)
results = gridengine.map(call, range(2), scheduler=SCHEDULER, chunksize=1, name="kept")
run = gridengine.run_named("kept")
tell(results=len(results), kept=run.done)
"""
"""A run with a name, whose disk is filled while its first call is under way."""

SITUATIONS: Mapping[str, Situation] = {
    "max_workers": Situation(
        "gridengine.map(hold, range(5), scheduler=CLUSTER(max_workers=2), chunksize=1)",
        "max_workers",
        "3 calls wait for a free slot: 2 calls are at workers with 2",
        "max_workers=",
        began=2,
    ),
    "two maps that share": Situation(
        """
import threading
SCHEDULER = CLUSTER(max_workers=2)
threads = [
    threading.Thread(
        target=gridengine.map, args=(hold, range(3)), kwargs=dict(scheduler=SCHEDULER, chunksize=1)
    )
    for _ in range(2)
]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
        "max_workers",
        "2 submitters take turns",
        "wait",
    ),
    "a straggler": Situation(
        """
def call(index):
    return hold(index) if index == 7 else time.sleep(0.1)

gridengine.map(call, range(10), scheduler=CLUSTER(max_workers=2), chunksize=1)
""",
        "straggler",
        "call 7 of call has run for ",
        "timeout=",
        place="host",
    ),
    "a poisoned call": Situation(
        """
def call(index):
    if index == 3:
        os._exit(9)
    return hold(index) if index == 5 else index

gridengine.map(call, range(6), scheduler=CLUSTER(max_workers=2), chunksize=1, reraise=False)
""",
        "failures",
        "exited with status 9",
        "gridengine calls sweep.py --failed",
        place="host",
    ),
    "a full disk": Situation(
        """
def call(index):
    if index == 3:
        with open("/dev/full", "w") as file:
            file.write("a result")
    return hold(index) if index == 5 else index

gridengine.map(
    call, range(6), scheduler=CLUSTER(max_workers=2), chunksize=1, reraise=False, retries=0
)
""",
        "failures",
        "OSError: [Errno 28] No space left on device",
        "make room on that disk",
        place="host",
    ),
    "a leaking function": Situation(
        """
kept = []

def call(index):
    kept.append(bytearray(os.urandom(1000)) * 20_000)
    return hold(index) if index == 30 else time.sleep(0.7)

gridengine.map(call, range(31), scheduler=CLUSTER(max_workers=1), chunksize=1)
""",
        "leak",
        "Processes that run call have more memory from call to call: one has grown by ",
        "max_tasks_per_child=",
        place="call",
        began=0,
        environment=QUICK_BEATS,
    ),
    "idle workers kept by a long call": Situation(
        """
def call(index):
    Path(FOLDER, f"there {index}").touch()
    while index and len(list(Path(FOLDER).glob("there *"))) < 2:
        time.sleep(0.02)
    return hold(index) if index == 0 else index

from gridengine import Cores
gridengine.map(call, range(2), scheduler=CLUSTER(max_workers=2), chunksize=1)
""",
        "running",
        "Nothing waits: 1 call is running, the first, call 0 of call, on ",
        "",
        place="host",
    ),
    "thousands of small results": Situation(
        """
def call(index):
    return hold(index) if index == 4000 else index

gridengine.map(call, range(4001), scheduler=CLUSTER(max_workers=1), chunksize=1)
""",
        "small_calls",
        "4,000 calls of call took ",
        "let each call do more",
        place="call",
    ),
    "a memory request of many times what is used": Situation(
        """
gridengine.map(hold, range(1), scheduler=CLUSTER(), resources=gridengine.Memory(1.5))
""",
        "memory",
        "Calls of hold ask for 1.5 GB of memory, and were seen to use ",
        "ask for Memory(0.0",
        place="hold",
        environment=QUICK_BEATS,
    ),
}
