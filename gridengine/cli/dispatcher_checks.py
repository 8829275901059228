"""The findings of `gridengine doctor` about this user's stand-alone dispatchers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gridengine._version import __version__
from gridengine.dispatcher.standalone import dispatcher_folder
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder
from gridengine.errors import ConfigurationError
from gridengine.schedulers.checks import Finding, State


def findings() -> Iterator[Finding]:
    """Yield a finding for each dispatcher that runs, or has a fault."""
    for folder in DispatcherFolder.all():
        found = list(_look_at(folder))
        yield from found
        if not found and folder.state() is dispatcher_folder.State.RUNNING:
            yield _finding(folder)(State.OK, f"runs: {folder.holder()}")


def _finding(folder: DispatcherFolder) -> partial[Finding]:
    return partial(Finding, "here", f"dispatcher {folder.name}")


def _look_at(folder: DispatcherFolder) -> Iterator[Finding]:
    """Yield the faults of a dispatcher."""
    broken = partial(_finding(folder), State.BROKEN)
    start = f"gridengine dispatcher start {folder.name}"
    exposed = [path for path in (folder.path, *folder.path.glob("*.json")) if _is_exposed(path)]
    if exposed:
        yield broken(
            f"{', '.join(map(str, exposed))}: others may look at this, or it belongs to somebody "
            "else: its keys may be known",
            f"gridengine dispatcher stop {folder.name}; remove {folder.path / 'server.json'}; "
            f"chmod -R go= {folder.path}; {start}",
        )
    try:
        folder.options()
    except ConfigurationError as error:
        yield broken(error.message, f"{start} --scheduler ...")
    holder, state = folder.holder(), folder.state()
    if state is dispatcher_folder.State.DIED:
        yield broken(f"was killed: {holder}", f"{start}, or remove {folder.path}")
    if state is not dispatcher_folder.State.RUNNING:
        return
    if not folder.answers():
        where = ", ".join(folder.addresses()) or "no address that is known"
        yield broken(
            f"{holder}: does not answer at {where}",
            f"see that no firewall is between; or gridengine dispatcher stop --now {folder.name}",
        )
    if holder is not None and holder.version != __version__:
        yield broken(
            f"runs gridengine {holder.version}, and this is {__version__}",
            f"gridengine dispatcher restart {folder.name}",
        )


def _is_exposed(path: Path) -> bool:
    """Return whether others may read or write a file, or it is not this user's."""
    facts = path.lstat()
    return facts.st_uid != os.getuid() or bool(stat.S_IMODE(facts.st_mode) & 0o077)
