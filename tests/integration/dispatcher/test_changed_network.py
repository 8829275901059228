"""A laptop gets another address while its calls run."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support.network import Network, needs_network
from tests.support.scenario import PRELUDE
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

SCRIPT = """
def held(scheduler):
    return gridengine.map(hold, range(4), [{folder!r}] * 4, scheduler=scheduler, chunksize=1)

with {scheduler} as scheduler:
    assert held(scheduler) == [0, 1, 2, 3]
    assert gridengine.map(abs, [-1], scheduler=scheduler) == [1]
"""


@needs_network
@pytest.mark.parametrize("calls", ["here", "elsewhere"])
def test_a_map_goes_on_when_the_laptop_has_another_address(calls: str, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(contextlib.closing(Network()))
        scheduler = "gridengine.ProcessScheduler(2)"
        if calls == "elsewhere":
            runs = Standalone(tmp_path, GRIDENGINE_HOST=network.address)
            stack.callback(runs.end)
            scheduler = f"gridengine.Client({str(runs.path)!r})"
        text = SCRIPT.format(folder=str(folder), scheduler=scheduler)
        script = network.start(f"{PRELUDE}\n{text}")
        stack.callback(script.kill)
        wait_until(lambda: len([*folder.glob("began *")]) == 2)
        assert (network.connections() > 0) == (calls == "elsewhere")
        network.move()
        (folder / "go").touch()
        assert script.wait(200) == 0
        assert len([*folder.glob("began *")]) == 4
