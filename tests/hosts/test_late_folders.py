"""A home folder whose changes hosts see late, as on NFS."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import command
from tests.support.hosts import HOSTS, NODES, SlurmOfHosts, bring_up, hosts, see_late, seen_late
from tests.support.scenario import play
from tests.support.waiting import wait_until

pytestmark = pytest.mark.hosts


@pytest.fixture
def late(slurm: SlurmOfHosts) -> Iterator[SlurmOfHosts]:
    """The Slurm, on whose nodes the home is seen late."""
    with contextlib.ExitStack() as stack:
        for node in NODES:
            stack.enter_context(seen_late(node))
        yield slurm
        slurm.nothing_is_left()


NAMED = """
def square(index):
    return index * index

with CLUSTER(max_workers=2, cpus_per_task=4, **GIVEN) as scheduler:
    first = gridengine.map(square, range(20), scheduler=scheduler, name="late", chunksize=1)
    again = gridengine.map(square, range(40), scheduler=scheduler, name="late", chunksize=1)
    actor = scheduler.actor(list)
    actor.append(1).result()
    gone = [len(gridengine.map(bytes, [3_000_000] * 4, scheduler=scheduler)[3]) for _ in range(3)]
tell(first=first, again=again, gone=gone)
"""


@pytest.mark.parametrize("given", [{}, {"transport": "files"}], ids=["tcp", "files"])
def test_calls_run_where_the_home_is_seen_late(late: SlurmOfHosts, given: dict[str, str]) -> None:
    told = play(late, f"GIVEN = {given!r}\n{NAMED}").result()
    assert told["first"] == [index * index for index in range(20)]
    assert told["again"] == [index * index for index in range(40)]
    assert told["gone"] == [3_000_000] * 3


MAP = """
import gridengine
with gridengine.Client("late") as client:
    print(sum(gridengine.map(abs, range(10), scheduler=client)))
"""


@pytest.mark.long
def test_a_dispatcher_is_found_where_its_folder_is_seen_late(late: SlurmOfHosts) -> None:
    runs = {"GRIDENGINE_RUN_DIRECTORY": str(late.folder / "late-runs")}

    def on_node(*words: str) -> str:
        variables = [f"{name}={value}" for name, value in runs.items()]
        return late.on("node1", "env", *variables, late.python, *words)

    def act(*words: str) -> None:
        status, told = command(late, "dispatcher", *words, environment=runs)
        assert status == 0, told

    assert "there is no dispatcher 'late'" in on_node("-c", MAP)  # which the node remembers
    act("start", "late", "--scheduler", "slurm", "--max-workers", "1", "--native=--nodelist=node2")
    try:
        assert "there is no dispatcher 'late'" in on_node("-c", MAP)
        wait_until(lambda: on_node("-c", MAP).endswith("45\n"))
        act("restart", "late")
        wait_until(lambda: on_node("-c", MAP).endswith("45\n"))
    finally:
        act("stop", "late", "--now")


ONE_RUN = """
import json, os, socket, sys, time
from pathlib import Path
import gridengine

FOLDER = Path.cwd()

def square(index, folder=FOLDER):
    Path(folder, f"began {index} {socket.gethostname()} {os.getpid()}").touch()
    while "go" not in os.listdir(folder):                        # a name's absence is remembered
        time.sleep(0.05)
    return index * index

options = {"name": "one", "chunksize": 1, "wait": "wait" in sys.argv}
with gridengine.ProcessScheduler(4) as scheduler:
    found = gridengine.map(square, range(int(sys.argv[1])), scheduler=scheduler, **options)
print(json.dumps(found))
"""


class OneRun:
    """Scripts on several hosts that use one named run, in a folder of their own."""

    def __init__(self, slurm: SlurmOfHosts) -> None:
        self.slurm = slurm
        self.folder = slurm.folder / f"one-{len([*slurm.folder.iterdir()])}"
        slurm.command("mkdir", str(self.folder))

    def begin(self, host: str, *words: str) -> subprocess.Popen[str]:
        """Start a script on a host; what it writes, errors included, is to be read."""
        runs = f"GRIDENGINE_RUN_DIRECTORY={self.folder}/runs"
        before = [*self.slurm.words_on(host, self.folder), runs, f"HOME={self.slurm.user.pw_dir}"]
        return subprocess.Popen(
            [*before, self.slurm.python, "-c", ONE_RUN, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.slurm.environment,
        )

    def run(self, host: str, *words: str) -> list[str]:
        """Run a script on a host, and return the lines that it writes."""
        return self.begin(host, *words).communicate(timeout=200)[0].splitlines()

    def begun(self) -> list[str]:
        """Return the names of the hosts on which calls have begun, one for each call."""
        return [path.name.split()[2] for path in self.folder.glob("began *")]

    def go(self) -> None:
        """Have all calls end."""
        Path(self.folder, "go").touch()


SQUARES = "[0, 1, 4, 9]"


@pytest.mark.parametrize("locks", [False, True], ids=["locks of one host", "locks of all"])
def test_a_run_with_a_name_is_one_host_s_at_a_time(slurm: SlurmOfHosts, locks: bool) -> None:
    with seen_late("node1", locks=locks), seen_late("node2", locks=locks):
        one = OneRun(slurm)
        first = one.begin("node1", "4")
        wait_until(lambda: len(one.begun()) == 4)
        told = "\n".join(one.run("node2", "4"))
        assert 'JournalError: the run "one" is in use by process' in told
        assert " on node1, since " in told
        second = one.begin("node2", "4", "wait")
        assert second.stdout is not None
        wait_until(lambda: "waiting for it to end" in second.stdout.readline())
        one.go()
        assert first.communicate(timeout=100)[0].splitlines()[-1] == SQUARES
        assert second.communicate(timeout=100)[0].splitlines() == [SQUARES]
        assert one.begun() == ["node1"] * 4
        slurm.nothing_is_left()


def test_a_run_that_has_ended_is_whole_on_another_host_at_once(late: SlurmOfHosts) -> None:
    """`login` has the disk itself, and so writes the file otherwise than the nodes do."""
    one = OneRun(late)
    one.go()
    for count in range(6, 36, 6):
        for host in HOSTS if count % 12 else reversed(HOSTS):
            expected = str([index * index for index in range(count)])
            assert one.run(host, str(count)) == [expected]
        assert len(one.begun()) == count


@pytest.mark.long
@pytest.mark.parametrize("locks", [False, True], ids=["locks of one host", "locks of all"])
def test_the_run_of_a_host_that_lost_power_goes_on_elsewhere_after_a_minute(
    slurm: SlurmOfHosts, locks: bool
) -> None:
    with seen_late("node1", locks=locks):
        see_late("node2", locks=locks)
        one = OneRun(slurm)
        one.go()
        assert one.run("node2", "3") == ["[0, 1, 4]"]
        (one.folder / "go").unlink()
        lost = one.begin("node2", "4")
        wait_until(lambda: len(one.begun()) == 4)
        hosts("kill", "node2")
        lost.communicate(timeout=100)
        one.go()
        told = one.run("node1", "4")
        assert "was in use by process" in told[0]
        assert "on node2, since" in told[0]
        assert told[-1] == SQUARES
        assert sorted(one.begun()) == ["node1"] + ["node2"] * 4
    bring_up()
    slurm.nothing_is_left()
