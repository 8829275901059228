"""A batch system is one class of names, tables and pure functions; this is a whole one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Cores, GPUs, Memory, Resource, Token, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.batch_commands import GONE, BatchCommands, Seen, WorkerArray, shell
from gridengine.schedulers.launcher import WorkerStatus
from gridengine.schedulers.requests import own_options, own_walltime, worker_options
from gridengine.settings.schema import QueueSite

STATES: Mapping[str, WorkerStatus] = {
    "waits": WorkerStatus.QUEUED,
    "runs": WorkerStatus.RUNNING,
    "ended": WorkerStatus.ENDED,
    "failed": WorkerStatus.FAILED,
}


class Example(BatchCommands):
    """A batch system whose commands are `put`, `look` and `drop`."""

    key, title, commands = "example", "Example", ("put", "look", "drop")
    away = re.compile("no server")
    later = re.compile("too many jobs")
    never = re.compile("no node is that large")
    gone = re.compile("no such job")
    remedies: Mapping[str, str] = {
        "no queue": "`look --queues` lists the queues; name one with queue="
    }
    ours = frozenset({"--name", "--tasks", "--log", "-n"})
    short: Mapping[str, str] = {"-q": "--queue"}
    time_option, gpus = "--time", "--gpus={n}"
    site_options: Mapping[str, str] = {"queue": "--queue={}"}
    own_memory = re.compile(r"(--memory=)(\d+)([KMGT]?)")

    def cores(self, count: int) -> list[str]:
        return [f"--cores={count}"]

    def memory(self, size: int) -> list[str]:
        return [f"--memory={math.ceil(size / 2**20)}M"]

    def time(self, seconds: float) -> list[str]:
        return [f"--time={math.ceil(seconds)}"]

    def submit(self, array: WorkerArray) -> list[str]:
        ours = [f"--name={array.name}", f"--tasks={array.count}", f"--log={array.log('%t')}"]
        return ["put", *array.options, *ours, str(array.script)]

    def ids(self, output: str, count: int) -> list[str]:
        number = output.strip()
        return [f"{number}.{task}" for task in range(1, count + 1)] if number.isdigit() else []

    def listing(self, name: str) -> list[str]:
        return ["look", f"--name={name}", "--format=id state reason"]

    def parse(self, output: str) -> dict[str, Seen]:
        rows = (line.split(" ", 2) for line in output.splitlines())
        return {id: Seen(STATES[state], reason) for id, state, reason in rows}

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["drop", *ids]

    def cancel_all(self, name: str) -> list[str]:
        return ["drop", f"--name={name}"]


EXAMPLE = Example()


def test_an_array_is_written_as_one_command_and_its_tasks_are_seen_by_the_ids_that_it_prints() -> (
    None
):
    array = WorkerArray("sweep-1", 2, Path("/run/worker.sh"), ["--cores=4"], "/run/{}.log".format)
    assert " ".join(EXAMPLE.submit(array)) == (
        "put --cores=4 --name=sweep-1 --tasks=2 --log=/run/%t.log /run/worker.sh"
    )
    assert EXAMPLE.ids("17\n", 2) == ["17.1", "17.2"]
    assert EXAMPLE.parse("17.1 runs n7\n17.2 waits no node is that large") == {
        "17.1": Seen(WorkerStatus.RUNNING, "n7"),
        "17.2": Seen(WorkerStatus.QUEUED, "no node is that large"),
    }


def options(resources: Resource, *own: str, factor: float = 1.0, **site: str) -> list[str]:
    return worker_options(EXAMPLE, own, Demand(resources, factor), QueueSite(**site))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, []),
        (Cores(4) & Memory(2), ["--cores=4", "--memory=2048M"]),
        (WTime(60), ["--time=120"]),
        (WTime(softT=60), []),
        (GPUs(2), ["--gpus=2"]),
    ],
)
def test_requests_of_calls_are_said_in_the_systems_words(
    resources: Resource, words: list[str]
) -> None:
    assert options(resources) == words


def test_the_users_own_options_stand_for_those_of_the_site_and_have_their_memory_scaled() -> None:
    assert options(ZERO, queue="long") == ["--queue=long"]
    assert options(ZERO, "-qshort", queue="long", native="--nice") == ["-qshort", "--nice"]
    assert options(ZERO, "--memory=1G", factor=2.0) == ["--memory=2048M"]
    assert options(WTime(60), "--time=1:00:00") == ["--time=1:00:00"]
    assert own_walltime(EXAMPLE, ["--time=1:00:00"]) == 3600.0


@pytest.mark.parametrize(
    ("resources", "own", "words"),
    [
        (Cores(4), "--cores=2", r"Cores\(4\) of a call and --cores=2 of the scheduler"),
        (WTime(60), "--time=90", "wants 00:02:00, and --time=90 of the scheduler is less"),
        (Token("big"), "", r"the settings do not say what this is on this Example"),
    ],
)
def test_an_inexpressible_request_is_an_error(resources: Resource, own: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        options(resources, *filter(None, [own]))


def test_arguments_become_options_but_for_those_that_are_ours() -> None:
    given = {"queue": "long", "hold": False, "exclusive": True, "max_rank": 2}
    words = own_options(EXAMPLE, given, "--note='a b'")
    assert words == ["--queue=long", "--exclusive", "--max-rank=2", "--note=a b"]
    for given, native in (({"log": "x"}, ""), ({}, "-nx")):
        with pytest.raises(ConfigurationError, match="is not for users to set"):
            EXAMPLE.check(own_options(EXAMPLE, given, native))


def test_a_shell_is_given_arguments_that_it_does_not_read() -> None:
    assert shell('drop $(look "$1")', "a b; c") == [
        *("/bin/sh", "-c", 'drop $(look "$1")', "sh", "a b; c")
    ]


def test_no_end_is_told_of_tasks_that_were_not_asked_about() -> None:
    ended = {"17.1": GONE}
    outputs = ["17.1 failed its node is gone\n", "17.2 ended itself\n"]
    assert EXAMPLE.parse_endings(ended, outputs) == {
        "17.1": Seen(WorkerStatus.FAILED, "its node is gone")
    }
    assert EXAMPLE.parse_endings(ended, ["nothing"]) == {}
    assert EXAMPLE.parse_endings(ended, []) == {}
