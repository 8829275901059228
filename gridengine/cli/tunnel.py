"""`gridengine dispatcher start --ssh` and `connect`: a dispatcher on another machine, by a tunnel
that stays open with the command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

import click

from gridengine.cli.completion import dispatcher_names
from gridengine.cli.console import Command, echo, exit_on_signals
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, FarMachine, is_name
from gridengine.dispatcher.standalone.tunnel import Tunnel

F = TypeVar("F", bound=Callable[..., Any])
WORDS = "gridengine.cli.tunnel.words"
"""Where the context of a command has the arguments for the far machine."""
SSH, PYTHON = "--ssh", "--remote-python"
OWN = (SSH, PYTHON)
HELP = ("-h", "--help")


def tunnel_options(command: F) -> F:
    """Add the options that say where a tunnel leads."""
    with_python = click.option(
        PYTHON,
        metavar="PYTHON",
        help="The Python there that has gridengine, as its shell is told: ~/env/bin/python "
        "(default: python3).",
    )
    with_ssh = click.option(
        SSH, metavar="HOST", help="The machine, as your ssh knows it: me@login.cluster."
    )
    return with_ssh(with_python(command))


class StartCommand(Command):
    """A start that passes its arguments on, unread, to the machine that `--ssh` names, or to which
    the name's tunnel leads: an image or a scheduler that is there may not be here.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        name = given.get("name")
        name = name if isinstance(name, str) else ""
        known = is_name(name) and DispatcherFolder.of(name).tunnel_file.exists()
        if set(HELP) & set(args) or not (known or SSH.removeprefix("--") in given):
            return super().parse_args(ctx, args)
        own, ctx.meta[WORDS] = divided(args)
        return super().parse_args(ctx, [*own, *([name] if name else [])])

    def invoke(self, ctx: click.Context) -> Any:
        ssh, python = ctx.params.pop("ssh"), ctx.params.pop("remote_python")
        if WORDS in ctx.meta:
            return stay(ctx.params["name"], ssh, python, ctx.meta[WORDS])
        if python is not None:
            raise click.UsageError(f"{PYTHON} is for a start with {SSH}", ctx)
        return super().invoke(ctx)


def divided(args: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the arguments that are for this machine, and the others. `--foreground` is neither:
    the tunnel stays in the foreground, and the dispatcher in the background.
    """
    own: list[str] = []
    words: list[str] = []
    left = iter(args)
    for word in left:
        if word in OWN:
            own += [word, *islice(left, 1)]
        elif word.partition("=")[0] in OWN:
            own.append(word)
        elif word != "--foreground":
            words.append(word)
    return own, tuple(words)


def far_machine(folder: DispatcherFolder, ssh: str | None, python: str | None) -> FarMachine:
    """Return where a tunnel leads: what is given, else where it led before.

    Raises:
        click.UsageError: no machine is known.
    """
    before = folder.far_machine()
    if before is None and not ssh:
        raise click.UsageError(f"{SSH} HOST must say where the dispatcher {folder.name} is")
    if ssh and (ssh.startswith("-") or ssh.split() != [ssh]):
        raise click.UsageError(f"{SSH} {ssh!r} is no machine; ~/.ssh/config has what ssh needs")
    if before is None or (ssh and ssh != before.ssh):
        return FarMachine(ssh or "", python or FarMachine("").python)
    return FarMachine(before.ssh, python or before.python)


def stay(name: str, ssh: str | None, python: str | None, words: tuple[str, ...] = ()) -> None:
    """Open the tunnel to a dispatcher, and keep it open until the dispatcher ends, or Ctrl-C.

    words: the arguments of its start; empty if it runs already.

    Raises:
        GridEngineError: it cannot be opened, or not again; the text says why.
    """
    folder = DispatcherFolder.of(name)
    far = far_machine(folder, ssh, python)
    exit_on_signals(lambda number: 0)
    opened = False
    try:
        with Tunnel(folder, far) as tunnel:
            facts = tunnel.open(words)
            opened = True
            if not words:  # else the far machine has said so
                echo(f"dispatcher {name} runs: {facts.holder}")
                echo(f'in a script: gridengine.Client("{name}")')
            echo(
                f"the tunnel to {far.ssh} stays open with this command; Ctrl-C closes it, and the "
                "dispatcher goes on"
            )
            echo(tunnel.keep(lambda told: echo(told, err=True)))
    except KeyboardInterrupt:
        if opened:
            echo(f"\n{left_words(name, far)}", err=True)
        elif words:
            again = f"gridengine dispatcher connect {name} --ssh {far.ssh}"
            echo(f"\nif the dispatcher was started before that: {again}", err=True)
        raise


def left_words(name: str, far: FarMachine) -> str:
    """Return a text for the user about a dispatcher whose tunnel is closed."""
    return (
        f"the tunnel is closed, and the dispatcher {name} goes on at {far.ssh}\n"
        f"  come back: gridengine dispatcher connect {name}\n"
        f"  end it: {far.command('gridengine', 'dispatcher', 'stop', name)}"
    )


@click.command(
    "connect", cls=Command, short_help="Open the tunnel to a dispatcher on another machine."
)
@click.argument("name", shell_complete=dispatcher_names)
@tunnel_options
def connect_command(name: str, *, ssh: str | None, remote_python: str | None) -> None:
    """Open a tunnel through ssh to the dispatcher NAME, which runs on another machine, and keep it
    open. Scripts on this machine then use the dispatcher by its name.

    The machine is the one that `start --ssh` or the last `connect` has named. A broken link is
    opened again. Ctrl-C closes the tunnel; the dispatcher goes on.

    The exit status is 0 when the dispatcher has ended, 1 when the tunnel could not be opened, or
    not again, and 130 after Ctrl-C.

    Examples:
      gridengine dispatcher connect sweeps
      gridengine dispatcher connect sweeps --ssh me@login.cluster
    """
    stay(name, ssh, remote_python)
