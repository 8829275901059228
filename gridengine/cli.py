"""The command line: `gridengine settings`, `gridengine doctor`. Nothing is decided here: words in, words out."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from gridengine._version import __version__
from gridengine.errors import GridEngineError

if TYPE_CHECKING:
    from rich.console import Console

    from gridengine.doctor import Finding

SCHEDULERS = ("processes", "grid_engine", "slurm")


class _Commands(click.Group):
    """Turns this package's errors into a line on standard error and exit status 1, as click does with its own."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GridEngineError as error:
            raise click.ClickException(str(error)) from error


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  gridengine doctor                       what is this machine, and does it work?
  gridengine doctor --scheduler slurm     is Slurm here, and does it take my jobs?
  gridengine settings                     each setting, and who said it
""",
)
@click.version_option(__version__, prog_name="gridengine")
def main() -> None:
    """Run Python functions on this machine's processes or on a batch cluster."""
    logging.basicConfig(format="gridengine: %(message)s", level=logging.WARNING)


@main.command(
    epilog="""\b
Examples:
  gridengine settings
  gridengine settings --json | jq .max_workers.value
"""
)
@click.option("--json", "as_json", is_flag=True, help="For scripts: an object of names, each with value and by.")
def settings(as_json: bool) -> None:
    """Show each setting, and who said it: a file and its line, an environment variable, or the default.

    Files are, the later over the earlier: ~/.config/gridengine/settings.toml; gridengine.toml in this folder, or the nearest above it.
    """
    from gridengine.config import told
    from gridengine.settingsfiles import projects_file, users_file

    said = told()
    if as_json:
        click.echo(json.dumps({name: {"value": _plain(one.value), "by": one.by} for name, one in said.items()}, indent=1))
        return
    from rich.table import Table

    table = Table("setting", "value", "said by", box=None, pad_edge=False, header_style="bold")
    for name, one in said.items():
        table.add_row(_text(name), _text(_shown(one.value)), _text(one.by, "dim" if one.by == "default" else ""))
    console = _console()
    console.print(table)
    for whose, path in (("yours", users_file(os.environ)), ("the project's", projects_file(os.environ))):
        there = "none" if path is None else f"{path}" if path.exists() else f"{path} (not there)"
        console.print(_text(f"settings file, {whose}: {there}", "dim"))


@main.command(
    epilog="""\b
Examples:
  gridengine doctor
  gridengine doctor --scheduler grid_engine --wait 600
  gridengine doctor --json
"""
)
@click.option("--scheduler", type=click.Choice(SCHEDULERS), help="Look at this one alone, and fail when it is not here.")
@click.option("--wait", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds for each trivial job.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: ok, and a list of findings with of, check, state, text, remedy.")
def doctor(scheduler: str | None, wait: float, as_json: bool) -> None:
    """Say what this machine is: which schedulers answer, what they have, and whether a trivial job comes home.

    The exit status is 1 when something that is here is broken, or when what --scheduler asks for is not here.
    """
    from gridengine import doctor as looks

    found: list[Finding] = []
    console = _console()
    for finding in looks.examine((scheduler,) if scheduler else SCHEDULERS, os.environ, wait=wait):
        found.append(finding)
        if not as_json:
            _show(console, finding)
    broken = looks.is_broken(found, scheduler)
    if as_json:
        click.echo(looks.as_json(found, broken))
    sys.exit(1 if broken else 0)


def _show(console: Console, finding: Finding) -> None:
    style = {"ok": "green", "absent": "dim", "broken": "bold red"}[finding.state.value]
    line = _text(f"{finding.state.value:7}", style)
    line.append(f"{finding.of}: {finding.check}: {finding.text}", style="dim" if style == "dim" else "")
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(_text(f"        try: {finding.remedy}"), soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    # Whoever reads this through a pipe wants whole lines.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 1000)


def _text(words: str, style: str = "") -> Any:
    """Return words as they are: rich would take what is in brackets for its own."""
    from rich.text import Text

    return Text(words, style=style)


def _plain(value: object) -> object:
    return value if isinstance(value, (bool, int, float, str, dict)) else str(value)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {one!r}" for name, one in value.items()) or "none"
    return {True: "yes", False: "no", "": "none"}.get(value, str(value)) if isinstance(value, (bool, str)) else str(value)
