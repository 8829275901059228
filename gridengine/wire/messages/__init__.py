"""The messages that dispatcher, worker, client and runner exchange: `client` has those between a
client and its dispatcher, `worker` those of workers, agents and runners. This package exports all
names.

A message is a small header, a struct of the modules here, and a list of *buffers*: pickled
functions, arguments and results, which only the caller and the runner ever decode. A header says
how many buffers belong to each of its items. `framing` turns both into frames.

`tools/protocol_vectors.py` makes docs/protocol/messages.md and the test vectors from these
definitions; written by hand, both would be out of date within a week. A test compares them.

The modules do without `from __future__ import annotations`: with it, msgspec would evaluate the
text of each field at import, and every first call and every worker would wait for that.
"""
# ruff: noqa: F403, F405 - mypy knows the names

from __future__ import annotations

from typing import TypeAlias

from gridengine.wire.messages.client import *
from gridengine.wire.messages.common import *
from gridengine.wire.messages.worker import *

Message: TypeAlias = (
    Hello
    | ClientHello
    | OutcomesTaken
    | Durable
    | Control
    | Controlled
    | Welcome
    | Rejoin
    | Refuse
    | Define
    | Forget
    | Keep
    | Fetch
    | Fetched
    | Serves
    | Pull
    | Pulled
    | Part
    | Reload
    | Allocate
    | Release
    | Assign
    | Cancel
    | Recall
    | Deliver
    | Stop
    | Beat
    | Measured
    | Started
    | Pushed
    | Output
    | OutputTaken
    | Results
    | Crashed
    | Returned
    | Shortened
    | Saved
    | Leaving
    | LeaveBy
    | Goodbye
    | FromClient
    | ToClient
    | NestedEnded
)
