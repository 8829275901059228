"""What calls are given of a worker whose resources requests share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import Cores, GPUs, Memory, Nodes
from gridengine.resources.base import ZERO
from gridengine.serialize import pickling
from gridengine.wire.messages import Allocate
from gridengine.worker import process_setup
from gridengine.worker.process_setup import AllocatedResources


@pytest.fixture
def resources(monkeypatch: pytest.MonkeyPatch) -> AllocatedResources:
    """Of a process that is bound to nothing."""

    def bind(message: Allocate, allowed: Sequence[int]) -> dict[bytes, bytes]:
        if message.cores == [99]:
            raise ConfigurationError("there is no core 99")
        return {b"OMP_NUM_THREADS": b"2"} if message.cores else {}

    monkeypatch.setattr(process_setup, "bind_process", bind)
    return AllocatedResources()


def test_calls_are_told_the_machines_own_numbers(resources: AllocatedResources) -> None:
    asked = pickling.dump(Cores(2, [0, 1]) & GPUs(1, [0]) & Memory(3))
    resources.allocate(Allocate(1, 2, [6, 7], ["GPU-a"], exact=True), asked)
    given = resources.get()
    assert given == Cores(2, [6, 7]) & GPUs(1, ["GPU-a"]) & Memory(3)
    assert resources.get() is given
    assert resources.variables == {b"OMP_NUM_THREADS": b"2"}


def test_cores_without_numbers_stay_as_they_were_asked_for(resources: AllocatedResources) -> None:
    resources.allocate(Allocate(1, 4, threads=4), pickling.dump(Nodes(2) & Cores(4)))
    assert resources.get() == Nodes(2) & Cores(4)


def test_with_the_next_nothing_of_the_one_before_is_left(resources: AllocatedResources) -> None:
    resources.allocate(Allocate(1, 1, [6]), pickling.dump(Cores(1, [0])))
    resources.get()
    resources.allocate(Allocate(0, buffers=0), ())
    assert resources.get() is ZERO
    assert not resources.variables


def test_calls_fail_where_the_process_cannot_be_bound_until_it_is_given_others(
    resources: AllocatedResources,
) -> None:
    resources.allocate(Allocate(1, 1, [99]), pickling.dump(Cores(1, [0])))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="no core 99"):
            resources.get()
    resources.allocate(Allocate(2, 1, [6]), pickling.dump(Cores(1, [0])))
    assert resources.get() == Cores(1, [6])


def test_calls_are_told_why_a_resource_could_not_be_sent(resources: AllocatedResources) -> None:
    resources.allocate(Allocate(1, failed=True), pickling.dump_exception(KeyError("of a user")))
    with pytest.raises(KeyError, match="of a user"):
        resources.get()
