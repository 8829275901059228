"""Type variables and new types that cannot be imported arrive as what they were."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from gridengine.serialize import pickling


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


def local(kind: Any, *arguments: Any, **options: Any) -> Any:
    made = kind("Local", *arguments, **options)
    made.__module__ = "__main__"
    return made


@pytest.mark.parametrize(
    ("constraints", "options"),
    [
        ((), {"bound": int}),
        ((), {"covariant": True}),
        ((), {"contravariant": True}),
        ((int, str), {}),
    ],
)
def test_a_type_variable_keeps_its_arguments(
    constraints: tuple[type, ...], options: dict[str, Any]
) -> None:
    made = local(typing.TypeVar, *constraints, **options)
    back = through(made)
    assert back.__constraints__ == constraints
    for name in ("__name__", "__bound__", "__covariant__", "__contravariant__", "__module__"):
        assert getattr(back, name) == getattr(made, name)


def test_a_type_variable_stays_one() -> None:
    variable = local(typing.TypeVar)
    first, second = through([variable, list[variable]])
    assert second.__args__ == (first,)


def test_the_parts_of_a_parameter_specification_are_its_own() -> None:
    specification = local(typing.ParamSpec)
    args, kwargs, whole = through([specification.args, specification.kwargs, specification])
    assert args.__origin__ is whole
    assert kwargs.__origin__ is whole


def test_a_new_type_keeps_its_names_and_its_supertype() -> None:
    back = through(local(typing.NewType, int))
    assert (back.__name__, back.__module__, back.__supertype__) == ("Local", "__main__", int)
    assert back(3) == 3
