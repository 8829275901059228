"""A batch system is one class and one entry: everything else follows from these two."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gridengine.schedulers.registry import BATCH_SYSTEMS, SchedulerEntry
from gridengine.settings.systems import SYSTEMS
from tests.support.contract import BATCH_SYSTEMS as CONTRACT

NINTH = '''
import re, sys, types
from gridengine.settings import systems

systems.SYSTEMS += (
    systems.BatchSystem(
        "ninth", "Ninth", "ninth:NinthScheduler", "put", "NINTH_.*",
        job=("NINTH_ID", "NINTH_HOSTS"), hosts="NINTH_HOSTS", inside="NINTH_HERE",
    ),
)

from gridengine.schedulers.batch_commands import BatchCommands, Seen
from gridengine.schedulers.command_scheduler import CommandScheduler
from gridengine.schedulers.launcher import WorkerStatus


class NinthCommands(BatchCommands):
    key, title, commands = "ninth", "Ninth", ("put", "look", "drop")
    cores_option, time_option = "--cores={n}", "--time"
    site_options = {"queue": "--queue={}"}
    waiting = {"asleep": "`wake JOB` wakes it"}
    look, resume = "look --all JOB", "`rouse JOB`"
    rank_starter = "ranksh -n {ranks}"

    def time(self, seconds):
        return [f"--time={seconds}"]

    def submit(self, array):
        return ["put", *array.options, f"--name={array.name}", str(array.script)]

    def ids(self, output, count):
        return output.split()

    def listing(self, name):
        return ["look", f"--name={name}"]

    def parse(self, output):
        rows = (line.split(" ", 1) for line in output.splitlines())
        return {id: Seen(WorkerStatus.QUEUED, reason) for id, reason in rows}

    def cancel(self, ids):
        return ["drop", *ids]

    def cancel_all(self, name):
        return ["drop", f"--name={name}"]

    @classmethod
    def rank_hosts(cls, environment, ranks, cores):
        return [(environment["NINTH_HOSTS"].split()[0], ranks)]


class NinthScheduler(CommandScheduler):
    """Runs calls in jobs of a Ninth."""

    _commands = NinthCommands


sys.modules["gridengine.schedulers.ninth"] = types.SimpleNamespace(NinthScheduler=NinthScheduler)
'''
LOOK = """
import json, os, socket
from gridengine.cli.scheduler_options import arguments_of
from gridengine.resources import Cores, Ranks
from gridengine.schedulers import default, registry
from gridengine.schedulers.allocation import allocation_here
from gridengine.schedulers.command import command_environment
from gridengine.schedulers.ranks import _allocation
from gridengine.schedulers.requests import explanation
from gridengine.settings.files import parse
from gridengine.settings.values import build, settings
from gridengine.watching.next_steps import reason_and_step, resume_step, silence_step
from gridengine.call_context.environment import SiteEnvironment

entry, told = registry.entry_of("ninth"), {}
told["listed"] = [entry.class_name, entry.system, "ninth" in registry.STARTERS]
told["best"] = default.best_place().partition(";")[0]
os.environ["NINTH_HERE"] = "yes"
told["first"] = default._best()[0].name
site = build({n: one.value for n, one in parse("f", '[ninth]\\nqueue = "long"').items()}).sites
told["setting"], told["default"] = site["ninth"].queue, settings().sites["ninth"].queue
told["option"] = arguments_of("ninth", {"queue": "long"})
job = {"NINTH_ID": "17", "NINTH_HOSTS": "n1 4 n2 2", "MINE": "1"}
told["allocation"] = str(allocation_here(job, "n1"))
words = entry.system_class()._commands()
told["commands see"] = sorted(command_environment(words, job))
there = SiteEnvironment({b"NINTH_ID": b"9"}, frozenset(), frozenset())
caller = {name.encode(): value.encode() for name, value in job.items()}
told["calls see"] = sorted(name.decode() for name in there.merged(caller))
os.environ.update(job)
told["ranks"] = _allocation(Ranks(3)).launcher
told["findings"] = [one.of for one in entry.findings({"PATH": ""})]
told["waits"] = reason_and_step("NinthScheduler", explanation(words, "asleep"), "17")
told["else"] = reason_and_step("NinthScheduler", explanation(words, "why"), "17")[1]
told["resume"] = resume_step("NinthScheduler", "17")
told["silent"] = silence_step("NinthScheduler", "17")
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process says in which a ninth system has its class and its entry."""
    folder = tmp_path_factory.mktemp("ninth")
    for name in ("put", "look", "drop", "flux"):
        (folder / name).write_text("#!/bin/sh\n[ ${0##*/} != flux ]\n")
        (folder / name).chmod(0o755)
    names = [name for system in SYSTEMS for name in system.job]
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", NINTH + LOOK],
        env={name: value for name, value in environment.items() if name != "SGE_ROOT"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


DOCS = Path(__file__).parents[3] / "docs" / "batch-systems.md"


def missing_rows(entries: Iterable[SchedulerEntry]) -> list[str]:
    """Return the systems that the table of the docs has no row for."""
    rows = re.findall(r"^\| ([\w ]+) \| \[`(\w+)`\]", DOCS.read_text(), re.MULTILINE)
    return [one.system for one in entries if (one.system, one.class_name) not in rows]


def test_the_docs_have_a_row_for_each_system() -> None:
    assert missing_rows(BATCH_SYSTEMS) == []
    ninth = SchedulerEntry("ninth", "ninth:NinthScheduler", "Ninth", "put")
    assert missing_rows([*BATCH_SYSTEMS, ninth]) == ["Ninth"]


@pytest.mark.parametrize("entry", BATCH_SYSTEMS, ids=lambda one: one.name)
def test_the_row_of_the_docs_says_how_a_system_is_used_and_tested(entry: SchedulerEntry) -> None:
    row = re.search(rf"^\| {entry.system} \|.*$", DOCS.read_text(), re.MULTILINE)
    assert row is not None
    how, tested = row[0].split(" | ")[2:]
    assert how.startswith("commands" if entry.command else "DRMAA")
    assert ("not " in tested) == (entry.name not in {kind.name for kind in CONTRACT})


@pytest.mark.parametrize("entry", BATCH_SYSTEMS, ids=lambda one: one.name)
def test_the_docs_say_how_a_system_leaves_hosts_out(entry: SchedulerEntry) -> None:
    words = entry.system_class()._commands()
    said = " ".join(words.excluding(["n1"], ""))
    row = re.search(rf"^\| {entry.system}\b.* \| (.*) \|$", said_of_hosts(), re.MULTILINE)
    assert row is not None
    assert (words.host_option.split()[-1].strip("-") in row[1]) if said else ("no words" in row[1])


def said_of_hosts() -> str:
    return DOCS.read_text().partition("| on | a host is left out by |")[2].partition("\n\n")[0]


def test_the_contract_of_imports_names_each_system() -> None:
    text = (DOCS.parents[1] / ".importlinter").read_text()
    block = text.partition("name = Each batch system stands alone")[2].partition("\n\n")[0]
    named = re.findall(r"gridengine\.schedulers\.(\w+)$", block, re.MULTILINE)
    assert named == [one.path.partition(":")[0].partition(".")[0] for one in BATCH_SYSTEMS]


def test_a_system_is_listed_and_detected(told: dict[str, Any]) -> None:
    assert told["listed"] == ["NinthScheduler", "Ninth", True]
    assert told["best"] in {"Ninth", "Slurm"}  # where a Slurm is here, it comes first
    assert told["first"] == "ninth"  # within it, it comes before all others
    assert set(told["findings"]) == {"ninth"}


def test_a_system_has_its_table_of_settings_and_its_options(told: dict[str, Any]) -> None:
    assert (told["setting"], told["default"]) == ("long", "")
    assert told["option"] == {"queue": "long"}


def test_a_script_in_its_job_has_the_cores_of_the_job(told: dict[str, Any]) -> None:
    assert told["allocation"].startswith("the 4 cores of Ninth job 17")


def test_variables_of_a_system_do_not_travel(told: dict[str, Any]) -> None:
    assert told["commands see"] == ["MINE"]
    assert told["calls see"] == ["MINE", "NINTH_ID"]  # the id of the worker's own job


def test_a_system_says_how_ranks_are_started(told: dict[str, Any]) -> None:
    assert told["ranks"] == ["ranksh", "-n", "3"]


def test_explain_uses_its_words(told: dict[str, Any]) -> None:
    assert told["waits"] == ["asleep", "`wake 17` wakes it"]
    assert told["else"] == "ask the batch system itself: `look --all 17`"
    assert "`rouse 17`" in told["resume"]
    assert "`look --all 17`" in told["silent"]
