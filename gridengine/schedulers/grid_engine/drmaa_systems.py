"""Which batch system a DRMAA library speaks to, and what workers ask for in that system's words:
pure functions.

DRMAA itself has no words for most of it: they are options in each system's own language (GFD.22,
`drmaa_native_specification`).
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gridengine.errors import ConfigurationError
from gridengine.resources.base import Resource
from gridengine.resources.demand import Demand
from gridengine.resources.kinds import Cores, GPUs, Memory, Token, WTime
from gridengine.schedulers.grid_engine.request import Request, parse_memory
from gridengine.schedulers.grid_engine.request import parse_time as parse_grid_engine_time
from gridengine.schedulers.options import native_options, split_words
from gridengine.schedulers.registry import BY_NAME
from gridengine.settings.values import Settings

GRID_ENGINE, SLURM = "gridengine", "slurm"
GRID_ENGINES = re.compile(r"grid ?engine|\b(s|so|u|o|a)?ge\b|\b[og]cs\b", re.IGNORECASE)
"""How Grid Engines call themselves: "SGE 8.1.9", "UGE 8.6.7", "OGS/GE 2011.11"."""


@dataclass(frozen=True, slots=True)
class System:
    """A batch system, as its DRMAA library names both. `kind` is whose words it takes:
    "gridengine", "slurm", or others' first name.
    """

    name: str
    implementation: str
    kind: str

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.implementation})"
            if self.implementation not in ("", self.name)
            else self.name
        )


GRID_ENGINE_UNNAMED = System("Grid Engine", "", GRID_ENGINE)
"""What is spoken to where no library has said what it speaks to."""


def system_of(name: str, implementation: str) -> System:
    """Return the batch system that a DRMAA library names so (`drmaa_get_DRM_system`,
    `drmaa_get_DRMAA_implementation`).
    """
    if "slurm" in f"{name} {implementation}".lower():
        return System(name, implementation, SLURM)
    if GRID_ENGINES.search(name or implementation):
        return System(name, implementation, GRID_ENGINE)
    first = re.match(r"\w+", name)
    return System(
        name or "a system without a name", implementation, first[0].lower() if first else ""
    )


def native_request(
    system: System, request: Request, demand: Demand, held: Resource, settings: Settings
) -> Request:
    """Return the request of a scheduler, with what a demand asks for, to a system that is no Grid
    Engine: all of it as native options.

    `held` is what the user says that each worker holds: where there are no words for it, `native`
    is taken to ask for it.

    Raises:
        ConfigurationError: there are no words for something of it, or it is said twice; the text
        names it.
    """
    if system.kind == SLURM:
        own = list(_own_for_slurm(system, request))
        words = BY_NAME[SLURM].options_module().drmaa_options(own, demand, settings.slurm)
        options = [shlex.quote(word) if re.search(r"[\s'\"]", word) else word for word in words]
    else:
        options = [
            *_own_for_other(system, request),
            *([] if demand.resources == held else _options_for_other(system, demand)),
        ]
    return Request(native=" ".join(options))


def _own_for_slurm(system: System, request: Request) -> Iterator[str]:
    """Yield a scheduler's own arguments as options of sbatch."""
    if request.parallel_environment is not None:
        said = f"parallel_environment={request.parallel_environment!r}"
        raise no_words(system, said, f"ask for resources=gridengine.Cores({request.slots})")
    if request.queue is not None:
        yield f"--partition={request.queue}"
    for name, value in request.resources.items():
        seconds, size = parse_grid_engine_time(str(value)), parse_memory(str(value))
        if name == "h_rt" and seconds:
            yield f"--time={math.ceil(seconds / 60)}"
        elif name == "h_vmem" and size:
            yield f"--mem-per-cpu={math.ceil(size / 2**20)}M"
        else:
            raise no_words(system, f"{name}={value!r}")
    yield from split_words(request.native)


def _own_for_other(system: System, request: Request) -> Iterator[str]:
    """Yield the one argument that any system understands: options in its own language."""
    own = {
        "queue": request.queue,
        "parallel_environment": request.parallel_environment,
        **request.resources,
    }
    for name, value in own.items():
        if value is not None:
            raise no_words(system, f"{name}={value!r}")
    if request.native.strip():
        yield request.native.strip()


def _options_for_other(system: System, demand: Demand) -> Iterator[str]:
    """Yield the options of users' own kinds of resources."""
    for part in demand.resources:
        if _needs_option(part):
            raise no_words(
                system,
                repr(part),
                f"say it in native=, in its own words, and in worker_resources={part!r} what a "
                "worker then holds for calls to share",
            )
        yield from native_options(part, system.kind)


def _needs_option(part: Resource) -> bool:
    return (
        type(part) in (Memory, GPUs, Token)
        or (type(part) is Cores and part.N > 1)
        or (type(part) is WTime and part.T is not None)
    )


def no_words(
    system: System, said: str, hint: str = "say it in native=, in its own words"
) -> ConfigurationError:
    """Return what to raise of something that a system has no words for here."""
    return ConfigurationError(
        f"{said} cannot be said to {system}, which the DRMAA library speaks to: no words for it "
        "are known",
        hint=hint,
    )
