"""What calls find in `os.environ`: the variables of their caller, but for those that belong to a
machine, a login or a batch job, and what their prologue, scheduler and allocation say.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from gridengine.wire.connection_file import EXPORTED, KEPT, SITE
from gridengine.wire.messages import CallerState
from gridengine.worker.affinity import default_threads
from gridengine.worker.call_context import GVAR

Variables: TypeAlias = Mapping[bytes, bytes]
NONE_GIVEN: Variables = MappingProxyType({})

PLACE = (
    rb"HOST|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|TMPDIR|TMP|TEMP|TEMPDIR"  # a machine's
    rb"|SSH_.*|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|WINDOWID|SESSION_MANAGER|DBUS_.*|KRB5CCNAME"
    rb"|XDG_(RUNTIME_DIR|SESSION_.*|SEAT|SEAT_PATH|VTNR)|GPG_(AGENT_INFO|TTY)|TTY|TMUX.*|STY"
    rb"|SHLVL|_|INVOCATION_ID|JOURNAL_STREAM|LISTEN_.*|NOTIFY_SOCKET|SYSTEMD_EXEC_PID|WATCHDOG_.*"
    rb"|SGE_.*|JOB_(ID|NAME|SCRIPT)|N(SLOTS|HOSTS|QUEUES)|PE_HOSTFILE|RESTARTED"  # batch jobs'
    rb"|SLURM_.*|SLURMD_.*|PBS_.*|LSB_.*|LSF_.*|OAR_.*|FLUX_.*|COBALT_.*|CONDOR_.*|_CONDOR_.*"
    rb"|PMI_.*|PMIX_.*|OMPI_COMM_.*|MPI_LOCAL.*|GRIDENGINE_JOB_.*"
)
"""Variables that say something of a machine, a login or a batch job: they never travel."""
GRANTED = (
    rb"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES"
    rb"|HIP_VISIBLE_DEVICES|ZE_AFFINITY_MASK|ENVIRONMENT|ARC|PE|QUEUE|REQUEST"
)
"""Those that travel only where the batch system has not set them for the job."""


def own_variables() -> Variables:
    """Return what `os.environ` keeps. To compare it takes 2 us, to copy `os.environ` 30 us."""
    return vars(os.environb)["_data"]  # type: ignore[no-any-return]


def matches(names: bytes, name: bytes) -> bool:
    """Return whether a name is one of these. They are not compiled at import, where most processes
    need none of them.
    """
    return re.fullmatch(names, name) is not None


class Site(Struct, frozen=True):
    """What is found on a worker's own machine.

    `kept` are the names that its prologue and `environment=` have set, `exported` those that the
    submitting process had, and that may have come along with the submission. On the caller's own
    machine (`local`) all others are the caller's.
    """

    own: Variables
    kept: frozenset[bytes]
    exported: frozenset[bytes]
    local: bool = False

    @classmethod
    def here(cls, *, local: bool = False) -> Site:
        """Return that of this process, and remove what only says it."""
        said = [os.environ.pop(name, "") for name in (KEPT, EXPORTED)]
        kept, exported = (frozenset(os.fsencode(names).split(b"=")) for names in said)
        own = dict(own_variables())
        return cls(own, kept, frozenset(own) if local else exported, local)

    def merged(self, caller: Variables) -> Variables:
        """Return what calls of this caller find here."""
        if SITE.encode() in self.kept:
            return self.own
        own = {
            name: value
            for name, value in self.own.items()
            if name not in self.exported or self._stays(name)
        }
        return {**own, **{name: value for name, value in caller.items() if not self._stays(name)}}

    def _stays(self, name: bytes) -> bool:
        return name in self.kept or (
            not self.local
            and (matches(PLACE, name) or (name in self.own and matches(GRANTED, name)))
        )


class CallEnvironment:
    """Sets the environment of a runner for its calls.

    Args:
        site: what is found where it runs; None on the caller's own machine, where all is the
            caller's.
        threads: how many processors a call has that asks for nothing; 0 where nobody knows.
    """

    def __init__(self, site: Site | None, threads: int = 0) -> None:
        self._site = site
        self._threads = threads
        self._initial = dict(own_variables())
        self.caller: CallerState | None = None
        """The one whose calls it was entered for last."""
        self._wanted: Variables = self._initial
        self._given: Variables = NONE_GIVEN
        self._was_alone = False

    def enter(self, caller: CallerState | None, given: Variables, *, alone: bool) -> None:
        """Have the variables, umask and arguments of a caller, and the variables of an allocation.

        What calls change in them later calls of the same caller find changed, as in the processes
        of a `multiprocessing.Pool`; but not a call that is `alone`, a job, nor those after it.
        """
        if not (alone or self._was_alone or caller != self.caller):
            if given is not self._given:
                self.give(given)
            return
        if caller != self.caller or alone != self._was_alone:
            self.caller, self._wanted = caller, self._variables_of(caller)
            if not alone:  # a job shares with nobody: it has what it finds
                self._wanted = {
                    **self._wanted,
                    **default_threads(self._threads, self._wanted),
                }
        self._was_alone = alone
        GVAR.environment_number += 1
        if caller is not None:
            os.umask(caller.umask)
            sys.argv = list(map(os.fsdecode, caller.arguments))
        wanted = self._note_given(given)
        if wanted != own_variables():
            set_variables({**dict.fromkeys(own_variables()), **wanted})

    def give(self, given: Variables) -> None:
        """Have the variables of another allocation; all others stay as they are."""
        before, wanted = self._given, self._note_given(given)
        set_variables({name: wanted.get(name) for name in before.keys() | given.keys()})

    def _note_given(self, given: Variables) -> Variables:
        """Return what is wanted with the variables of this allocation."""
        self._given = given
        GVAR.given = {name: (value, self._wanted.get(name)) for name, value in given.items()}
        return {**self._wanted, **given} if given else self._wanted

    def _variables_of(self, caller: CallerState | None) -> Variables:
        if caller is None:
            return self._initial
        variables = dict(entry.split(b"=", 1) for entry in caller.variables.split(b"\0") if entry)
        return variables if self._site is None else self._site.merged(variables)


def set_variables(wanted: Mapping[bytes, bytes | None]) -> None:
    """Set these variables; None is for one that is not to be there."""
    present = own_variables()
    for name, value in wanted.items():
        if not name:  # a process may be given one without a name, which nobody can set
            continue
        if value is None:
            os.environb.pop(name, None)
        elif present.get(name) != value:
            os.environb[name] = value


def changes_since(before: Variables) -> dict[bytes, bytes | None]:
    """Return the variables that differ now; None is for one that has gone."""
    now = own_variables()
    return {
        name: now.get(name)
        for name in before.keys() | now.keys()
        if now.get(name) != before.get(name)
    }
