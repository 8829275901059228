"""Apply an allocation to a runner: bind its process to CPUs, and tell calls their cores
and GPUs.
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
    """The resources of the present allocation; none at first."""

    def __init__(self) -> None:
        self._message = Allocate(0)
        self._allowed = sorted(os.sched_getaffinity(0))
        self._payload: Payload = ()
        self.present: Resource | None = ZERO
        """The resources that calls get; None until `get` has determined them or failed."""
        self._unfit: ConfigurationError | None = None
        self.variables: Variables = NONE_GIVEN
        """The environment variables of the allocation; the same object as long as the allocation
        stays.
        """

    def allocate(self, message: Allocate, buffers: Payload) -> None:
        """Switch to another allocation."""
        self._message, self._payload = message, buffers
        self.present, self._unfit = None if message.allocation else ZERO, None
        self.variables = NONE_GIVEN
        try:
            self.variables = bind_process(message, self._allowed) or NONE_GIVEN
        except ConfigurationError as error:
            self.present, self._unfit = None, error

    def get(self) -> Resource:
        """Return the resources that calls get, with this machine's own numbers.

        Raises:
            Exception: there are none to give, or their class cannot be loaded here.
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
