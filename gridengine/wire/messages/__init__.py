"""The messages that dispatcher, worker, client and runner exchange, one module for each direction.
This package exports all names.

A message is a small header, a struct of the modules here, and a list of *buffers*: pickled
functions, arguments and results, which only the caller and the runner ever decode. A header says
how many buffers belong to each of its items. `framing` turns both into frames.

`tools/protocol_vectors.py` makes docs/protocol/messages.md and the test vectors from these
definitions; written by hand, both would be out of date within a week. A test compares them.

The modules do without `from __future__ import annotations`: with it, msgspec would evaluate the
text of each field at import, and every first call and every worker would wait for that.
"""
# ruff: noqa: I001 - isort would split each `name as name` into a statement of its own

from __future__ import annotations

from typing import TypeAlias

from gridengine.wire.messages.common import (
    Beat as Beat,
    CallerState as CallerState,
    DETACHED as DETACHED,
    Goodbye as Goodbye,
    NAME_BYTES as NAME_BYTES,
    OLDEST as OLDEST,
    Refuse as Refuse,
    Rejoin as Rejoin,
    TERMINATED as TERMINATED,
    VERSION as VERSION,
    input_name as input_name,
    portions as portions,
)
from gridengine.wire.messages.from_client import (
    ClientCancel as ClientCancel,
    CheckDemand as CheckDemand,
    ClientForget as ClientForget,
    ClientRecall as ClientRecall,
    Supply as Supply,
    Submit as Submit,
    Want as Want,
    NestedEnded as NestedEnded,
    NestedHello as NestedHello,
    ClientHello as ClientHello,
    Control as Control,
    EncodedDemand as EncodedDemand,
    FromClient as FromClient,
    FunctionItem as FunctionItem,
    JOURNALED as JOURNALED,
    NUMBER_BITS as NUMBER_BITS,
    OutcomesTaken as OutcomesTaken,
    Resumes as Resumes,
    SharedItem as SharedItem,
    TaskItem as TaskItem,
    Waits as Waits,
)
from gridengine.wire.messages.from_worker import (
    CANCELLED as CANCELLED,
    CRASH as CRASH,
    Crashed as Crashed,
    Fetched as Fetched,
    Held as Held,
    HeldBatch as HeldBatch,
    HeldRun as HeldRun,
    Hello as Hello,
    LoggedRecord as LoggedRecord,
    MEMORY as MEMORY,
    Measured as Measured,
    NO_INPUT as NO_INPUT,
    OUT_OF_MEMORY as OUT_OF_MEMORY,
    Output as Output,
    PROCESS_LEFT as PROCESS_LEFT,
    Pushed as Pushed,
    RAISED as RAISED,
    RETRYABLE as RETRYABLE,
    Result as Result,
    Results as Results,
    Returned as Returned,
    RunnerFigures as RunnerFigures,
    Shortened as Shortened,
    Started as Started,
    TIMEOUT as TIMEOUT,
    VALUES as VALUES,
)
from gridengine.wire.messages.to_client import (
    Attempt as Attempt,
    Checked as Checked,
    TaskPushed as TaskPushed,
    WantAnswer as WantAnswer,
    TaskBegan as TaskBegan,
    Finished as Finished,
    ClientWelcome as ClientWelcome,
    Controlled as Controlled,
    Durable as Durable,
    FinishedItem as FinishedItem,
    MOST_FAILURES as MOST_FAILURES,
    Resumed as Resumed,
    ToClient as ToClient,
)
from gridengine.wire.messages.to_worker import (
    Allocate as Allocate,
    Assign as Assign,
    Assignment as Assignment,
    Cancel as Cancel,
    Define as Define,
    Fetch as Fetch,
    Forget as Forget,
    Input as Input,
    Keep as Keep,
    OutputTaken as OutputTaken,
    Recall as Recall,
    Release as Release,
    Reload as Reload,
    Stop as Stop,
    Welcome as Welcome,
    large_inputs as large_inputs,
)

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
    | Reload
    | Allocate
    | Release
    | Assign
    | Cancel
    | Recall
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
    | Goodbye
    | FromClient
    | ToClient
    | NestedEnded
)
