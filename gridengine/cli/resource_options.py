"""The options by which a command is told what workers hold: `--cores`, `--memory`, ..."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gridengine.errors import ConfigurationError

if TYPE_CHECKING:
    from gridengine.resources.base import Resource

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--cores", type=click.IntRange(min=1), help="Cores of each worker."),
    click.option("--memory", metavar="GB", help="Memory of each worker, as 1.5 or 512M."),
    click.option(
        "--time",
        "walltime",
        metavar="TIME",
        help="How long each call may take, as 2:00:00 or in seconds.",
    ),
    click.option("--gpus", type=click.IntRange(min=1), help="GPUs of each worker."),
    click.option("--token", help="What workers must have, by its name in the settings."),
)


def options(*those: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what gives a command these options, in this order."""
    return lambda command: functools.reduce(lambda it, one: one(it), reversed(those), command)


resource_options = options(*_OPTIONS)
"""Gives a command the options above."""


def resources_of(
    *,
    cores: int | None,
    memory: str | None,
    walltime: str | None,
    gpus: int | None,
    token: str | None,
) -> Resource:
    """Return what these options say.

    Raises:
        click.BadParameter: a time, or an amount of memory, is none.
    """
    from gridengine.resources.base import ZERO
    from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime

    time: float | str | None = (
        walltime if walltime is None or ":" in walltime else _number("--time", walltime)
    )
    kinds: tuple[Callable[[Any], Resource], ...] = (Cores, Memory, WTime, GPUs, Token)
    gigabytes = None if memory is None else _gigabytes(memory)
    given = zip(kinds, (cores, gigabytes, time, gpus, token), strict=True)
    return functools.reduce(
        operator.and_, (kind(value) for kind, value in given if value is not None), ZERO
    )


def _gigabytes(text: str) -> float:
    from gridengine.resources.units import parse_gigabytes

    with contextlib.suppress(ValueError):
        return float(text)
    try:
        return parse_gigabytes("memory", text)
    except ConfigurationError:
        raise click.BadParameter(
            f"{text!r} is no amount of memory; write GB, as 1.5, or a unit, as 512M",
            param_hint="--memory",
        ) from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time; write 2:00:00, or seconds", param_hint=name
        ) from None
