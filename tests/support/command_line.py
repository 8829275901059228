"""The command line, run by a batch system's plain user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

COMMAND = """
import sys
from gridengine.cli.main import main
sys.argv[:] = {words!r}
main()
"""


def command(
    cluster: Cluster, *words: str, environment: Mapping[str, str] | None = None, **more: Any
) -> tuple[int, str]:
    """Run `gridengine` as the plain user; return its exit status and what it wrote."""
    script = COMMAND.format(words=["gridengine", *words])
    done = cluster.run(script, environment=environment, check=False, seconds=200, **more)
    return done.returncode, done.stdout + done.stderr


def doctor(
    cluster: Cluster, *words: str, environment: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the exit status of `gridengine doctor`, and its findings by what they are of and
    at.
    """
    status, output = command(cluster, "doctor", "--json", *words, environment=environment)
    told = json.loads(output)
    assert told["ok"] == (status == 0)
    return status, {f"{one['of']} {one['check']}": one for one in told["findings"]}
