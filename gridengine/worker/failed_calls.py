"""The outcomes of calls that ended by an exception. A runner loads this at its first such call."""

from __future__ import annotations

import socket
from typing import Any

from gridengine.call_context.shown_arguments import arguments_text
from gridengine.errors import CallError, call_words, out_of_memory
from gridengine.serialize.exceptions import note_remedy
from gridengine.serialize.payload import SINGLE, Buffer
from gridengine.wire.messages import INTERRUPTED, OUT_OF_MEMORY, RAISED, Assignment
from gridengine.worker.loaded_functions import LoadedFunctions
from gridengine.worker.result_buffer import ResultBuffer

STRAY_SIGNAL = (
    "find out who sent it SIGINT: OpenBLAS does so where it may start no more threads; have it "
    "start fewer (OMP_NUM_THREADS=1), or raise the limit (ulimit -u)"
)


class FailedCalls:
    """Adds the exceptions of calls to a runner's outcomes."""

    def __init__(self, result_buffer: ResultBuffer, functions: LoadedFunctions) -> None:
        self._result_buffer = result_buffer
        self._functions = functions

    def add_run(self, error: BaseException, assignment: Assignment) -> None:
        """Answer each call of a run that cannot begin with the same error."""
        payload = self._dump(assignment.start, error, assignment)
        for index in range(assignment.start, assignment.stop):
            self._result_buffer.add_raised(index, payload)

    def add_raised(
        self, index: int, error: BaseException, assignment: Assignment, call: Any, status: int
    ) -> None:
        """Answer a call of these arguments that raised an exception."""
        note_remedy(error, call if assignment.form == SINGLE else None)
        payload = self._dump(index, error, assignment, self._arguments_text(call, assignment))
        self._result_buffer.add_raised(index, payload, status)

    def add_interrupted(self, index: int, assignment: Assignment, *, told: bool) -> None:
        """Answer a call that raised `Interrupted`: it has stopped, and is to run again. The answer
        carries an exception, which is the outcome of the call if it was not told to stop, or if it
        saved nothing although it had nearly all of a worker's life.
        """
        from gridengine.call_context.checkpoints import interrupted  # few need it

        error = interrupted(self._label(index, assignment), told=told)
        payload = self._result_buffer.form.dump_exception(error)
        self._result_buffer.add_raised(index, payload, INTERRUPTED if told else RAISED)

    def add_out_of_memory(
        self,
        index: int,
        error: BaseException,
        assignment: Assignment,
        call: Any,
        *,
        limit: int,
        peak: int,
    ) -> None:
        """Answer a call that ran out of memory. `limit` is the memory that it may have, `peak` the
        most that it had, in bytes.
        """
        late = out_of_memory(
            self._label(index, assignment), limit=limit, peak=peak, host=socket.gethostname()
        )
        told = self._arguments_text(call, assignment)
        payload = self._result_buffer.form.dump_exception(late, told, origin=error)
        self._result_buffer.add_raised(index, payload, OUT_OF_MEMORY, peak)

    def _label(self, index: int, assignment: Assignment) -> str:
        name = self._functions.name_of(assignment.function)
        return call_words(name, assignment.first, index, assignment.name)

    def _arguments_text(self, call: Any, assignment: Assignment) -> str:
        return arguments_text(call, assignment, self._functions.loaded(assignment.function))

    def _dump(
        self, index: int, error: BaseException, assignment: Assignment, told: str = ""
    ) -> list[Buffer]:
        """Return the payload of an exception that a call raised. A `KeyboardInterrupt` in this
        process becomes another error: in the caller it would end the caller.
        """
        if not isinstance(error, KeyboardInterrupt):
            return self._result_buffer.form.dump_exception(error, told)
        instead = CallError(
            f"{self._label(index, assignment)} raised KeyboardInterrupt in its own process",
            hint=STRAY_SIGNAL,
        )
        return self._result_buffer.form.dump_exception(instead, told, origin=error)
