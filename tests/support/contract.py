"""The rows and the columns of `tests/contract`: at which places a promise is asked for, and scripts
that keep many promises each, so that a test names the one that was broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clusters import GridEngine, Slurm
from tests.support.places import Place, Processes, Tcp

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

CLUSTERS: tuple[type[Cluster], ...] = (GridEngine, Slurm)
"""The batch systems. Tests on each have its name as their mark."""
PLACES: tuple[type[Place], ...] = (Processes, Tcp, *CLUSTERS)


def params(*kinds: type[Place]) -> list[Any]:
    """Return parameters for the fixtures `place` and `cluster`, with the marks of clusters."""
    return [
        pytest.param(
            kind.name,
            id=kind.name,
            marks=[getattr(pytest.mark, kind.name)] if kind in CLUSTERS else [],
        )
        for kind in kinds
    ]


def at(has: Callable[[type[Place]], object]) -> pytest.MarkDecorator:
    """Ask a promise of all places that have this."""
    kinds = [kind for kind in PLACES if has(kind)]
    return pytest.mark.parametrize("place", params(*kinds), indirect=True, scope="module")


everywhere = at(lambda kind: True)

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
