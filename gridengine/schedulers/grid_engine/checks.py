"""What `gridengine doctor` looks at of a Grid Engine, or of another system with a DRMAA library."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from gridengine.schedulers.checks import Finding, State, check_names, listed, setting_of
from gridengine.schedulers.detect import library_paths, why_no_command
from gridengine.schedulers.grid_engine.diagnostics import Diagnostics
from gridengine.schedulers.grid_engine.drmaa import named_system
from gridengine.schedulers.grid_engine.drmaa_systems import GRID_ENGINE, GRID_ENGINE_UNNAMED, SLURM
from gridengine.schedulers.grid_engine.options import PER_SLOT
from gridengine.schedulers.launcher import TryAgain, Unavailable

_finding = functools.partial(Finding, "grid_engine")


def findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what there is: the environment, the library, the master, queues, parallel
    environments.
    """
    root, libraries, diagnostics = (
        environment.get("SGE_ROOT"),
        library_paths(environment),
        Diagnostics(environment),
    )
    if not root and not libraries:
        text = (
            "SGE_ROOT is not set"
            if diagnostics.find("qconf")
            else "SGE_ROOT is not set, and there is neither qconf nor a DRMAA library"
        )
        yield _finding(
            "environment",
            State.ABSENT,
            text,
            "source your site's settings.sh, or export SGE_ROOT, where there is a Grid Engine",
        )
        return
    absent = _absent_library(environment, libraries)
    if absent:
        yield _finding(
            "library",
            State.BROKEN,
            absent,
            "install Grid Engine's DRMAA library (Debian: gridengine-drmaa1.0), or set "
            "DRMAA_LIBRARY_PATH to where libdrmaa.so is",
        )
        return
    yield from _system(environment, libraries[0], diagnostics)


def _system(
    environment: Mapping[str, str], library: str, diagnostics: Diagnostics
) -> Iterator[Finding]:
    """Yield what there is of the system that a library speaks to."""
    try:
        system = named_system(library, environment)
    except Unavailable as error:
        system = GRID_ENGINE_UNNAMED
        yield _finding(
            "library",
            State.BROKEN,
            str(error),
            "is it a DRMAA library, for this machine's architecture? A Grid Engine's wants "
            "SGE_ROOT and SGE_CELL to be right",
        )
    else:
        yield _finding("library", State.OK, f"{library}, which speaks to {system}")
    if system.kind != GRID_ENGINE:
        better = (
            ": SlurmScheduler needs no DRMAA library"
            if system.kind == SLURM and not why_no_command("sbatch", environment)
            else ""
        )
        yield _finding("system", State.OK, f"{system.name}, and no Grid Engine{better}")
    elif environment.get("SGE_ROOT"):
        yield from _master(environment, environment["SGE_ROOT"], diagnostics)


def _absent_library(environment: Mapping[str, str], libraries: list[str]) -> str:
    """Return that there is no DRMAA library; empty when there is one."""
    if not libraries:
        return "there is no DRMAA library"
    if "/" not in libraries[0] or Path(libraries[0]).is_file():
        return ""
    named = environment.get("DRMAA_LIBRARY_PATH") == libraries[0]
    said = "DRMAA_LIBRARY_PATH says" if named else "it should be"
    return f"there is no DRMAA library where {said}: {libraries[0]}"


def _master(
    environment: Mapping[str, str], root: str, diagnostics: Diagnostics
) -> Iterator[Finding]:
    command = diagnostics.find("qconf")
    if not command:
        yield _finding(
            "commands",
            State.BROKEN,
            f"qconf is neither in PATH nor below {root}/bin",
            "correct SGE_ROOT, or add the folder of Grid Engine's commands to PATH",
        )
        return
    answer = diagnostics.ask("qconf", "-sql")
    if answer.failure:
        yield _finding(
            "master",
            State.BROKEN,
            answer.failure,
            "is sge_qmaster running? It is looked for where "
            f"{root}/{environment.get('SGE_CELL', 'default')}/common/act_qmaster says",
        )
        return
    yield _finding("master", State.OK, f"answers ({command})")
    queues = answer.output.split()
    yield check_names(_finding("queues", State.OK, listed(queues)), "grid_engine.queue", queues)
    yield _parallel_environments(diagnostics)


def _parallel_environments(diagnostics: Diagnostics) -> Finding:
    check = "parallel environments"
    try:
        rules = diagnostics.parallel_environments()
    except TryAgain as error:
        return _finding(
            check,
            State.BROKEN,
            str(error),
            "is sge_qmaster being restarted? Try again in a minute",
        )
    setting = "grid_engine.parallel_environment"
    fit = setting_of(setting).value or next(
        (name for name, rule in rules.items() if rule == PER_SLOT), ""
    )
    use = (
        f"; Cores(n) uses {fit}"
        if fit
        else f"; none has the allocation_rule {PER_SLOT}, which Cores(n) wants for n > 1"
    )
    words = listed(f"{name} ({rule})" for name, rule in rules.items())
    return check_names(_finding(check, State.OK, words + use), setting, rules)
