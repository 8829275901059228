"""The arguments of a call for people, in errors."""

from __future__ import annotations

import sys
from typing import Any

from gridengine.serialize.itemwise_unpickler import Unloadable
from gridengine.serialize.payload import FULL, SINGLE
from gridengine.wire.messages import Assignment


def arguments_text(call: Any, assignment: Assignment, function: object = None) -> str:
    """Return the arguments of a call of this function for people, shortened: "argument -1.5",
    "arguments 1, b=2". Empty when they are unknown, and for a job that was pickled as a whole.
    """
    if type(call) is Unloadable or (assignment.watched and assignment.form == SINGLE):
        return ""
    from gridengine.serialize.argument_snapshot import given_words  # for an error alone

    streams: Any = sys.modules.get("gridengine.call_context.random_streams")
    if streams is not None and streams.takes_number(function):
        return given_words(streams.without_number(call, assignment.form), FULL)
    return given_words(call, assignment.form)
