"""`gridengine scale`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridengine.cli import dispatcher
from gridengine.cli import dispatcher as module
from gridengine.cli.main import main


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a dispatcher was told."""
    found: list[dict[str, Any]] = []

    def ask(folder: Any, action: str, **bounds: Any) -> dict[str, int]:
        assert (folder.name, action) == ("sweeps", "scale")
        found.append(bounds)
        return {"minimum": 0, "maximum": 8}

    monkeypatch.setattr(module, "by_itself", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(dispatcher, "ask", ask)
    return found


def scale(*words: str) -> Result:
    return CliRunner().invoke(main, ["scale", "sweeps", *words])


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        (("50",), {"minimum": 50, "maximum": 50}),
        (("0",), {"minimum": 0, "maximum": 0}),
        (("--auto",), {}),
    ],
)
def test_a_number_is_both_bounds_and_auto_neither(
    asked: list[dict[str, Any]], words: tuple[str, ...], bounds: dict[str, int]
) -> None:
    result = scale(*words)
    assert (result.exit_code, asked) == (0, [bounds])
    assert result.output == "dispatcher sweeps: between 0 and 8 workers\n"


@pytest.mark.parametrize("words", [(), ("5", "--auto"), ("0", "--auto"), ("-1",), ("many",)])
def test_a_number_that_is_not_given_once_is_refused(
    asked: list[dict[str, Any]], words: tuple[str, ...]
) -> None:
    assert (scale(*words).exit_code, asked) == (2, [])


def test_two_bounds_that_are_the_same_are_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "by_itself", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(dispatcher, "ask", lambda folder, action, **bounds: bounds)
    assert scale("3").output == "dispatcher sweeps: 3 workers\n"
