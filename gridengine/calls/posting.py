"""`PostingDispatcher`: the dispatcher of a script, whose I/O thread runs in the same process. A
request becomes an event for that thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from gridengine.calls.interface import Dispatcher
from gridengine.dispatcher.io_thread import DispatcherThread
from gridengine.dispatcher.unsettled import Listener
from gridengine.requests import Function, Submitted, Task
from gridengine.resources.demand import ANY
from gridengine.serialize.shared_objects import all_needed
from gridengine.serialize.users_modules import own_modules
from gridengine.threads import in_pieces

MOST_TASKS = 1000
"""One event submits at most this many tasks, because no message is handled meanwhile."""


class PostingDispatcher(DispatcherThread, Dispatcher):
    """Posts events to its own I/O thread. For the methods see `Dispatcher`."""

    def submit(self, function: Function, tasks: Sequence[Task], listener: Listener) -> None:
        # Calls must run the present code of edited modules: the core has runners replaced when
        # `generation` has changed.
        modules = own_modules()
        if time.monotonic() > modules.due:
            modules.check()
        with self._closing:  # nobody would read an event that is posted after `Closing`
            if self._closed or os.getpid() != self._owner:
                self._refuse()
            shared = function.needs
            for task in tasks:
                if (demand := task.options.demand) is not ANY:
                    self.check(demand)
                if task.needs:
                    shared = (*shared, *task.needs)
            self._unsettled.add(tasks, listener)
            generation = modules.generation
            if len(tasks) <= MOST_TASKS:
                self._queue.post(Submitted(function, tasks, generation))
            else:
                # The core handles one event at a time, and no message of a worker meanwhile.
                self._queue.extend(
                    [
                        Submitted(function, tasks[start : start + MOST_TASKS], generation)
                        for start in range(0, len(tasks), MOST_TASKS)
                    ]
                )
            for one in all_needed(shared) if shared else ():
                one.used_by(self)

    def catch_up(self) -> None:
        if os.getpid() != self._owner or threading.current_thread() is self._thread:
            return
        with self._closing:
            if self._closed:
                return
            done = self._queue.barrier()
        in_pieces(done.wait)

    def want(self, task: int, index: int, reference: int, missing: Callable[[], object]) -> None:
        if not self._closed:  # otherwise nobody would drop `missing`
            super().want(task, index, reference, missing)

    _request = DispatcherThread._post
