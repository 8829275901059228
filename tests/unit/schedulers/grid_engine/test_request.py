"""What a cluster task asks for, in Grid Engine's words, and which of its limits it reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError, OutOfMemory, TimeoutError
from gridengine.schedulers import GridEngineScheduler
from gridengine.schedulers.grid_engine.request import Request, parse_memory, parse_time


def specification(**given: object) -> str:
    return Request(**given).specification()  # type: ignore[arg-type]


def test_resources_become_one_l_option() -> None:
    assert (
        specification(resources={"h_vmem": "10G", "h_rt": 7200, "gpu": True})
        == "-l h_vmem=10G,h_rt=7200,gpu=true"
    )


def test_queue_parallel_environment_and_native_follow_the_resources() -> None:
    given = specification(
        queue="all.q", parallel_environment="smp 4", native=" -P physics ", resources={"gpu": 1}
    )
    assert given == "-l gpu=1 -q all.q -pe smp 4 -P physics"


@pytest.mark.parametrize(
    ("text", "size"), [("10G", 10 * 2**30), ("10g", 10**10), ("512", 512), ("INFINITY", 0), ("", 0)]
)
def test_amounts_of_memory_are_read_as_grid_engine_does(text: str, size: float) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("02:00:00", 7200), ("7200", 7200), ("::30", 30), ("1:30", 90), ("INFINITY", 0)],
)
def test_times_are_read_as_grid_engine_does(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("usage", "environment", "fault"),
    [
        ({"ru_wallclock": "61.0", "maxvmem": "1000.0"}, None, TimeoutError),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**30)}, None, OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**30)}, "smp 2", None),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**31)}, "smp 2", OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**31)}, "smp 2-8", OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": "1000.0"}, None, None),
        ({}, None, None),
    ],
)
def test_which_limit_a_killed_task_reached_is_told_from_its_usage(
    usage: dict[str, str], environment: str | None, fault: type[Exception] | None
) -> None:
    request = Request(
        parallel_environment=environment, resources={"h_rt": "00:01:00", "h_vmem": "1G"}
    )
    assert request.fault(usage) is fault


def test_memory_that_is_not_counted_per_slot_is_one_limit_for_all() -> None:
    request = Request(
        parallel_environment="smp 2", resources={"h_vmem": "1G"}, memory_per_slot=False
    )
    assert request.fault({"ru_wallclock": "5.0", "maxvmem": str(2**30)}) is OutOfMemory


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"h_vmem": ["10G"]}, TypeError),
        ({"h_vmem": "10 G"}, ConfigurationError),
        ({"h_vmem": "10G,h_rt=1"}, ConfigurationError),
        ({"queue": 3}, TypeError),
        ({"queue": "all.q -now y"}, ConfigurationError),
        ({"parallel_environment": "smp"}, ConfigurationError),
        ({"parallel_environment": ("smp", 4)}, TypeError),
        ({"native": None}, TypeError),
        ({"max_workers": 0}, ConfigurationError),
        ({"max_workers": "4"}, TypeError),
        ({"jobs_per_worker": 0}, ConfigurationError),
        ({"prologue": [1]}, TypeError),
        ({"environment": ["A=1"]}, TypeError),
        ({"environment": {"A": 1}}, TypeError),
        ({"environment": {"A B": "1"}}, ConfigurationError),
        ({"python": Path("/usr/bin/python3")}, TypeError),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(
    given: dict[str, object], error: type[Exception]
) -> None:
    ((name, value),) = given.items()
    with pytest.raises(error) as caught:
        GridEngineScheduler(**given)  # type: ignore[arg-type]
    assert name in str(caught.value)
    text = repr(next(iter(value)) if isinstance(value, (dict, list)) else value).strip("'")
    assert text in str(caught.value)
