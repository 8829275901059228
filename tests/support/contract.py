"""The rows and the columns of `tests/contract`: at which places a promise is asked for, and scripts
that keep many promises each, so that a test names the one that was broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clusters import OAR, PBS, Flux, GridEngine, HTCondor, Slurm
from tests.support.places import Files, Place, Processes, Tcp

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

CLUSTERS: tuple[type[Cluster], ...] = (GridEngine, Slurm)
"""The batch systems that all tests of clusters use."""
POOLS: tuple[type[Cluster], ...] = (HTCondor, OAR, PBS, Flux)
"""Those that the contract alone is asked of, by `make test-long`."""
BATCH_SYSTEMS = (*CLUSTERS, *POOLS)
"""Tests on each have its name as their mark."""
MARKED = (Files, *BATCH_SYSTEMS)
"""The places whose tests have a mark of their own, by which lanes tell them apart."""
PLACES: tuple[type[Place], ...] = (Processes, Tcp, Files, *BATCH_SYSTEMS)


def params(*kinds: type[Place]) -> list[Any]:
    """Return parameters for the fixtures `place` and `cluster`, with the marks of clusters."""
    return [
        pytest.param(
            kind.name,
            id=kind.name,
            marks=[getattr(pytest.mark, kind.name)] if kind in MARKED else [],
        )
        for kind in kinds
    ]


def at(has: Callable[[type[Place]], object]) -> pytest.MarkDecorator:
    """Ask a promise of all places that have this."""
    kinds = [kind for kind in PLACES if has(kind)]
    return pytest.mark.parametrize("place", params(*kinds), indirect=True, scope="module")


everywhere = at(lambda kind: True)

Scene = Callable[[Any], None]
"""What a test does at a place, and checks."""


def play_at_once(place: Place, scenes: Iterable[Scene]) -> dict[str, Future[None]]:
    """Play scenes at the same time, since they mostly wait, and return the end of each by its name:
    a test that asks for it fails as the scene did.
    """
    with ThreadPoolExecutor(64) as pool:
        return {scene.__name__: pool.submit(scene, place) for scene in scenes}


PROMISES = '''
import traceback

kept = {}


def promise(act):
    """Do it, and keep what it returns or how it failed under its name; others go on."""
    try:
        kept[act.__name__] = act()
    except BaseException:
        kept[act.__name__] = traceback.format_exc()
'''
