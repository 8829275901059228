"""What commands are told that workers hold."""

from __future__ import annotations

from typing import Any

import click
import pytest

from gridengine.cli.resource_options import resource_options, resources_of
from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime


def resources(*words: str) -> Resource:
    found: list[Resource] = []

    @click.command()
    @resource_options
    def command(**given: Any) -> None:
        found.append(resources_of(**given))

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
    ("words", "error"),
    [
        (("--time", "soon"), click.BadParameter),
        (("--time", "25:61:00"), ConfigurationError),
        (("--time", "nan"), ConfigurationError),
        (("--time", "-5"), ConfigurationError),
        (("--memory", "lots"), click.BadParameter),
        (("--memory", "0"), ConfigurationError),
        (("--memory", "inf"), ConfigurationError),
        (("--cores", "0"), click.BadParameter),
        (("--token", ""), ConfigurationError),
    ],
)
def test_what_is_no_amount_is_refused(words: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        resources(*words)
