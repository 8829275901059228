"""How long cluster tasks may run, by what Grid Engine's commands print (8.1.9)."""

from __future__ import annotations

import math

import pytest

from gridengine.schedulers.command import Answer
from gridengine.schedulers.grid_engine.time_limits import Limit, TimeLimits, parse_limit

ROW = """    <job_list state="running">
      <JB_job_number>442</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>j.sh</JB_name>
      <state>r</state>
      <JAT_start_time>2026-11-28T12:05:28</JAT_start_time>
      <queue_name>{queue}</queue_name>
      <slots>1</slots>{task}
    </job_list>
"""
QUEUE = """qname                 short.q
min_cpu_interval      00:05:00
s_rt                  00:00:10
h_rt                  {h_rt}
s_cpu                 INFINITY
h_cpu                 {h_cpu}
"""
JOB = """job_number:                 442
hard resource_list:         h_vmem=1G,h_rt={h_rt}
usage         1:            cpu=00:00:00, mem=0.00000 GB s
"""


class Played:
    """A Grid Engine that prints this, and notes what it was asked."""

    def __init__(self, rows: str, job: str = "") -> None:
        self.rows, self.job = rows, job
        self.asked: list[str] = []

    def ask(self, name: str, *arguments: str) -> Answer:
        self.asked.append(f"{name} {arguments[0]} {arguments[1]}")
        if name == "qconf":
            limited = QUEUE.format(h_rt="01:00:00", h_cpu="INFINITY")
            return Answer(limited if arguments[1].startswith("short.q") else "")
        return Answer(self.job if arguments[0] == "-j" else self.rows)


def test_the_shorter_limit_of_queue_and_job_counts() -> None:
    rows = ROW.format(queue="short.q@vm", task="<tasks>2</tasks>")
    queue = TimeLimits(Played(rows))
    assert queue.of(["442.2"]) == {"442.2": (3600.0, "h_rt=01:00:00 of queue short.q@vm")}
    job = TimeLimits(Played(rows, JOB.format(h_rt="0:30:0")))
    assert job.of(["442.2"]) == {"442.2": (1800.0, "h_rt=0:30:0 of job 442")}


def test_each_queue_and_job_is_asked_once_and_those_that_do_not_run_are_left_out() -> None:
    played = Played(
        "".join(ROW.format(queue="all.q@vm", task=f"<tasks>{task}</tasks>") for task in (1, 2))
    )
    limits = TimeLimits(played)
    for _ in range(2):
        assert limits.of(["442.1", "442.2", "442.3"]) == dict.fromkeys(
            ["442.1", "442.2"], Limit(math.inf)
        )
    assert played.asked == ["qstat -xml -s", "qstat -j 442", "qconf -sq all.q@vm", "qstat -xml -s"]


@pytest.mark.parametrize("told", ["", "<job_list>", "<job_list><tasks>1</tasks></job_list>"])
def test_of_what_is_printed_otherwise_nothing_is_known(told: str) -> None:
    assert TimeLimits(Played(told)).of(["442.1"]) == {}


@pytest.mark.parametrize(
    ("h_rt", "h_cpu", "seconds"),
    [
        ("INFINITY", "INFINITY", math.inf),
        ("02:00:00", "INFINITY", 7200),
        ("7200", "3600", 3600),
        ("INFINITY", "00:10:00", 600),
    ],
)
def test_a_queue_s_limits_are_those_that_end_a_job(h_rt: str, h_cpu: str, seconds: float) -> None:
    assert parse_limit(QUEUE.format(h_rt=h_rt, h_cpu=h_cpu), "it").seconds == seconds
