"""The command line, with the command `settings`. Other commands have modules of their own
(`MODULES`). Nothing is decided here.
"""

from __future__ import annotations

import importlib
import math
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gridengine._version import __version__
from gridengine.cli.console import (
    Group,
    begin_logging,
    console,
    echo,
    folded,
    json_option,
    print_json,
    shown,
    text,
)
from gridengine.display import printable
from gridengine.errors import GridEngineError
from gridengine.settings.files import describe, nearest
from gridengine.settings.locations import projects_file, users_file
from gridengine.settings.values import sources

MODULES: Mapping[str, str] = {
    **{name: name for name in ("calls", "dispatcher", "doctor", "explain", "logs", "ls")},
    **{name: name for name in ("results", "runs", "top", "watch")},
    **dict.fromkeys(("drain", "up", "worker"), "up_worker_drain"),
    **dict.fromkeys(("forget", "retry"), "runs"),
    **dict.fromkeys(("page", "report"), "pages"),
    "cancel": "calls",
    "scale": "dispatcher",
}
"""The module of each command but `settings`, imported on demand."""
GUESSED: Mapping[str, str] = {
    **dict.fromkeys(("stop", "kill", "abort"), "cancel"),
    **dict.fromkeys(("clean", "delete", "remove"), "forget"),
    **dict.fromkeys(("resume", "rerun"), "retry"),
    **dict.fromkeys(("dashboard", "web", "ui"), "page"),
    **dict.fromkeys(("list", "ps"), "ls"),
    "jobs": "calls",
    "status": "top",
}
"""The command that does what these commands of other programs do. None is an alias: some of them
end or delete something, and here a thing has one name.
"""


class _Commands(Group):
    """Turns errors of this package and of files into a line on standard error and exit status 1, as
    click does with its own errors; a Ctrl-C becomes 130, as in shells.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"gridengine.cli.{MODULES[cmd_name]}")
        found: click.Command = getattr(module, f"{cmd_name}_command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = GUESSED.get(args[0])
            near = nearest(args[0], self.list_commands(ctx))
            if meant is None and near is None:
                raise
            name = ["NAME"] if meant in ("cancel", "forget", "retry") else []
            line = shlex.join(["gridengine", meant or "", *(args[1:] or name)])
            told = f"Did you mean `{line}`?" if meant else f"{near!r} is one."
            raise click.UsageError(f"{error.message} {told}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("", err=True)
            sys.exit(130)
        except GridEngineError as error:
            raise click.ClickException(folded(str(error), sys.stderr)) from error
        except OSError as error:
            if error.filename is None:  # a closed pipe, which click handles; or a fault of ours
                raise
            raise click.ClickException(printable(f"{error.filename}: {error.strerror}")) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gridengine")
def main() -> None:
    """Run Python functions on this machine's processes or on a batch cluster.

    The exit status is 0 when a command has done its work; 1 when it could not, with a line on
    standard error; 2 when its arguments are wrong; 130 after Ctrl-C. The --help of each command
    lists other exit statuses.

    Examples:
      gridengine doctor                       what is this machine, and does it work?
      gridengine doctor --scheduler slurm     is Slurm here, and does it take my jobs?
      gridengine settings                     each setting, and where it comes from
      gridengine up sweep -n 4                four more workers for a script that runs
      gridengine ls                           which of my scripts run, and how far are they?
      gridengine explain                      why does nothing start?
      gridengine runs                         which runs have a name, and what is left of them?
    """
    begin_logging("gridengine: %(message)s")


@main.command(short_help="Show each setting, and where it comes from.")
@json_option(": an object of names, each with value and by")
def settings(as_json: bool) -> None:
    """Show each setting, and where it comes from: a file and its line, an environment variable, or
    the default.

    Files are read in this order, the later over the earlier: ~/.config/gridengine/settings.toml;
    gridengine.toml in this folder, or the nearest above it.

    The exit status is 1 when a file or a variable has an unknown setting, or a wrong value.

    Examples:
      gridengine settings
      gridengine settings --json | jq .max_workers.value
    """
    said = sources()
    if as_json:
        print_json({name: {"value": _plain(one.value), "by": one.by} for name, one in said.items()})
        return
    from rich.table import Table

    table = Table("setting", "value", "set by", box=None, pad_edge=False, header_style="bold")
    for name, one in said.items():
        style = "dim" if one.by == "default" else ""
        table.add_row(text(name), text(shown(one.value)), text(one.by, style))
    terminal = console()
    terminal.print(table)
    for whose, path in (
        ("yours", users_file(os.environ)),
        ("the project's", projects_file(os.environ)),
    ):
        terminal.print(text(f"settings file, {whose}: {describe(path)}", "dim"))


def _plain(value: Any) -> Any:
    """Return a setting for JSON, which has neither infinity nor paths."""
    return None if value == math.inf else str(value) if isinstance(value, Path) else value
