"""The far end of a tunnel: run by ssh, `python -m gridengine.cli.far_end VERSION PYTHON NAME
[WORDS]`, on a dispatcher's machine.

It starts the dispatcher if it is given the words of a start, prints an `FarEndAnswer` with the keys
by which clients connect, and stays until the dispatcher ends, or the other end closes its standard
input. The exit status says which: see `ssh_link`.
"""

from __future__ import annotations

import contextlib
import select
import sys
import threading
import time
from collections.abc import Sequence

import msgspec

from gridengine._version import __version__
from gridengine.cli.main import main as gridengine
from gridengine.dispatcher.run_directory import WATCHER
from gridengine.dispatcher.standalone.dispatcher_folder import (
    ANSWER_SECONDS,
    DispatcherFolder,
    DispatcherState,
)
from gridengine.dispatcher.standalone.ssh_link import DIED, ENDED, MARK, MOVED, Facts, FarEndAnswer
from gridengine.errors import ConfigurationError, GridEngineError
from gridengine.journal.lock_file import Holder
from gridengine.serialize.byte_code import PYTHON
from gridengine.wire.connection_file import ClientConnection, load_private, why_unreachable

LOOK_SECONDS = 0.5
AGAIN_SECONDS = 2.0
"""A dispatcher that has ended is looked for this long: `restart` may have ended it."""
START_SECONDS = 30.0
"""How long a dispatcher whose lock is held may take until clients can connect."""


def main(arguments: Sequence[str]) -> int:
    """Run the far end, as the head of the module describes; return the exit status."""
    version, python, name, *words = arguments
    if (version, python) != (__version__, PYTHON):
        tell(FarEndAnswer(__version__, PYTHON))
        return 1
    try:
        folder = folder_of(name)
        if words and not is_started(words):
            tell(FarEndAnswer(__version__, PYTHON))
            return 1
        facts = facts_of(folder)
    except GridEngineError as error:
        tell(FarEndAnswer(__version__, PYTHON, error=error.message, hint=error.hint or ""))
        return 1
    tell(FarEndAnswer(__version__, PYTHON, facts=facts))
    return attend(folder, facts)


def tell(answer: FarEndAnswer) -> None:
    """Print the answer."""
    sys.stdout.buffer.write(b"\n" + MARK + msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def folder_of(name: str) -> DispatcherFolder:
    """Return the dispatcher's folder.

    Raises:
        ConfigurationError: it is the folder of the tunnel, which the two machines share.
    """
    folder = DispatcherFolder.of(name)
    if folder.tunnel_file.exists():
        raise ConfigurationError(
            f"{folder.path} is on a file system that both machines have: a dispatcher of either "
            "is found there by its name, without a tunnel",
            hint="start it there by hand, without --ssh; or, to use a tunnel all the same, set "
            "GRIDENGINE_RUN_DIRECTORY on this machine to a folder that is here alone",
        )
    return folder


def is_started(words: Sequence[str]) -> bool:
    """Start a dispatcher as the command line does, and return whether it runs. The output of the
    command goes to standard error, for the user to read.
    """
    with contextlib.redirect_stdout(sys.stderr):
        try:
            gridengine(["dispatcher", "start", *words], prog_name="gridengine")
        except SystemExit as end:
            return not end.code
    return True


def facts_of(folder: DispatcherFolder) -> Facts:
    """Return the facts that clients on another machine need.

    Raises:
        ConfigurationError: the dispatcher does not run, or does not answer.
    """
    end = time.monotonic() + START_SECONDS
    while folder.state() is DispatcherState.RUNNING and not folder.client_file.exists():
        if time.monotonic() > end:
            raise ConfigurationError(
                f"the dispatcher {folder.name!r} has no address yet", hint="try it again"
            )
        threading.Event().wait(LOOK_SECONDS)
    holder = folder.holder()
    if folder.state() is not DispatcherState.RUNNING or holder is None:
        raise ConfigurationError(f"the dispatcher {folder.name!r} does not run")
    return Facts(
        target_of(folder, holder),
        folder.run_id(),
        holder,
        folder.options(),
        load_private(folder.client_file, ClientConnection),
        load_private(folder.path / WATCHER, ClientConnection),
    )


def target_of(folder: DispatcherFolder, holder: Holder) -> str:
    """Return the address at which this machine reaches the dispatcher. It is the loopback address
    if the dispatcher is here; else, as on another login node with the same home, the first that
    answers.

    Raises:
        ConfigurationError: none answers.
    """
    addresses = folder.addresses()
    if holder.is_here:
        return f"127.0.0.1:{addresses[0].rpartition(':')[2]}"
    for address in addresses:
        if not why_unreachable(address, ANSWER_SECONDS):
            return address.removeprefix("tcp://")
    raise ConfigurationError(
        f"the dispatcher {folder.name!r}, {holder}, does not answer",
        hint="see that no firewall is between that machine and this one",
    )


def attend(folder: DispatcherFolder, facts: Facts) -> int:
    """Wait until the dispatcher ends or moves, or the other end closes standard input."""
    known, ended_at = (facts.holder, facts.client.addresses), None
    while not select.select([0], [], [], LOOK_SECONDS)[0]:
        now = time.monotonic()
        if folder.state() is DispatcherState.RUNNING:
            ended_at = None
            if folder.client_file.exists() and (folder.holder(), folder.addresses()) != known:
                return MOVED
        elif ended_at is None:
            ended_at = now
        elif now - ended_at > AGAIN_SECONDS:
            return ENDED if folder.holder() is None else DIED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
