"""What a shell offers when TAB is pressed."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.shell_completion import ShellComplete
from msgspec.structs import replace

from gridengine.cli.completion import run_names, seen_names, watched_names
from gridengine.cli.main import main
from gridengine.dispatcher.watch_messages import WatchAnswer
from tests.support.watched import WHO, FakeWatched, Machine, silent

CONTEXT = click.Context(click.Command("top"))
NAME = click.Argument(["name"])


@pytest.fixture(autouse=True)
def there(machine: Machine) -> None:
    """One dispatcher that runs, one that is silent, and a run of another that is over."""
    over = replace(WHO, name="night.py", run_id="20261101-000000-login1-17-0a1b2c", pid=17)
    machine.ended(WatchAnswer(over))
    machine.says(WatchAnswer(WHO))
    machine.add(FakeWatched(silent), 99)


@pytest.mark.parametrize(
    ("typed", "names"),
    [("", ["sweep.py"]), ("sw", ["sweep.py"]), ("sweep.py", ["sweep.py"]), ("x", [])],
)
def test_names_that_begin_as_was_typed_are_offered(typed: str, names: list[str]) -> None:
    assert [one.value for one in watched_names(CONTEXT, NAME, typed)] == names


def test_each_completion_has_a_description() -> None:
    [one] = watched_names(CONTEXT, NAME, "")
    assert one.help == "process 4242 on login1, /sweep.py"


def test_names_with_control_characters_are_not_offered_and_others_are_described_without(
    machine: Machine,
) -> None:
    names = "sweep\nx.py", "sweep\x1b[31m.py", "sweeps.py"
    machine.says(*(WatchAnswer(replace(WHO, name=one, script="/a\x1b\n/b")) for one in names))
    offered = {one.value: one.help for one in watched_names(CONTEXT, NAME, "s")}
    assert offered == {"sweeps.py": "process 4242 on login1, /a /b"}


def test_runs_that_are_over_are_offered_by_both_of_their_names() -> None:
    found = [one.value for one in seen_names(CONTEXT, NAME, "")]
    assert found == ["night.py", "20261101-000000-login1-17-0a1b2c", "sweep.py"]


def test_the_command_offers_them_to_a_shell() -> None:
    shell = ShellComplete(main, {}, "gridengine", "_GRIDENGINE_COMPLETE")
    assert [one.value for one in shell.get_completions(["top"], "sw")] == ["sweep.py"]


@pytest.mark.parametrize("directory", ["~no such user/runs", f"/{'too long' * 40}"])
def test_nothing_is_offered_when_something_is_wrong(
    configure: Callable[..., None], directory: str
) -> None:
    configure(run_directory=directory)
    assert run_names(CONTEXT, NAME, "") == []
