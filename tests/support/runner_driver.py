"""Drives a runner's loop in this process, its channel played by a list."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gridengine.call_context.status_block import WORDS_SIZE
from gridengine.serialize import pickling
from gridengine.serialize.payload import SINGLE, Payload
from gridengine.wire.framing import encode
from gridengine.wire.messages import (
    VALUES,
    Assign,
    Assignment,
    Define,
    Message,
    Result,
    Results,
    portions,
)
from gridengine.worker.runner import Runner


class ScriptedChannel:
    """A channel that brings one message after the other, and then ends; `said` is what the runner
    sends.
    """

    def __init__(self) -> None:
        self.incoming: list[tuple[Message, Payload]] = []
        self.sent: list[tuple[Message, Payload]] = []

    def wait(self) -> list[tuple[Message, Payload]]:
        if not self.incoming:
            raise EOFError
        return [self.incoming.pop(0)]

    def deliver(self, message: Message, buffers: Payload = ()) -> None:
        encode(message, buffers)
        self.sent.append((message, [bytes(buffer) for buffer in buffers]))


class Itself:
    """A function that a runner of this process loads as it is, with all that it shares."""

    pickled: ClassVar[list[Itself]] = []

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __reduce__(self) -> Any:
        Itself.pickled.append(self)
        return of_this_process, (len(Itself.pickled) - 1,)


def of_this_process(number: int) -> Itself:
    return Itself.pickled[number]


class RunnerDriver:
    """A runner, its words, and what goes in and out."""

    def __init__(self) -> None:
        self.channel = ScriptedChannel()
        self.words = memoryview(bytearray(WORDS_SIZE)).cast("Q")
        self.runner = Runner(self.channel, self.words)  # type: ignore[arg-type]

    def define(
        self,
        function: Callable[..., Any],
        directory: str | None = None,
        retry_on: tuple[type[BaseException], ...] = (),
    ) -> bytes:
        digest, payload = pickling.dump_function(function, retry_on)
        folder = os.fsencode(directory or Path.cwd())
        self.channel.incoming.append(
            (Define(digest, list(map(os.fsencode, sys.path)), folder, len(payload)), payload)
        )
        return digest

    def assign(
        self,
        function: Callable[..., Any],
        *runs: list[Any],
        directory: str | None = None,
        **options: Any,
    ) -> None:
        """Assign runs, numbered from 1."""
        digest = self.define(function, directory, options.pop("retry_on", ()))
        assignments, buffers = [], []
        for run, calls in enumerate(runs, 1):
            payload = pickling.dump_calls(calls)
            given = {
                "run": run,
                "task": 7,
                "start": 0,
                "stop": len(calls),
                "attempt": 0,
                "form": SINGLE,
                "buffers": len(payload),
                **options,
            }
            assignments.append(Assignment(function=digest, **given))
            buffers += payload
        self.channel.incoming.append((Assign(assignments), buffers))

    def play(self) -> None:
        with pytest.raises(EOFError):
            self.runner.serve()

    def outcomes(self) -> list[tuple[Result, Any]]:
        found = []
        for message, buffers in self.channel.sent:
            if isinstance(message, Results):
                for result, payload in portions(message.results, buffers):
                    load = pickling.load if result.status == VALUES else pickling.load_exception
                    found.append((result, load(payload)))
        return found

    def values(self) -> list[Any]:
        return [
            value
            for result, values in self.outcomes()
            if result.status == VALUES
            for value in values
        ]
