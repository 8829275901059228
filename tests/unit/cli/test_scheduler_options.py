"""Which schedulers take which options, and what workers are told to hold."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from gridengine.cli.scheduler_options import (
    _BATCH,
    _NAMES,
    _TAKEN_BY,
    arguments_of,
    dispatcher_options,
    resource_options,
    resources_of,
    scheduler_options,
)
from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.demand import worker_command
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.schedulers.registry import HAND_STARTED, STARTERS, entry_of


def given(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @scheduler_options
    def command(**given: Any) -> None:
        found.update(given)

    command.main(list(words), standalone_mode=False)
    found.pop("scheduler")
    return found


def test_each_option_is_one_that_its_schedulers_take() -> None:
    assert set(_TAKEN_BY) < set(given())
    for name in given():
        for taker in _TAKEN_BY.get(name, _BATCH):
            entry = HAND_STARTED if taker == HAND_STARTED.name else entry_of(taker)
            kind = entry.scheduler_class()
            named = {*inspect.signature(kind).parameters, *re.findall(r"\w+", kind.__doc__ or "")}
            assert _NAMES.get(name, name) in named, (name, taker)


def test_only_given_options_are_arguments() -> None:
    assert arguments_of("slurm", given()) == {}
    assert arguments_of("htcondor", given("--no-shared-files")) == {"shared_files": False}
    assert arguments_of("none", given("--transport", "files")) == {"transport": "files"}
    said = given("--job-name", "sweep", "--min-workers", "0", "--prologue", "a", "--prologue", "b")
    assert arguments_of("slurm", said) == {
        "name": "sweep",
        "min_workers": 0,
        "prologue": ("a", "b"),
    }


def test_a_python_is_a_path_or_the_words_of_a_command(tmp_path: Path) -> None:
    own = tmp_path / "my python"
    own.touch()
    assert given("--python", str(own))["python"] == str(own)
    assert given("--python", "python3")["python"] == "python3"
    words = given("--python", "conda run -n 'my env' python")["python"]
    assert words == ["conda", "run", "-n", "my env", "python"]
    with pytest.raises(click.BadParameter, match="is not a command: No closing quotation"):
        given("--python", "conda run 'x")


def test_an_image_keeps_its_place_though_the_dispatcher_is_started_again_elsewhere() -> None:
    image = str(Path.cwd() / "image.sif")
    assert given("--container", "image.sif")["container"] == ["apptainer", "exec", image]
    words = given("--container", "apptainer exec --nv image.sif")["container"]
    assert words == ["apptainer", "exec", "--nv", image]
    with pytest.raises(click.BadParameter, match="--container must be an image"):
        given("--container", "podman exec image")


def test_an_option_of_another_scheduler_is_refused_with_its_name() -> None:
    with pytest.raises(click.UsageError, match="--parallel-environment is for grid_engine, not"):
        arguments_of("slurm", given("--parallel-environment", "smp"))
    with pytest.raises(click.UsageError, match="--native is for grid_engine, slurm"):
        arguments_of("processes", given("--native", "-V"))


@pytest.mark.parametrize("name", STARTERS)
def test_each_may_have_a_number_of_workers(name: str) -> None:
    assert arguments_of(name, given("--max-workers", "3")) == {"max_workers": 3}


def resources(*words: str) -> Resource:
    found: list[Resource] = []

    @click.command()
    @resource_options
    def command(**given: Any) -> None:
        found.append(resources_of(given))

    command.main(list(words), standalone_mode=False)
    return found[0]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ((), ZERO),
        (("--cores", "4", "--memory", "1.5"), Cores(4) & Memory(1.5)),
        (("--memory", "512M"), Memory(0.5)),
        (("--time", "2:00:00"), WTime("2:00:00")),
        (("--time", "1-12:30:00"), WTime("1-12:30:00")),
        (("--time", "90"), WTime(90)),
        (("--gpus", "2", "--token", "big"), GPUs(2) & Token("big")),
    ],
)
def test_each_option_is_a_kind_of_resource(words: tuple[str, ...], meant: Resource) -> None:
    assert resources(*words) == meant


@pytest.mark.parametrize(
    "meant",
    [
        Cores(4) & Memory(8) & GPUs(2) & Token("a licence"),
        Memory(0.1),
        Memory("100M"),
        Token("it's"),
    ],
)
def test_the_command_that_starts_a_worker_for_a_request_says_it_by_these_options(
    meant: Resource,
) -> None:
    *before, name = shlex.split(worker_command(ZERO))
    assert (before, name) == (["gridengine", "worker"], "NAME")
    words = shlex.split(worker_command(meant & WTime(60)))
    assert resources(*words[3:]) == meant


def test_a_dispatcher_may_start_no_workers_and_then_has_no_say_in_how() -> None:
    @click.command()
    @dispatcher_options
    def command(scheduler: str, **given: Any) -> None:
        assert arguments_of(scheduler, given) == {}

    command.main(["--scheduler", "none"], standalone_mode=False)
    with pytest.raises(click.UsageError, match=r"--max-workers is for .* not for none"):
        command.main(["--scheduler", "none", "--max-workers", "3"], standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--time", "soon"), click.BadParameter),
        (("--time", "25:61:00"), click.BadParameter),
        (("--time", "nan"), click.BadParameter),
        (("--time", "-5"), click.BadParameter),
        (("--time", "0"), ConfigurationError),
        (("--memory", "lots"), click.BadParameter),
        (("--memory", "0"), ConfigurationError),
        (("--memory", "inf"), ConfigurationError),
        (("--cores", "0"), click.BadParameter),
        (("--token", ""), ConfigurationError),
    ],
)
def test_a_wrong_amount_is_refused(words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        resources(*words)
