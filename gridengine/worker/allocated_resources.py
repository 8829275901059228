"""Applies an allocation to a runner: binds its process to CPUs, and tells calls their cores and
GPUs.
"""

from __future__ import annotations

import os

from gridengine.errors import ConfigurationError
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.estimates import replaced
from gridengine.resources.kinds import Cores, GPUs
from gridengine.serialize import pickling
from gridengine.serialize.payload import Payload
from gridengine.wire.messages import Allocate
from gridengine.worker.affinity import bind_process
from gridengine.worker.environment import NONE_GIVEN, Variables


class AllocatedResources:
    """The resources of the present allocation; at first, none."""

    def __init__(self) -> None:
        self._message = Allocate(0)
        self._allowed = sorted(os.sched_getaffinity(0))
        self._payload: Payload = ()
        self.present: Resource | None = ZERO
        """What calls are given; None until `get` has found it, or failed to."""
        self._unfit: ConfigurationError | None = None
        self.variables: Variables = NONE_GIVEN
        """What is in the environment for it; the same object as long as it is."""

    def allocate(self, message: Allocate, buffers: Payload) -> None:
        """Keep to an allocation from here on."""
        self._message, self._payload = message, buffers
        self.present, self._unfit = None if message.allocation else ZERO, None
        self.variables = NONE_GIVEN
        try:
            self.variables = bind_process(message, self._allowed) or NONE_GIVEN
        except ConfigurationError as error:
            self.present, self._unfit = None, error

    def get(self) -> Resource:
        """Return what calls are given, with this machine's own numbers.

        Raises:
            Exception: there is none to give; or its class cannot be loaded here.
        """
        if self._unfit is not None:
            raise self._unfit
        if self.present is None:
            if self._message.failed:
                raise pickling.load_exception(self._payload)
            cores, gpus = self._message.cores or (), self._message.gpus or ()
            given = replaced(
                pickling.load(self._payload), Cores, lambda part: Cores(len(cores), cores)
            )
            self.present = replaced(given, GPUs, lambda part: GPUs(len(gpus), gpus))
        return self.present
