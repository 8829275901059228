"""Objects in the workers of a stand-alone dispatcher."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import gridengine

np = pytest.importorskip("numpy")


class Adder:
    def __init__(self, array: object, folder: Path | None = None) -> None:
        self.total = array
        self.folder = folder

    def add(self, other: object) -> object:
        self.total = self.total + other  # type: ignore[operator]
        return self.total

    def exit(self) -> None:
        os._exit(4)

    def where(self) -> int:
        return os.getpid()


def test_a_client_calls_the_methods_of_its_object(client: gridengine.Client) -> None:
    with client.actor(Adder, 0) as adder:
        assert [one.result() for one in [adder.add(1) for _ in range(1000)]] == [*range(1, 1001)]
    ones = np.ones(500_000)
    with client.actor(Adder, ones) as adder:
        assert adder.add(ones).result().sum() == 1_000_000
        with pytest.raises(gridengine.ActorLost, match="exited with status 4"):
            adder.exit().result()
