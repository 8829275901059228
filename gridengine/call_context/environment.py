"""The parts of their caller's process that calls find in a runner: the warning filters, the context
of `decimal`, the recursion limit, and the environment variables, except those that belong to a
machine, a login or a batch job.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct

from gridengine.call_context import EXPORTED, KEPT, LOG, SCRATCH, SITE
from gridengine.call_context.current_call import CARRIED, GVAR
from gridengine.call_context.process_resources import default_threads
from gridengine.errors import PicklingError
from gridengine.wire.messages import CallerState

Variables: TypeAlias = Mapping[bytes, bytes]
NONE_GIVEN: Variables = MappingProxyType({})

PLACE = (
    rb"HOST|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|TMPDIR|TMP|TEMP|TEMPDIR"  # a machine's
    rb"|SSH_.*|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|WINDOWID|SESSION_MANAGER|DBUS_.*|KRB5CCNAME"
    rb"|XDG_(RUNTIME_DIR|SESSION_.*|SEAT|SEAT_PATH|VTNR)|GPG_(AGENT_INFO|TTY)|TTY|TMUX.*|STY"
    rb"|SHLVL|_|INVOCATION_ID|JOURNAL_STREAM|LISTEN_.*|NOTIFY_SOCKET|SYSTEMD_EXEC_PID|WATCHDOG_.*"
    rb"|COBALT_.*|PMI_.*|PMIX_.*|OMPI_COMM_.*|MPI_LOCAL.*|GRIDENGINE_JOB_.*"  # batch jobs'
)
GRANTED = (
    rb"CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES"
    rb"|HIP_VISIBLE_DEVICES|ZE_AFFINITY_MASK|ENVIRONMENT|ARC|PE|QUEUE|REQUEST"
)
"""Variables that travel only if the batch system has not set them for the job."""
PATHS = rb"^[~/]|:~|:/(?!/)"
"""Matches a value that is a path, or has several. Of `https://host` it is none."""


@functools.cache
def place_variables() -> bytes:
    """Return a pattern of variables of a machine, a login or a batch job: they never travel."""
    from gridengine.settings.systems import SYSTEMS  # here: few runners on this machine need it

    return b"|".join([PLACE, *(one.variables.encode() for one in SYSTEMS)])


def own_variables() -> Variables:
    """Return the dict behind `os.environ`: comparing it takes 2 us, copying `os.environ` 30 us."""
    return vars(os.environb)["_data"]  # type: ignore[no-any-return]


def matches(names: bytes, name: bytes) -> bool:
    """Return whether a name matches one of these patterns. They are not compiled at import: most
    processes need none of them.
    """
    return re.fullmatch(names, name) is not None


class SiteEnvironment(Struct, frozen=True):
    """The environment of a worker's own machine.

    `set_here` are the names that its prologue and `environment=` have set; calls keep their values.
    `exported` are the names that the submitting process had, and that may have come with the
    submission. On the caller's own machine (`local`) all other variables are the caller's. With a
    `scratch` folder the worker shares no files with the caller, whose paths mean nothing here.
    """

    own: Variables
    set_here: frozenset[bytes]
    exported: frozenset[bytes]
    local: bool = False
    scratch: str = ""

    @classmethod
    def here(cls, *, local: bool = False) -> SiteEnvironment:
        """Return the site of this process, and remove the three variables that describe it."""
        *said, scratch = [os.environ.pop(name, "") for name in (KEPT, EXPORTED, SCRATCH)]
        set_here, exported = (frozenset(os.fsencode(names).split(b"=")) for names in said)
        own = dict(own_variables())
        own.pop(LOG.encode(), None)  # a worker that a call starts has another log
        return cls(own, set_here, frozenset(own) if local else exported, local, scratch)

    def merged(self, caller: Variables) -> Variables:
        """Return the variables that this caller's calls get here."""
        if SITE.encode() in self.set_here:
            return self.own
        own = {
            name: value
            for name, value in self.own.items()
            if name not in self.exported or self._stays(name) or self.scratch
        }
        if self.scratch:
            caller = {name: value for name, value in caller.items() if not re.search(PATHS, value)}
        return {**own, **{name: value for name, value in caller.items() if not self._stays(name)}}

    def _stays(self, name: bytes) -> bool:
        return name in self.set_here or (
            not self.local
            and (matches(place_variables(), name) or (name in self.own and matches(GRANTED, name)))
        )


class CallEnvironment:
    """Sets the environment of a runner for its calls.

    Args:
        site: the environment of this machine; None on the caller's own machine, where calls get the
            caller's.
        threads: how many processors a call has that requests nothing; 0 if unknown.
    """

    def __init__(self, site: SiteEnvironment | None, threads: int = 0) -> None:
        self._site = site
        self._threads = threads
        self._initial = dict(own_variables())
        self.caller: CallerState | None = None
        """The caller whose calls were entered last."""
        self._wanted: Variables = self._initial
        self._given: Variables = NONE_GIVEN
        self._was_alone = False

    def enter(self, caller: CallerState | None, given: Variables, *, alone: bool) -> None:
        """Set the variables, umask and arguments of a caller, and the variables of an allocation.

        Changes that calls make are visible to later calls of the same caller, as in the processes
        of a `multiprocessing.Pool`. They are not visible to a call that is `alone` (a job), nor to
        calls after it.
        """
        if not (alone or self._was_alone or caller != self.caller):
            if given is not self._given:
                self.give(given)
            return
        if caller != self.caller or alone != self._was_alone:
            self.caller, self._wanted = caller, self._variables_of(caller)
            if not alone:  # a job shares its processors with nobody: set no number of threads
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

    def leave(self) -> None:
        """Have the next `enter` set all anew: a part of the caller's state could not be set."""
        self._was_alone = True

    def give(self, given: Variables) -> None:
        """Replace the variables of the previous allocation; all others stay as they are."""
        before, wanted = self._given, self._note_given(given)
        set_variables({name: wanted.get(name) for name in before.keys() | given.keys()})

    def _note_given(self, given: Variables) -> Variables:
        """Return the wanted variables together with those of this allocation."""
        self._given = given
        GVAR.given = {name: (value, self._wanted.get(name)) for name, value in given.items()}
        return {**self._wanted, **given} if given else self._wanted

    def _variables_of(self, caller: CallerState | None) -> Variables:
        if caller is None:
            return self._initial
        variables = dict(entry.split(b"=", 1) for entry in caller.variables.split(b"\0") if entry)
        return variables if self._site is None else self._site.merged(variables)


def set_variables(wanted: Mapping[bytes, bytes | None]) -> None:
    """Set these variables; None removes one. Numba's number of threads stays as it is once numba
    is loaded: when its threads have begun, it compiles nothing under another number. The C library
    reads the time zone once, and has to be told of another.
    """
    present = own_variables()
    zone = present.get(b"TZ")
    # A process may inherit a variable without a name, which nobody can set.
    fixed = (b"", b"NUMBA_NUM_THREADS") if "numba" in sys.modules else (b"",)
    for name, value in wanted.items():
        if name in fixed:
            continue
        if value is None:
            os.environb.pop(name, None)
        elif present.get(name) != value:
            os.environb[name] = value
    if present.get(b"TZ") != zone:
        time.tzset()


def changes_since(before: Variables) -> dict[bytes, bytes | None]:
    """Return the variables that differ from `before`; None for one that was removed."""
    now = own_variables()
    return {
        name: now.get(name)
        for name in before.keys() | now.keys()
        if now.get(name) != before.get(name)
    }


Context: TypeAlias = tuple[int, str, int, int, int, int, tuple[str, ...]]
"""Precision, rounding, least and largest exponent, capitals, clamp, and the names of the signals
that raise.
"""
DEFAULT: Context = (
    28,
    "ROUND_HALF_EVEN",
    -999999,
    999999,
    1,
    0,
    ("InvalidOperation", "DivisionByZero", "Overflow"),
)
"""The context of a fresh Python."""


def present_state() -> bytes:
    """Return this thread's state; the same object as long as the state does not change."""
    decimal = sys.modules.get("decimal")
    # `__reduce__` takes the context apart in C. Its raised signals (`flags`) do not travel.
    context: Any = decimal and decimal.getcontext().__reduce__()[1]
    numbers, traps = (context[:6], tuple(context[7])) if context else ((), ())
    carried = present_carried() if CARRIED else ()
    if "numpy" in sys.modules:
        from gridengine.call_context import carried_state  # few need it

        carried = *carried, *carried_state.present_numpy()
    imports, main = GVAR.imports, sys.modules["__main__"]
    if not GVAR.in_runner:
        from gridengine.serialize.imports_for_effect import imports_for_effect  # for callers

        imports, _ = imports_for_effect(main, len(vars(main)), len(sys.modules))
    others = imports, carried
    return _pickled(sys.getrecursionlimit(), tuple(warnings.filters), numbers, traps, others)


def present_carried() -> tuple[Any, ...]:
    """Return the state, registered by `gridengine.carry`, that calls submitted now will carry."""
    if not CARRIED:
        return ()
    from gridengine.call_context import carried_state  # few need it

    return carried_state.present()


@functools.lru_cache(maxsize=1)
def _pickled(limit: int, filters: Any, numbers: Any, traps: Any, others: Any) -> bytes:
    imports, carried = others
    context: Any = (*numbers, tuple(one.__name__ for one in traps)) if numbers else DEFAULT
    is_default = (*context[:6], set(context[6])) == (*DEFAULT[:6], set(DEFAULT[6]))
    parts = [part for part in map(_pickled_filter, filters) if part is not None]
    return pickle.dumps((limit, None if is_default else context, parts, carried, imports), 5)


def _pickled_filter(one: Any) -> bytes | None:
    """Return a pickled warning filter. Each is pickled by itself: if a category cannot be imported,
    the other filters still hold.
    """
    from gridengine.serialize import pickling  # not for a worker's launch: 5 ms

    try:
        return bytes(pickling.dump(one)[0])
    except PicklingError:
        return None


def restore(state: bytes) -> None:
    """Set this process's interpreter state to a caller's; `import_for_effect` and `restore_carried`
    do the rest.
    """
    limit, context, filters, *others = pickle.loads(state)
    GVAR.imports = others[1] if len(others) > 1 else ()
    if limit != sys.getrecursionlimit():
        sys.setrecursionlimit(limit)
    if context is not None or "decimal" in sys.modules:
        _set_context(context or DEFAULT)
    wanted = [one for one in map(_loaded_filter, filters) if one is not None]
    if wanted != warnings.filters:
        warnings.resetwarnings()  # drops the results that Python has cached for each filter
        warnings.filters[:] = wanted  # type: ignore[index]


def import_for_effect() -> None:
    """Import the modules that the script of the present caller imports for their effect. A module
    that makes calls when it is imported would make them again in each process: they are refused.
    """
    if GVAR.imports:
        from gridengine.serialize.imports_for_effect import import_all

        GVAR.is_importing = True
        try:
            import_all(GVAR.imports)
        finally:
            GVAR.is_importing = False


def restore_carried(state: bytes) -> None:
    """Set the state that a caller carries, and undo the state that an earlier caller carried.

    Raises:
        Exception: a carried value cannot be loaded or set.
    """
    carried = _carried_in(state)
    if carried or "gridengine.call_context.carried_state" in sys.modules:
        from gridengine.call_context import carried_state  # few need it

        carried_state.restore(carried)


def is_left_by_another(caller: CallerState | None) -> bool:
    """Return whether this runner has state of a pair (`GVAR.pairs_set`) that the caller does not
    carry. Nobody can undo a user's `set`, so another process has to make this caller's calls.
    """
    state = caller.interpreter if caller is not None else b""
    return not GVAR.pairs_set <= {key for key, *_ in _carried_in(state)}


def _carried_in(state: bytes) -> tuple[Any, ...]:
    """Return the carried state within a caller's state; none in an older version's journal."""
    _, _, _, *carried = pickle.loads(state) if state else (None, None, None)
    return carried[0] if carried else ()


def _loaded_filter(part: bytes) -> Any:
    try:
        return pickle.loads(part)
    except Exception:  # the filter's category is in a module that this machine does not have
        return None


def _set_context(context: Context) -> None:
    import decimal  # few callers have a context of their own

    signals = [getattr(decimal, name) for name in context[6]]
    decimal.setcontext(decimal.Context(*context[:6], flags=[], traps=signals))
