"""Settings: one frozen object, made at its first use from defaults, settings files and the
environment, the later over the earlier.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping

from gridengine.settings.files import layers
from gridengine.settings.schema import (
    GridEngineSite,
    Said,
    Settings,
    SlurmSite,
    from_variables,
    known,
    made,
)

__all__ = ["GridEngineSite", "Said", "Settings", "SlurmSite", "gathered", "settings", "told"]


def gathered(
    environment: Mapping[str, str], layers: Iterable[Mapping[str, Said]]
) -> dict[str, Said]:
    """Return each setting and who said it: a default, what a layer says, what a later one says,
    what the environment says.
    """
    default = Settings()
    said = {
        name: Said(functools.reduce(getattr, name.split("."), default), "default")
        for name in known()
    }
    for layer in (*layers, from_variables(environment)):
        said.update(layer)
    return said


def told() -> Mapping[str, Said]:
    """Return each setting of this process and who said it, as files and the environment say now.

    Raises:
        ConfigurationError: something in a file or the environment is wrong; the text names the line
        or the variable.
    """
    return gathered(os.environ, layers(os.environ))


@functools.cache
def settings() -> Settings:
    """Return the settings of this process; files and the environment are read at the first call
    (see `told`).
    """
    return made({name: said.value for name, said in told().items()})
